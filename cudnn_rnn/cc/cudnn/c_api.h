/* The core without TensorFlow, for ctypes: plans of the CPU and of cuDNN on memory that the caller
 * owns. The GPU tests drive it with PyTorch's tensors.
 *
 * Functions return 0 or the number of a StatusCode (core/status.h); cudnn_rnn_last_error() is then
 * the text, of the last call on this thread. No function throws: a lack of memory is an error like
 * others. Shapes and meanings are those of core/rnn_plan.h. */
#ifndef CUDNN_RNN_CC_CUDNN_C_API_H_
#define CUDNN_RNN_CC_CUDNN_C_API_H_

#include <stdint.h>

#define CUDNN_RNN_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Enumerations count as in core/rnn_config.h: rnn_mode relu 0, tanh 1, lstm 2, gru 3; input_mode
 * linear 0, skip 1, auto 2; direction uni 0, bi 1; data_type half 0, bfloat16 1, float 2, double 3.
 */
typedef struct {
  int32_t rnn_mode;
  int32_t input_mode;
  int32_t direction;
  int32_t data_type;
  int64_t num_layers;
  int64_t num_units;
  int64_t input_size;
  int64_t num_proj;
  int64_t seed;
  int64_t seed2;
  float dropout;
  /* Of cuDNN: auto 0, standard 1, persist_static 2, persist_static_small_h 3, persist_dynamic 4. */
  int32_t algorithm;
  int32_t deterministic;
  int32_t allow_tf32;
} cudnn_rnn_model_config;

typedef struct {
  int64_t num_steps;
  int64_t batch_size;
  int32_t time_major;
  int32_t is_training;
  int64_t dropout_call;
  /* Host memory [batch_size], or NULL. Each function reads every length once and works on that
   * copy; sizes depend on the lengths. */
  const int32_t* sequence_lengths;
  int32_t keeps_reserve_space;
  void* stream; /* CUstream; ignored on a CPU */
} cudnn_rnn_call;

typedef struct {
  int64_t params_elements;
  int64_t reserve_space_bytes;
  int64_t forward_workspace_bytes;
  int64_t backward_workspace_bytes;
  /* As `algorithm` above, the one in use; 0 on a CPU. */
  int32_t algorithm;
} cudnn_rnn_sizes;

typedef struct {
  const void* input;
  const void* input_h;
  const void* input_c;
  const void* params;
  void* output;
  void* output_h;
  void* output_c;
  void* reserve_space;
  int64_t reserve_space_bytes; /* 0 unless is_training */
  void* workspace;
  int64_t workspace_bytes;
} cudnn_rnn_forward_buffers;

typedef struct {
  const void* input;
  const void* input_h;
  const void* input_c;
  const void* params;
  const void* output;
  const void* output_h;
  const void* output_backprop;
  const void* output_h_backprop;
  const void* output_c_backprop;
  void* reserve_space;
  int64_t reserve_space_bytes;
  void* input_backprop;
  void* input_h_backprop;
  void* input_c_backprop;
  void* params_backprop;
  void* workspace;
  int64_t workspace_bytes;
} cudnn_rnn_backward_buffers;

typedef struct cudnn_rnn_model cudnn_rnn_model; /* as an op kernel: its plans, its dropout state */

CUDNN_RNN_EXPORT const char* cudnn_rnn_last_error(void);

/* Opens the driver and cuDNN for the process, without initialising CUDA. `cudnn_file` (or NULL) and
 * the colon-separated `wheel_folders` (or NULL) are those of LibrarySearch; `driver_name` NULL is
 * libcuda.so.1. */
CUDNN_RNN_EXPORT int cudnn_rnn_open_gpu(const char* driver_name, const char* cudnn_file,
                                        const char* wheel_folders);
/* What is open, or why nothing is: lines of text. */
CUDNN_RNN_EXPORT const char* cudnn_rnn_gpu_report(void);

/* on_gpu 0: the CPU. */
CUDNN_RNN_EXPORT int cudnn_rnn_model_create(const cudnn_rnn_model_config* config, int on_gpu,
                                            cudnn_rnn_model** model);
CUDNN_RNN_EXPORT void cudnn_rnn_model_destroy(cudnn_rnn_model* model);

/* Makes the plan of this call, if it is not there yet (on a GPU this may try algorithms and then
 * waits for them). */
CUDNN_RNN_EXPORT int cudnn_rnn_prepare(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                       cudnn_rnn_sizes* sizes);
CUDNN_RNN_EXPORT int cudnn_rnn_forward(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                       const cudnn_rnn_forward_buffers* buffers);
/* `call` is that of the forward pass, is_training included. */
CUDNN_RNN_EXPORT int cudnn_rnn_backward(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                        const cudnn_rnn_backward_buffers* buffers);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_CC_CUDNN_C_API_H_ */
