/* Functions that Python calls through ctypes to register the GPU kernels with TensorFlow. Loading
 * the library does not register them, because they require a driver.
 *
 * Which kernels run the ops on a GPU, these or TensorFlow's own, is decided in Python:
 * cudnn_rnn/_native/gpu_kernels.py reads CUDNN_RNN_GPU_KERNELS and TensorFlow's version, calls
 * cudnn_rnn_register_gpu_kernels if these kernels are wanted, and passes the priority or lets the
 * nodes select a kernel by the label "cudnn_rnn". */
#ifndef CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_
#define CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_

#define CUDNN_RNN_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the driver without initializing CUDA, then registers the GPU kernels, once per
 * process: under the label "cudnn_rnn" and, if `unlabelled_priority` is above 0, also with that
 * priority for nodes without a label. `cudnn_file` and the colon-separated `wheel_folders` are
 * those of LibrarySearch (cudnn/gpu_libraries.h). Returns 0, or the number of a StatusCode
 * (core/status.h); then nothing is registered, and cudnn_rnn_gpu_report() says why. */
CUDNN_RNN_EXPORT int cudnn_rnn_register_gpu_kernels(const char* cudnn_file,
                                                    const char* wheel_folders,
                                                    int unlabelled_priority);

/* Opens cuDNN, which otherwise the first GPU kernel does. By then TensorFlow has loaded its own; a
 * cuDNN opened earlier would become TensorFlow's, too. The arguments are those above, and without
 * effect after a call of that function. Returns 0, or the number of a StatusCode. */
CUDNN_RNN_EXPORT int cudnn_rnn_open_gpu_libraries(const char* cudnn_file,
                                                  const char* wheel_folders);

/* Returns lines of text: which GPU libraries are open, or why none are. Valid until this thread's
 * next call. */
CUDNN_RNN_EXPORT const char* cudnn_rnn_gpu_report(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_CC_TF_GPU_REGISTRATION_H_ */
