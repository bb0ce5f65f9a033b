/* A stand-in for CUDA's driver and cuDNN on host memory: what a test tells it and asks it.
 *
 * libcudnn_stand_in.so exports every function of cudnn_rnn/cc/cudnn/cudnn_types.h, so the one file
 * can be opened both as the driver and as cuDNN. "Device memory" is host memory; work "on a stream"
 * is done at once. The arithmetic is the CPU plan's. Every argument is checked as the real library
 * checks it, and more strictly where a wrong use by this project would only show as a wrong result.
 * What the real one rejects or silently gets wrong is a *violation*: it is recorded, and the call
 * returns a bad-parameter status. What the real one just does not offer (an algorithm for a shape)
 * is answered with its not-supported status and is no violation.
 *
 * What it is stricter about than the real one is documented to be:
 *   - device memory is what cuMemAlloc_v2 gave or what the test registered, aligned to 16 bytes for
 *     tensors and to 64 for weights, workspace, reserve space and dropout states;
 *   - a call's outputs overlap none of its other operands;
 *   - every call that works on a device needs the current context of that device;
 *   - weight spaces are 0 between their regions, weight gradients are 0 before they are added to;
 *   - backward calls are given the x, hx, cx, y and weights of the forward call (a row of y that is
 *     0 stands for anything in a sequence of length 1), data before weights, data once;
 *   - half and bfloat16 are computed with float precision;
 *   - cudnnGetRNNWeightParams wants a weight space; it need not be memory;
 *   - kernels are launched with at least one thread for each element.
 *
 * One lock guards all state; the arithmetic runs outside it. Plain C, for dlsym and for ctypes. */
#ifndef CUDNN_RNN_TESTS_CUDNN_STAND_IN_STAND_IN_H_
#define CUDNN_RNN_TESTS_CUDNN_STAND_IN_STAND_IN_H_

#include <stdint.h>

#define STAND_IN_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets calls, violations, failures to come, and sets every option to its default. What the
 * caller of the library still holds (handles, descriptors, events, memory) stays. */
STAND_IN_EXPORT void stand_in_reset(void);
/* As for a new process: in addition all objects are gone, their memory freed, cuInit not called. */
STAND_IN_EXPORT void stand_in_restart(void);

/* Calls since the reset, in the order of their beginning. NULL: of all functions. */
STAND_IN_EXPORT int64_t stand_in_calls(const char* function_name);
/* One line each: "name(argument=value, ...)". Valid until the next call of this on the thread. */
STAND_IN_EXPORT const char* stand_in_log(void);
/* Calls since the reset that make the host wait for the device: cuStreamSynchronize,
 * cuEventSynchronize, cuMemAlloc_v2, cuMemFree_v2, cudnnCreate, cudnnDestroy,
 * cudnnBuildRNNDynamic and cudnnSetDropoutDescriptor with states. */
STAND_IN_EXPORT int64_t stand_in_host_waits(void);
/* Generator states initialised since the reset: cudnnSetDropoutDescriptor with states. */
STAND_IN_EXPORT int64_t stand_in_dropout_initializations(void);

STAND_IN_EXPORT int64_t stand_in_violations(void);
/* One line each. Valid until the next call of this on the thread. */
STAND_IN_EXPORT const char* stand_in_violation_text(void);

/* Objects that live, by kind; kinds are handle, tensor_descriptor, dropout_descriptor,
 * rnn_descriptor, rnn_data_descriptor, event, module, allocation and pushed_context. NULL: all.
 * -1 for an unknown kind. */
STAND_IN_EXPORT int64_t stand_in_live(const char* kind);
STAND_IN_EXPORT int64_t stand_in_allocated_bytes(void);

/* How a call fails. The status is that of the function's library (and of its version). */
enum {
  STAND_IN_NO_FAILURE = 0,
  STAND_IN_OUT_OF_MEMORY = 1,
  STAND_IN_NOT_SUPPORTED = 2,
  STAND_IN_EXECUTION_FAILED = 3,
  STAND_IN_INTERNAL_ERROR = 4,
};
/* Every call but those of cuGetErrorString, cudnnGetErrorString and cudnnGetVersion counts as one
 * that can fail. A failing call does nothing, unless it releases something (Destroy, Free, Unload,
 * Pop): then it does so and fails too, as where an error of earlier work comes to light. */
