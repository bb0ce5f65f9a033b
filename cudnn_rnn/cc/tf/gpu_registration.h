/* Gives TensorFlow the GPU kernels, for ctypes: only after cuDNN and a GPU were found, which is why
 * loading the library does not do it. */
#ifndef CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_
#define CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_

#include "cudnn_rnn/cc/cudnn/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the libraries as cudnn_rnn_open_gpu does and registers the GPU kernels, once: under the
 * label "cudnn_rnn", and where `unlabelled_priority` is above 0 also, with that priority, for nodes
 * without a label. Returns what cudnn_rnn_open_gpu does; if that is not 0, nothing is registered
 * and cudnn_rnn_gpu_report() says why. */
CUDNN_RNN_EXPORT int cudnn_rnn_register_gpu_kernels(const char* cudnn_file,
                                                    const char* wheel_folders,
                                                    int unlabelled_priority);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_ */
