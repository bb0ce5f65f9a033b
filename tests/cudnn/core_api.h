// C API that runs the core's CPU and cuDNN plans without TensorFlow, on memory that the caller
// owns. tests/gpu and benchmarks/gpu call it through ctypes on PyTorch's tensors (core_library.py).
//
// Functions return 0 or the number of a StatusCode (core/status.h). After an error,
// cudnn_rnn_last_error() returns the message of the last call on this thread. No function throws:
// out of memory is an error like any other. core/rnn_plan.h documents the buffers.
#ifndef CUDNN_RNN_TESTS_CUDNN_CORE_API_H_
#define CUDNN_RNN_TESTS_CUDNN_CORE_API_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/rnn_plan.h"

#define CUDNN_RNN_EXPORT __attribute__((visibility("default")))

// Owns plans and their dropout state, like an op kernel.
struct cudnn_rnn_model;

extern "C" {

// The first four fields have the values of the enumerations in core/rnn_config.h, `algorithm` those
// in cudnn/algorithm.h.
struct cudnn_rnn_model_config {
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
  int32_t algorithm;
  int32_t deterministic;
  int32_t allow_tf32;
};

struct cudnn_rnn_call {
  int64_t num_steps;
  int64_t batch_size;
  int32_t time_major;
  int32_t is_training;
  int64_t dropout_call_index;
  // Host memory [batch_size], or null. Each function copies the lengths once and uses the copy.
  // Sizes depend on the lengths.
  const int32_t* sequence_lengths;
  int32_t keeps_reserve_space;
  void* stream;  // CUstream; ignored on a CPU
};

struct cudnn_rnn_sizes {
  int64_t params_elements;
  int64_t reserve_space_bytes;
  int64_t forward_workspace_bytes;
  int64_t backward_workspace_bytes;
  int32_t algorithm;  // the algorithm in use; 0 on a CPU
};

struct cudnn_rnn_forward_buffers : cudnn_rnn::ForwardBuffers {
  int64_t reserve_space_bytes;  // 0 unless is_training
  int64_t workspace_bytes;
};

struct cudnn_rnn_backward_buffers : cudnn_rnn::BackwardBuffers {
  int64_t workspace_bytes;
};

CUDNN_RNN_EXPORT const char* cudnn_rnn_last_error();

// Opens the driver and cuDNN for the process without initializing CUDA. A null `driver_name` means
// libcuda.so.1; a null `cudnn_file` means the search of LibrarySearch.
CUDNN_RNN_EXPORT int cudnn_rnn_open_gpu(const char* driver_name, const char* cudnn_file);
// Returns lines of text: which libraries are open, or why none are.
CUDNN_RNN_EXPORT const char* cudnn_rnn_gpu_report();

// Creates a model for the CPU if `on_gpu` is 0, otherwise for a GPU.
CUDNN_RNN_EXPORT int cudnn_rnn_model_create(const cudnn_rnn_model_config* config, int on_gpu,
                                            cudnn_rnn_model** model);
CUDNN_RNN_EXPORT void cudnn_rnn_model_destroy(cudnn_rnn_model* model);

// Creates the plan for this call unless it exists, and returns its sizes. On a GPU this may try
// algorithms and wait for the trials.
CUDNN_RNN_EXPORT int cudnn_rnn_prepare(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                       cudnn_rnn_sizes* sizes);
CUDNN_RNN_EXPORT int cudnn_rnn_forward(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                       const cudnn_rnn_forward_buffers* buffers);
// `call` must be that of the forward pass, including is_training.
CUDNN_RNN_EXPORT int cudnn_rnn_backward(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                                        const cudnn_rnn_backward_buffers* buffers);

}  // extern "C"

// core_library.py declares these structures field by field.
static_assert(sizeof(cudnn_rnn_forward_buffers) == 13 * sizeof(void*), "core_library.py");
static_assert(sizeof(cudnn_rnn_backward_buffers) == 17 * sizeof(void*), "core_library.py");

#endif  // CUDNN_RNN_TESTS_CUDNN_CORE_API_H_
