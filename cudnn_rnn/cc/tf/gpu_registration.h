/* Functions that Python calls through ctypes to register the GPU kernels with TensorFlow. Loading
 * the library does not register them, because they require a driver.
 *
 * Python decides which kernels run each op on a GPU, these or TensorFlow's own
 * (cudnn_rnn/_native/gpu_choice.py), and calls cudnn_rnn_register_gpu_kernels if these kernels are
 * chosen for any node. */
#ifndef CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_
#define CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_

#include "cudnn_rnn/cc/engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the driver without initializing CUDA, then registers the GPU kernels, once per
 * process: all of them under the label "cudnn_rnn", and those of `unlabelled_ops`, names of ops,
 * also for nodes without a label. The latter take precedence over TensorFlow's own, which only
 * TensorFlow 2 supports. Returns 0, or the number of a StatusCode
 * (core/status.h); then nothing is registered, and cudnn_rnn_gpu_report() says why. */
CUDNN_RNN_EXPORT int cudnn_rnn_register_gpu_kernels(const cudnn_rnn_library_search* search,
                                                    const char* const* unlabelled_ops,
                                                    int64_t num_unlabelled_ops);

/* For tests without a GPU, of the kernels as they are installed: registers all of them once more,
 * for nodes on the CPU with the label `label`, with the mock library `mock_file` (tests/cudnn/mock)
 * as the driver and as cuDNN, which requires weights and reserve spaces that are aligned to
 * `buffer_alignment` bytes. May be called once per process and label. Returns 0, or the number of a
 * StatusCode; then nothing is registered. */
CUDNN_RNN_EXPORT int cudnn_rnn_register_mock_kernels(const char* mock_file, const char* label,
                                                     int buffer_alignment);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_ */
