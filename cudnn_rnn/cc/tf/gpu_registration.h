/* Registers the GPU kernels with TensorFlow, called through ctypes. Loading the library does not
 * register them, because that requires cuDNN and a GPU. */
#ifndef CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_
#define CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_

#include "cudnn_rnn/cc/cudnn/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the libraries as cudnn_rnn_open_gpu does, then registers the GPU kernels, once per process:
 * under the label "cudnn_rnn" and, if `unlabelled_priority` is above 0, also with that priority for
 * nodes without a label. Returns what cudnn_rnn_open_gpu returns; if that is not 0, registers
 * nothing, and cudnn_rnn_gpu_report() says why. */
CUDNN_RNN_EXPORT int cudnn_rnn_register_gpu_kernels(const char* cudnn_file,
                                                    const char* wheel_folders,
                                                    int unlabelled_priority);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_ */
