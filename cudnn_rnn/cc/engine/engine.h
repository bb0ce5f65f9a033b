/* The C interface of the engine, libcudnn_rnn_engine.so: RNNs on a CPU or a GPU, on memory that the
 * caller owns. The adapters for TensorFlow (cc/tf) and, through ctypes, the tests and benchmarks of
 * a GPU call it. No C++ type crosses it, so one engine serves adapters of every C++ ABI.
 *
 * Functions that return int return 0 or the number of a StatusCode (core/status.h). After an error,
 * cudnn_rnn_last_error() returns the message of the last call on this thread. No function throws:
 * out of memory is an error like any other. Results are written only if the function succeeds. */
#ifndef CUDNN_RNN_CC_ENGINE_ENGINE_H_
#define CUDNN_RNN_CC_ENGINE_ENGINE_H_

#include <stddef.h>
#include <stdint.h>

#define CUDNN_RNN_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Finds the plans of calls and keeps them, for one kind of device; like an op kernel, with which it
 * lives. Any thread may use it. */
typedef struct cudnn_rnn_planner cudnn_rnn_planner;
/* The plan of one call, with the call's options. */
typedef struct cudnn_rnn_prepared_call cudnn_rnn_prepared_call;
/* The GPU libraries, with the state that all GPU plans share. Lives until the end of the process.
 */
typedef struct cudnn_rnn_gpu cudnn_rnn_gpu;

/* RnnConfig (core/rnn_config.h). Fields of int32_t have the values of its enumerations. */
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
  int32_t precision; /* 0: the process's, cudnn_rnn_set_precision */
} cudnn_rnn_config;

/* ForwardChoice (core/rnn_plan.h). */
typedef struct {
  int32_t algorithm;
  int32_t allow_tf32;
  int32_t uses_dropout;
} cudnn_rnn_forward_choice;

/* The caller's threads. */
typedef struct {
  int64_t num_threads; /* that may work at once, including the calling one; at least 1 */
  /* Identifies the threads. Calls on the same pool share the knowledge of when its threads were
   * last used. */
  void* pool;
  /* Passes run(task) to the pool's threads, which may call it at any time, more than once or never;
   * destroy(task) must be called once, after the last run. Returns 0, or after an error another
   * number; then `task` is destroyed, too. Not called if num_threads is 1. */
  int (*schedule)(void* pool, void (*run)(void* task), void (*destroy)(void* task), void* task);
} cudnn_rnn_threads;

/* The caller's allocator of device memory. */
typedef struct {
  void* context;
  /* Allocates memory of any alignment. Sets `memory`, the argument of `release`, and
   * `data`, its address. `is_optional`: the engine can do without, so the allocator neither waits
   * for memory nor logs a warning. Returns 0 or the number of a StatusCode; then the message, of at
   * most `message_bytes` bytes with its final 0, is in `message`. */
  int (*allocate)(void* context, int64_t bytes, int is_optional, void** memory, void** data,
                  char* message, size_t message_bytes);
  /* May be called after the call that allocated the memory, when `context` no longer exists. */
  void (*release)(void* memory);
} cudnn_rnn_allocator;

typedef struct {
  int64_t num_steps;
  int64_t batch_size;
  int32_t time_major;
  int32_t is_training; /* of the forward pass; also set for its gradient */
  int64_t dropout_call_index;
  /* Host memory [batch_size], or null if all sequences have num_steps steps. It is copied once, by
   * cudnn_rnn_prepare, and only the copy is used. */
  const int32_t* sequence_lengths;
  int32_t keeps_reserve_space;
  /* GPU: CudnnOptions (cudnn/algorithm.h). */
  int32_t algorithm;
  int32_t deterministic;
  int32_t allow_tf32; /* if neither the config nor the process has a precision */
  cudnn_rnn_forward_choice forward_choice; /* of a gradient, if the caller knows it; else 0 */
  const cudnn_rnn_threads* threads;        /* CPU; null: the calling thread only */
  void* stream;                            /* GPU: the CUstream that all work is queued on */
  const cudnn_rnn_allocator* allocator;    /* GPU; null: memory comes from the driver */
} cudnn_rnn_call;

#define CUDNN_RNN_MAX_PACKED_LAYOUT 16

typedef struct {
  int64_t reserve_space_bytes;
  int64_t forward_workspace_bytes;
  int64_t backward_workspace_bytes; /* 0 unless the call is training */
  /* PackedWeightsSpec (core/rnn_plan.h); the rest of the layout is 0. */
  int64_t packed_weights_bytes;
  int64_t packed_weights_layout[CUDNN_RNN_MAX_PACKED_LAYOUT];
  cudnn_rnn_forward_choice choice; /* of the plan; algorithm 0 on a CPU */
} cudnn_rnn_sizes;

/* ForwardBuffers (core/rnn_plan.h), and the sizes of the memory that the caller allocated. */
typedef struct {
  const void* input;
  const void* input_h;
  const void* input_c;
  const void* params;
  void* output;
  void* output_h;
  void* output_c;
  void* reserve_space;
  int64_t reserve_space_bytes; /* 0 unless the call is training */
  void* packed_weights;
  int32_t packed_weights_are_ready;
  void* workspace;
  int64_t workspace_bytes;
} cudnn_rnn_forward_buffers;

/* BackwardBuffers (core/rnn_plan.h), and the size of the workspace. */
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

typedef struct {
  void* target;
  const void* source;
  int64_t bytes;
} cudnn_rnn_copy;

/* Transposition (cpu/transpose.h), in elements. */
typedef struct {
  const void* source;
  int64_t source_stride;
  void* target;
  int64_t target_stride;
  int64_t rows;
  int64_t columns;
} cudnn_rnn_transposition;

