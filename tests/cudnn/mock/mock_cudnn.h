/* A mock of CUDA's driver and cuDNN on host memory: the functions by which tests control it.
 *
 * libmock_cudnn.so exports every function of cudnn_rnn/cc/cudnn/cudnn_types.h, so one file can
 * be opened both as the driver and as cuDNN. "Device memory" is host memory, work "on a stream"
 * runs at once, and the CPU plan does the arithmetic. The mock checks every argument as the real
 * library does, and more strictly if a mistake would otherwise only cause wrong results.
 * Whatever the real library rejects, or silently computes wrongly, is a *violation*: the mock
 * records it, and the call returns a bad-parameter status. Whatever the real library does not offer
 * (such as an algorithm for a shape) returns its not-supported status and is no violation.
 * Functions without a handle return the real library's status of the same version for all
 * arguments (`make cudnn-host-test` compares), even if the mock records a violation.
 *
 * Requirements stricter than the real library's documentation:
 *   - device memory comes from cuMemAlloc_v2 or is registered by the test; it is aligned to 16
 *     bytes for tensors, and to 256 for weights, workspace, reserve space and dropout states, as
 *     cuBLASLt assumes it by default;
 *   - no state of the model may be null;
 *   - a call's outputs overlap none of its other operands;
 *   - every call that works on a device needs the current context of that device; destroying a
 *     descriptor needs any context;
 *   - weight spaces are 0 between their regions; weight gradients are 0 before accumulation;
 *   - backward calls get the x, hx, cx, y, weights, algorithm and math type of the forward call (in
 *     a sequence of length 1, y may be 0 instead); data comes before weights, and only once;
 *   - half and bfloat16 models use float math precision; models have two biases;
 *   - sequences have at least one step, and the packed layout has no padding;
 *   - tensors have 3 to 8 dimensions and positive strides;
 *   - cudnnGetRNNWeightParams needs a weight space of full size, which need not be memory, and a
 *     linear layer that exists;
 *   - cudnnBuildRNNDynamic needs persist_dynamic;
 *   - no pointer to a descriptor, its lengths, dimensions or strides is null;
 *   - work on memory that other work may still be using on another stream (stream_order.h), even if
 *     the memory was freed and allocated again in between, unless cuMemFree_v2 has freed it.
 *
 * The mock's shared libraries (cmake/mock_cudnn.cmake) end the process in cudnnGetVersion if a
 * part of cuDNN is missing that the real function loads.
 *
 * One lock guards all state; the arithmetic runs without it. Plain C, for dlsym and ctypes. */
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_MOCK_CUDNN_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_MOCK_CUDNN_H_

#include <stdint.h>

#define MOCK_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Clears the records of calls and violations, cancels ordered failures, and resets every option to
 * its default. Objects that the caller holds (handles, descriptors, events, memory) stay. */
MOCK_EXPORT void mock_reset(void);
/* Restores the state of a new process: also destroys all objects, frees their memory, undoes cuInit
 * and forgets the threads' contexts. Registered memory stays registered. */
MOCK_EXPORT void mock_restart(void);

/* Returns the number of calls of a function since the reset. NULL: of all functions. */
MOCK_EXPORT int64_t mock_calls(const char* function_name);
/* Returns one line for each call, in order: the function's name, and for cudnnSetRNNDescriptor_v8
 * " algorithm=<number> math_type=<number>". Valid until the thread's next call of this function. */
MOCK_EXPORT const char* mock_log(void);
/* Returns the number of calls since the reset that make the host wait for the device:
 * cuStreamSynchronize, cuEventSynchronize, cuMemAlloc_v2, cuMemFree_v2, cudnnCreate, cudnnDestroy,
 * cudnnBuildRNNDynamic and cudnnSetDropoutDescriptor with states. */
MOCK_EXPORT int64_t mock_host_waits(void);

MOCK_EXPORT int64_t mock_violations(void);
/* Returns one line for each violation. Valid until the thread's next call of this function. */
MOCK_EXPORT const char* mock_violation_text(void);

/* Returns the number of live objects of a kind: handle, tensor_descriptor, dropout_descriptor,
 * rnn_descriptor, rnn_data_descriptor, event, allocation or pushed_context. NULL: of all
 * kinds. Returns -1 for an unknown kind. */
MOCK_EXPORT int64_t mock_live(const char* kind);

/* Kinds of failures. The status depends on the function's library and its version. */
enum {
  MOCK_NO_FAILURE = 0,
  MOCK_OUT_OF_MEMORY = 1,
  MOCK_NOT_SUPPORTED = 2,
  MOCK_EXECUTION_FAILED = 3,
  MOCK_INTERNAL_ERROR = 4,
};
/* Returns the number of calls since the reset that could fail: all except those of
 * cuGetErrorString, cudnnGetErrorString and cudnnGetVersion. A failing call does nothing, unless it
 * releases something (Destroy, Free, Pop): then it releases it and returns the failure,
 * like a call that reports an error of earlier work. */
MOCK_EXPORT int64_t mock_fallible_calls(void);
/* Makes the n-th fallible call from now on fail (1: the next one). */
MOCK_EXPORT void mock_fail_call(int64_t n, int failure);
/* Makes the n-th fallible call from now on, and every later one, fail. */
MOCK_EXPORT void mock_fail_calls_from(int64_t n, int failure);

/* Sets the result of cudnnGetVersion, such as 8907 or 91300. Default: the build's
 * CUDNN_RNN_MOCK_DEFAULT_VERSION (91300). RNN descriptors support bfloat16 from 91300 on. */
MOCK_EXPORT void mock_set_version(int64_t version);
/* Default 1. With 0, cuInit fails as it does without a device. */
MOCK_EXPORT void mock_set_num_devices(int num_devices);
/* Sets a device's model. Default: compute capability 80 (8.0), 108 multiprocessors, 16 GiB. The
 * name follows from the compute capability. */
