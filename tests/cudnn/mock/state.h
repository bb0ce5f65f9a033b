// The mock's state, and the code that all its calls share.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_STATE_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_STATE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"
#include "tests/cudnn/mock/functions.h"
#include "tests/cudnn/mock/stream_order.h"

namespace cudnn_rnn {
namespace mock {

// Driver statuses, besides those of injected failures.
constexpr int kDriverInvalidValue = 1;
constexpr int kDriverNotInitialized = 3;
constexpr int kDriverNoDevice = 100;
constexpr int kDriverInvalidDevice = 101;
constexpr int kDriverInvalidContext = 201;
constexpr int kDriverInvalidHandle = 400;
constexpr int kDriverNotReady = 600;
constexpr int kDriverCaptureUnsupported = 900;

// The default version of cuDNN.
extern const int64_t kBuiltVersion;
// Loads the part of cuDNN that contains cudnnGetVersion. Like the real library, ends the process if
// the part is missing. Builds that are not shared libraries have no parts.
void LoadPartOrAbort();

constexpr int kNumAlgorithms = 4;
constexpr size_t kTensorAlignment = 16;
constexpr size_t kBufferAlignment = 256;
// With mock_set_any_memory(1): a framework may align its host memory less strictly.
constexpr size_t kAnyMemoryAlignment = 64;

struct Handle {
  int device = 0;
  void* stream = nullptr;
  bool has_stream = false;
  bool in_use = false;  // by an unfinished call
};

struct TensorDescriptor {
  bool is_set = false;
  int data_type = 0;
  std::vector<int> dimensions;
  std::vector<int> strides;
};

struct DropoutDescriptor {
  bool is_set = false;
  float dropout = 0;
  void* states = nullptr;
};

struct RnnDescriptor {
  bool is_set = false;
  RnnConfig config;  // without dropout and seeds, which are in the dropout descriptor
  int data_type = 0;
  int algorithm = 0;
  int math_type = 0;
  bool allows_padding = false;
  bool padded_weights = false;
  void* dropout_descriptor = nullptr;
  int built_batch_size = 0;  // set by cudnnBuildRNNDynamic
};

struct RnnDataDescriptor {
  bool is_set = false;
  int data_type = 0;
  int layout = 0;
  int num_steps = 0;
  int batch_size = 0;
  int vector_size = 0;
  std::vector<int32_t> lengths;
  bool has_padding_fill = false;
  unsigned char padding_fill[8] = {};

  CheckedSize num_elements() const { return CheckedSize(num_steps) * batch_size * vector_size; }
};

struct Event {
  int device = 0;
  bool has_time = true;
  bool is_recorded = false;
  bool is_waited_for = false;
  void* stream = nullptr;
  double time_ms = 0;
  StreamOrder::Clock clock;
};

void* NewAddress();

// Objects by address. Addresses are never reused and cannot be dereferenced.
template <typename T>
class Objects {
 public:
  void* Add(const T& object) {
    void* const address = NewAddress();
    objects_[address] = object;
    return address;
  }
  T* Find(const void* address) {
    const auto found = objects_.find(address);
    return found == objects_.end() ? nullptr : &found->second;
  }
  bool Remove(const void* address) { return objects_.erase(address) == 1; }
  int64_t size() const { return static_cast<int64_t>(objects_.size()); }
  std::map<const void*, T>& all() { return objects_; }

 private:
  std::map<const void*, T> objects_;
};

struct Allocation {
  size_t bytes = 0;
  int device = 0;
};

struct ThreadContexts {
  int device = -1;  // of the thread's own context, below the pushed ones
  std::vector<int> pushed;
};

struct DeviceOptions {
  int compute_capability = 80;
  int multiprocessors = 108;
  int64_t memory_bytes = int64_t{16} << 30;
};

// Where an algorithm is refused, or fails: for calls beyond a limit, or for all if there is none.
struct AlgorithmSupport {
  int support = MOCK_SUPPORTED;
  int64_t max_steps = -1;
  int64_t max_batch_size = -1;
  int min_compute_capability = -1;
};

struct AlgorithmOptions {
  AlgorithmSupport support;
  double forward_ms = 1;
  double backward_ms = 2;
};

struct Options {
  int64_t version = 0;  // 0: the default
  int num_devices = 1;
  std::map<int, DeviceOptions> devices;  // by number; the default for others
  int64_t memory_limit = -1;
  AlgorithmOptions algorithms[kNumAlgorithms];
  bool padded_weights = false;
  int64_t pause_microseconds = 0;
  int64_t calls_to_meet = 0;
  int any_memory = 0;
  int wrong_bfloat16 = MOCK_ALL_RIGHT;
  int bfloat16_fault = MOCK_NO_FAULT;
  bool skip_input_biases = true;
  bool loose_matrices = false;
  std::set<const void*> capturing_streams;
  std::map<const void*, int> stream_devices;
};

// The part of the state that mock_reset clears.
struct Record {
  Options options;
  std::vector<std::string> log;
  std::map<std::string, int64_t> calls;
  std::vector<std::string> violations;
  int64_t host_waits = 0;
  int64_t peak_memory = 0;
  int64_t fallible_calls = 0;
  int64_t failing_call = 0;  // an index that fallible_calls reaches, 0 for none
  bool all_later_calls_fail = false;
  int failure = MOCK_NO_FAILURE;
};

struct State {
  std::mutex mutex;
  std::condition_variable calls_have_met;
  Record record;
  bool is_initialized = false;  // by cuInit
  Objects<Handle> handles;
  Objects<TensorDescriptor> tensor_descriptors;
  Objects<DropoutDescriptor> dropout_descriptors;
  Objects<RnnDescriptor> rnn_descriptors;
  Objects<RnnDataDescriptor> rnn_data_descriptors;
  Objects<Event> events;
  std::map<uintptr_t, Allocation> allocations;
  std::multimap<uintptr_t, size_t> registered_memory;
  std::map<std::thread::id, ThreadContexts> contexts;
  std::map<const void*, double> stream_times_ms;
  StreamOrder order;
  std::set<int> failed_devices;  // whose next waiting call returns the error