STAND_IN_EXPORT int64_t stand_in_fallible_calls(void);
/* The n-th from now fails (1: the next one). */
STAND_IN_EXPORT void stand_in_fail_call(int64_t n, int failure);
/* The n-th from now and every later one fails. */
STAND_IN_EXPORT void stand_in_fail_calls_from(int64_t n, int failure);
/* Every call of the function fails, until told STAND_IN_NO_FAILURE. NULL with STAND_IN_NO_FAILURE:
 * no function fails any more. */
STAND_IN_EXPORT void stand_in_fail_function(const char* function_name, int failure);

/* The function that one of these orders made fail last, or "". Valid until the next call of this on
 * the thread. */
STAND_IN_EXPORT const char* stand_in_failed_function(void);

/* As cudnnGetVersion: 8907, 90300. Default: environment variable CUDNN_RNN_STAND_IN_VERSION, else
 * what the library was built with (90300 unless CUDNN_RNN_STAND_IN_DEFAULT_VERSION was defined). */
STAND_IN_EXPORT void stand_in_set_version(int64_t version);
/* As cuDriverGetVersion. Default 12080. */
STAND_IN_EXPORT void stand_in_set_driver_version(int version);
/* Default 1. With 0, cuInit fails as it does without a device. */
STAND_IN_EXPORT void stand_in_set_num_devices(int num_devices);
/* cuMemAlloc_v2 fails where more would be allocated. Negative (default): no limit. */
STAND_IN_EXPORT void stand_in_set_memory_limit(int64_t bytes);

/* Of algorithms: standard 0, persist_static 1, persist_dynamic 2, persist_static_small_h 3. */
enum {
  STAND_IN_SUPPORTED = 0, /* default */
  STAND_IN_REFUSED_BY_DESCRIPTOR = 1,
  STAND_IN_REFUSED_BY_FORWARD = 2,
  STAND_IN_REFUSED_BY_BACKWARD = 3,
};
/* Whatever is said here, persistent algorithms refuse padded IO, projections and double, with
 * persist_static more than 1024 units, with persist_static_small_h more than 384. */
STAND_IN_EXPORT void stand_in_set_algorithm_support(int algorithm, int support);
/* Milliseconds of one forward call, and of one backward call (half for data, half for weights),
 * on the clock that events record. Default 1 and 2. */
STAND_IN_EXPORT void stand_in_set_algorithm_time(int algorithm, double forward_ms,
                                                 double backward_ms);
/* Default 0: RNN descriptors refuse it with not-supported. */
STAND_IN_EXPORT void stand_in_set_bfloat16(int supported);
/* Default 0: the dense layout. 1: descriptors set from now on have regions at multiples of 256
 * bytes with room between and after them. */
STAND_IN_EXPORT void stand_in_set_padded_weights(int padded);
/* A call that is given a handle holds it that much longer, so that sharing one shows. Default 0. */
STAND_IN_EXPORT void stand_in_set_pause(int64_t microseconds);
/* Calls that are given a handle hold it until this many threads have made one. Default 0. */
STAND_IN_EXPORT void stand_in_let_calls_meet(int64_t calls);

/* Makes the caller's memory device memory, of every device. Ranges may be registered repeatedly
 * and overlap; unregistering takes one registration of that address away. */
STAND_IN_EXPORT void stand_in_register_memory(const void* data, int64_t bytes);
STAND_IN_EXPORT void stand_in_unregister_memory(const void* data);
/* Default 0. 1: any memory is device memory; nobody checks it. */
STAND_IN_EXPORT void stand_in_set_any_memory(int any_memory);

/* Default: every stream but the null stream belongs to device 0. */
STAND_IN_EXPORT void stand_in_set_stream_device(void* stream, int device);
/* The device whose context is current on this thread where nothing is pushed, -1 for none (the
 * default), as a framework's thread has one or not. The null stream belongs to the current
 * context; without one cuStreamGetCtx(NULL) fails. Kept by stand_in_reset. */
STAND_IN_EXPORT void stand_in_set_thread_device(int device);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_TESTS_CUDNN_STAND_IN_STAND_IN_H_ */