MOCK_EXPORT void mock_set_device(int device, int compute_capability, int multiprocessors,
                                 int64_t memory_bytes);
/* cuMemAlloc_v2 fails if the total would exceed this limit. Negative (default): no limit. */
MOCK_EXPORT void mock_set_memory_limit(int64_t bytes);
/* Returns the largest number of bytes that were allocated at a time since the reset. */
MOCK_EXPORT int64_t mock_peak_memory(void);

/* Support for an algorithm: standard 0, persist_static 1, persist_dynamic 2,
 * persist_static_small_h 3. */
enum {
  MOCK_SUPPORTED = 0, /* default */
  MOCK_REFUSED_BY_DESCRIPTOR = 1,
  MOCK_REFUSED_BY_FORWARD = 2,
  MOCK_REFUSED_BY_BACKWARD = 3,
  MOCK_REFUSED_BY_SIZES = 4, /* by cudnnGetRNNTempSpaceSizes */
  /* cudnnRNNForward succeeds, but its kernels fail: the next call that makes the host wait for the
   * device returns the error. Later calls succeed again, unlike after a fault of a real GPU, which
   * ends its CUDA context. */
  MOCK_FAILS_LATER = 5,
};
/* Independently of this setting, descriptors of persistent algorithms refuse projections and,
 * except for persist_dynamic, double. Forward refuses padded IO, the sizes do not, as seen in cuDNN
 * 9.19 on an H200. The sizes and forward refuse, with persist_static more than 1024 units, with
 * persist_static_small_h more than 384 (relu, tanh) or 192 (LSTM, GRU), and backward more than 256
 * or 128. */
MOCK_EXPORT void mock_set_algorithm_support(int algorithm, int support);
/* The same, but only for calls with more steps, a larger batch or a lower compute capability than
 * these; negative: no such limit. cudnnSetRNNDescriptor_v8 knows only the compute capability. */
MOCK_EXPORT void mock_limit_algorithm(int algorithm, int support, int64_t max_steps,
                                      int64_t max_batch_size, int min_compute_capability);
/* Sets the milliseconds of one forward and of one backward pass (half for data, half for weights)
 * on the virtual clock that events record. Default 1 and 2. */
MOCK_EXPORT void mock_set_algorithm_time(int algorithm, double forward_ms, double backward_ms);
/* Default 0: the dense layout. 1: weight spaces of descriptors set from now on have their regions
 * at multiples of 256 bytes, with gaps between and after them. */
MOCK_EXPORT void mock_set_padded_weights(int padded);
/* Default 1. 0: with skipped input, the first layer has no biases of its input. */
MOCK_EXPORT void mock_set_skip_input_biases(int exist);
/* Default 0. 1: cudnnGetRNNWeightParams reports matrices whose rows have gaps between them. */
MOCK_EXPORT void mock_set_loose_matrices(int are_loose);
/* Results that calls in bfloat16 compute wrongly, with a status of success. */
enum {
  MOCK_ALL_RIGHT = 0, /* default */
  MOCK_WRONG_OUTPUT = 1,
  MOCK_WRONG_DATA_GRADIENTS = 2,
  MOCK_WRONG_WEIGHT_GRADIENTS = 3,
};
/* The fault in these results: they are zeros; or they are computed with weights (the weight
 * gradients: returned) with exchanged gates, transposed R, every number at its neighbour's place,
 * exchanged directions, or without biases; or the first two steps of a sequence are exchanged. */
enum {
  MOCK_NO_FAULT = 0,
  MOCK_ZEROS = 1,
  MOCK_EXCHANGED_GATES = 2,
  MOCK_TRANSPOSED_RECURRENT_WEIGHTS = 3,
  MOCK_SHIFTED_WEIGHTS = 4,
  MOCK_EXCHANGED_DIRECTIONS = 5,
  MOCK_MISSING_BIASES = 6,
  MOCK_EXCHANGED_STEPS = 7,
};
MOCK_EXPORT void mock_set_wrong_bfloat16(int wrong_results, int fault);
/* Default 0. 1: the stream records a CUDA graph. Then all calls that allocate, or that make the
 * host wait, are violations. (Recorded work runs at once.) */
MOCK_EXPORT void mock_set_capturing(void* stream, int is_capturing);
/* Every call with a handle holds the handle this much longer, so that concurrent use of one handle
 * is detected. Default 0. */
MOCK_EXPORT void mock_set_pause(int64_t microseconds);
/* Calls with a handle hold the handle until this many such calls have begun. Default 0. */
MOCK_EXPORT void mock_let_calls_meet(int64_t calls);

/* Makes the caller's memory device memory of every device. Ranges may overlap and be registered
 * repeatedly; unregistering removes one registration of that address. */
MOCK_EXPORT void mock_register_memory(const void* data, int64_t bytes);
MOCK_EXPORT void mock_unregister_memory(const void* data);
/* Default 0. 1: all memory counts as device memory, and is aligned to 64 bytes at most. 2: all
 * memory counts as device memory, and is aligned like it. */
MOCK_EXPORT void mock_set_any_memory(int any_memory);

/* By default every stream except the null stream belongs to device 0. */
MOCK_EXPORT void mock_set_stream_device(void* stream, int device);
/* Sets the device whose context is current on this thread while no context is pushed; -1 (the
 * default) for none. Threads of frameworks may have such a context. The null stream belongs to the
 * current context; without one, cuStreamGetCtx(NULL) fails. mock_reset keeps this setting. */
MOCK_EXPORT void mock_set_thread_device(int device);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_TESTS_CUDNN_MOCK_MOCK_CUDNN_H_ */
