/* C API of the core without TensorFlow, for ctypes: runs CPU and cuDNN plans on memory that the
 * caller owns. The GPU tests call it with PyTorch's tensors.
 *
 * Functions return 0 or the number of a StatusCode (core/status.h). After an error,
 * cudnn_rnn_last_error() returns the message of the last call on this thread. No function throws:
 * out of memory is an error like any other. core/rnn_plan.h documents the shapes and meanings of
 * buffers. */
#ifndef CUDNN_RNN_CC_CUDNN_C_API_H_
#define CUDNN_RNN_CC_CUDNN_C_API_H_

#include <stdint.h>

#define CUDNN_RNN_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Enumerations have the values of core/rnn_config.h: rnn_mode relu 0, tanh 1, lstm 2, gru 3;
 * input_mode linear 0, skip 1, auto 2; direction uni 0, bi 1;
 * data_type half 0, bfloat16 1, float 2, double 3. */
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
  /* cuDNN: auto 0, standard 1, persist_static 2, persist_static_small_h 3, persist_dynamic 4. */
  int32_t algorithm;
  int32_t deterministic;
  int32_t allow_tf32;
} cudnn_rnn_model_config;

typedef struct {
  int64_t num_steps;
  int64_t batch_size;
  int32_t time_major;
  int32_t is_training;
  int64_t dropout_call_index;
  /* Host memory [batch_size], or NULL. Each function copies the lengths once and works on the copy.
   * Sizes depend on the lengths. */
  const int32_t* sequence_lengths;
  int32_t keeps_reserve_space;
  void* stream; /* CUstream; ignored on a CPU */
} cudnn_rnn_call;

typedef struct {
  int64_t params_elements;
  int64_t reserve_space_bytes;
  int64_t forward_workspace_bytes;
  int64_t backward_workspace_bytes;
  /* The algorithm in use, numbered as in cudnn_rnn_model_config; 0 on a CPU. */
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

/* Owns plans and their dropout state, like an op kernel. */
typedef struct cudnn_rnn_model cudnn_rnn_model;

CUDNN_RNN_EXPORT const char* cudnn_rnn_last_error(void);

/* Opens the driver and cuDNN for the process without initializing CUDA. `cudnn_file` and the
 * colon-separated `wheel_folders` are those of LibrarySearch; each may be NULL. A NULL
 * `driver_name` means libcuda.so.1. */
CUDNN_RNN_EXPORT int cudnn_rnn_open_gpu(const char* driver_name, const char* cudnn_file,
                                        const char* wheel_folders);
/* Returns lines of text: which libraries are open, or why none are. */
CUDNN_RNN_EXPORT const char* cudnn_rnn_gpu_report(void);

/* Creates a model for the CPU if `on_gpu` is 0, for a GPU otherwise. */
CUDNN_RNN_EXPORT int cudnn_rnn_model_create(const cudnn_rnn_model_config* config, int on_gpu,
                                            cudnn_rnn_model** model);
CUDNN_RNN_EXPORT void cudnn_rnn_model_destroy(cudnn_rnn_model* model);

/* Creates the plan for this call unless it exists, and returns its sizes. On a GPU this may try
 * algorithms and wait for the trials. */
CUDNN_RNN_EXPORT int cudnn_rnn_prepare(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                       cudnn_rnn_sizes* sizes);
CUDNN_RNN_EXPORT int cudnn_rnn_forward(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                       const cudnn_rnn_forward_buffers* buffers);
/* `call` must be that of the forward pass, including is_training. */
CUDNN_RNN_EXPORT int cudnn_rnn_backward(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                        const cudnn_rnn_backward_buffers* buffers);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_CC_CUDNN_C_API_H_ */