  int64_t version() const;
  int64_t allocated_bytes() const;
  int64_t pushed_contexts() const;
  // These return -1 if there is no context.
  int CurrentDevice();
  int StreamDevice(const void* stream);
  DeviceOptions OptionsOfDevice(int device) const;
  // Returns whether `support` is what the algorithm does with a call of this size on the current
  // device. Sizes of -1 are not known yet.
  bool Behaves(int algorithm, int support, int64_t num_steps = -1, int64_t batch_size = -1);
};

// Returns the state of this process.
State& GetState();

enum class Library { kDriver, kCudnn };

// Exists while this thread is in the mock, whose own allocations must not fail.
class InMock {
 public:
  InMock() { ++depth; }
  ~InMock() { --depth; }
  static thread_local int depth;
};

// A call in progress: logs itself, holds the state's lock, and knows whether it must fail.
class Call {
 public:
  Call(Library library, const char* name);
  ~Call();

  State& state() { return state_; }
  const char* name() const { return name_; }
  // The status of the failure that the test has injected into this call, or 0.
  int injected() const { return injected_; }

  // Returns the library's status for a failure of mock_cudnn.h.
  int StatusOf(int failure) const;
  // Records a violation; returns `driver_status` for the driver, bad-parameter for cuDNN.
  template <typename... Parts>
  int Violation(const Parts&... parts) {
    return Violate(Concatenate(parts...), kDriverInvalidValue);
  }
  int Violate(const std::string& text, int driver_status);
  // Records as a violation what the real library accepts, but no caller may do. The call goes on.
  template <typename... Parts>
  void Forbid(const Parts&... parts) {
    Violate(Concatenate(parts...), 0);
  }

  // The functions below return 0, or the status of a violation.

  // Requires an initialized driver and a current context; sets the context's device.
  int NeedContext(int* device);
  // Requires that the stream belongs to the current context.
  int NeedStream(const void* stream);
  // Requires a handle of the current context that no other call uses. This call holds the handle
  // until it ends.
  int NeedHandle(void* address, Handle** handle);
  // Also requires that the handle has a stream.
  int NeedHandleWithStream(void* address, Handle** handle);
  // Requires a live object.
  template <typename T>
  int Need(Objects<T>* objects, const void* address, const char* what, T** object) {
    *object = objects->Find(address);
    if (*object != nullptr) return 0;
    return Violate(Concatenate(what, " ", address, " was not created or is destroyed"),
                   kDriverInvalidHandle);
  }
  // Requires `bytes` bytes of memory of the current device, aligned to `alignment`. Accepts
  // anything if `bytes` is 0.
  int NeedMemory(const char* what, const void* data, int64_t bytes, size_t alignment);
  // Requires that no work which may still be running on another stream conflicts with this use of
  // memory by work on `stream`.
  int UseMemory(const void* stream, const void* data, int64_t bytes, bool is_written);
  // Requires that no stream records a CUDA graph.
  int NeedNoCapture();

  // Makes the host wait for the current device; returns 0, or the error of its earlier work.
  int WaitForDevice();

  // The arithmetic runs without the lock.
  void Unlock() { lock_.unlock(); }
  void Lock() { lock_.lock(); }

 private:
  int InjectedStatus();

  const InMock in_mock_;
  State& state_;
  std::unique_lock<std::mutex> lock_;
  const Library library_;
  const char* const name_;
  int injected_ = 0;
  void* handle_ = nullptr;
};

#define MOCK_RETURN_IF_FAILED(expression) \
  do {                                    \
    const int status = (expression);      \
    if (status != 0) return status;       \
  } while (false)

// Runs body(Call*), which returns the status, unless the call must fail.
template <typename Body>
int Run(Library library, const char* name, const Body& body) {
  Call call(library, name);
  if (call.injected() != 0) return call.injected();
  try {
    return body(&call);
  } catch (const std::bad_alloc&) {
    return call.StatusOf(MOCK_OUT_OF_MEMORY);
  }
}

// Runs a function that releases something; it does so even if it must fail.
template <typename Body>
int RunRelease(Library library, const char* name, const Body& body) {
  Call call(library, name);
  const int status = body(&call);
  return call.injected() != 0 ? call.injected() : status;
}

// Returns whether [data, data + bytes) and the other range overlap.
bool Overlap(const void* data, int64_t bytes, const void* other, int64_t other_bytes);

}  // namespace mock
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_STATE_H_