/* LibrarySearch (cudnn/gpu_libraries.h). Null: the default. */
typedef struct {
  const char* driver_name;
  const char* cudnn_file;
  const char* const* wheel_folders;
  int64_t num_wheel_folders;
} cudnn_rnn_library_search;

/* Valid until this thread's next call; "" after a success. */
CUDNN_RNN_EXPORT const char* cudnn_rnn_last_error(void);

/* Open the process's GPU libraries, in two steps, so that a program can register GPU kernels before
 * a framework has loaded its own cuDNN: a cuDNN that was opened earlier would become the
 * framework's, too. Neither initializes CUDA. The second function includes the first. Of each,
 * later calls return the result of the first call, whatever their argument. */
CUDNN_RNN_EXPORT int cudnn_rnn_open_driver(const cudnn_rnn_library_search* search);
CUDNN_RNN_EXPORT int cudnn_rnn_open_gpu(const cudnn_rnn_library_search* search);
/* Opens GPU libraries beside the process's, and initializes CUDA. `buffer_alignment`: the alignment
 * in bytes that weights and reserve spaces must have. For tests with a mock of cuDNN. */
CUDNN_RNN_EXPORT int cudnn_rnn_open_another_gpu(const cudnn_rnn_library_search* search,
                                                int64_t buffer_alignment, cudnn_rnn_gpu** gpu);
/* Returns lines of text: which of the process's GPU libraries are open, or why none are. Valid
 * until this thread's next call of the function. */
CUDNN_RNN_EXPORT const char* cudnn_rnn_gpu_report(void);
/* Returns lines of text. For each of float (in the process's precision), half and bfloat16, such as
 * "float: avx512, the processor has AVX-512": the instruction set that computes such models in this
 * process, and the reason; or the error that they raise. Then the process's precision of float
 * models and its reason, or the error: "precision: highest, the default". Requests the permission
 * to use AMX, as the first bfloat16 model does. Valid until this thread's next call of the
 * function. */
CUDNN_RNN_EXPORT const char* cudnn_rnn_cpu_report(void);

/* Sets the process's precision of float models by its name: "highest", "high" or "medium"; "" for
 * what the environment says (engine/precision.h). It applies to calls that are prepared later. */
CUDNN_RNN_EXPORT int cudnn_rnn_set_precision(const char* name);
/* Sets `name` to that of the process's precision, "highest" if nothing sets one. */
CUDNN_RNN_EXPORT int cudnn_rnn_get_precision(const char** name);

/* Returns the number of an Algorithm (cudnn/algorithm.h) by its name; "" means "standard". */
CUDNN_RNN_EXPORT int cudnn_rnn_parse_algorithm(const char* name, int32_t* algorithm);

/* A planner for the CPU reads the instruction set from the environment variable
 * CUDNN_RNN_CPU_INSTRUCTION_SET (cpu/instruction_set.h); a call fails if its value is wrong. */
CUDNN_RNN_EXPORT int cudnn_rnn_create_cpu_planner(cudnn_rnn_planner** planner);
/* `gpu` null: the process's, whose driver must have been opened; opens cuDNN and initializes CUDA,
 * if that has not been done. */
CUDNN_RNN_EXPORT int cudnn_rnn_create_gpu_planner(cudnn_rnn_gpu* gpu, cudnn_rnn_planner** planner);
CUDNN_RNN_EXPORT void cudnn_rnn_destroy_planner(cudnn_rnn_planner* planner);

/* Returns the number of elements in the parameter buffer (core/param_layout.h). */
CUDNN_RNN_EXPORT int cudnn_rnn_params_size(const cudnn_rnn_config* config, int64_t* size);

/* Finds or creates the plan of a call, and returns the sizes of its buffers. The prepared call must
 * not outlive the planner nor what `call` points to. On a GPU this may try algorithms, which waits
 * for the device. A gradient must be prepared like its forward call. */
CUDNN_RNN_EXPORT int cudnn_rnn_prepare(cudnn_rnn_planner* planner, const cudnn_rnn_config* config,
                                       const cudnn_rnn_call* call,
                                       cudnn_rnn_prepared_call** prepared, cudnn_rnn_sizes* sizes);
CUDNN_RNN_EXPORT int cudnn_rnn_forward(cudnn_rnn_prepared_call* prepared,
                                       const cudnn_rnn_forward_buffers* buffers);
CUDNN_RNN_EXPORT int cudnn_rnn_backward(cudnn_rnn_prepared_call* prepared,
                                        const cudnn_rnn_backward_buffers* buffers);
CUDNN_RNN_EXPORT void cudnn_rnn_release_call(cudnn_rnn_prepared_call* prepared);

/* Set `num_bytes` bytes to 0, and copy `num_copies` buffers, in memory of the planner's device. */
CUDNN_RNN_EXPORT int cudnn_rnn_clear_memory(cudnn_rnn_planner* planner, void* stream, void* target,
                                            int64_t num_bytes);
CUDNN_RNN_EXPORT int cudnn_rnn_copy_memory(cudnn_rnn_planner* planner, void* stream,
                                           const cudnn_rnn_copy* copies, int64_t num_copies);

/* Transposes matrices of float or double on a CPU. `data_type` is that of cudnn_rnn_config. */
CUDNN_RNN_EXPORT int cudnn_rnn_transpose(cudnn_rnn_planner* planner,
                                         const cudnn_rnn_threads* threads, int32_t data_type,
                                         const cudnn_rnn_transposition* transpositions,
                                         int64_t num_transpositions);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_CC_ENGINE_ENGINE_H_ */
