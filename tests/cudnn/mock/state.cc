#include "tests/cudnn/mock/state.h"

#include <algorithm>
#include <chrono>

namespace cudnn_rnn {
namespace mock {
namespace {

// Values of cudnnStatus_t, which changed in version 9.
struct CudnnStatuses {
  int not_initialized, bad_parameter, out_of_memory, not_supported, execution_failed,
      internal_error;
};

CudnnStatuses StatusesOf(int64_t version) {
  if (version < 90000) return {1, 3, 2, 9, 8, 4};
  return {1001, 2000, 4004, 3000, 5000, 4000};
}

}  // namespace

State& GetState() {
  static State* const state = new State;
  return *state;
}

void* NewAddress() {
  static uintptr_t next = 0x0100000000000000;  // outside what an x86-64 or arm64 process can map
  next += 64;
  return reinterpret_cast<void*>(next);
}

int64_t State::version() const {
  return record.options.version > 0 ? record.options.version : kBuiltVersion;
}

int64_t State::allocated_bytes() const {
  int64_t bytes = 0;
  for (const auto& allocation : allocations) bytes += static_cast<int64_t>(allocation.second.bytes);
  return bytes;
}

int64_t State::pushed_contexts() const {
  int64_t count = 0;
  for (const auto& thread : contexts) count += static_cast<int64_t>(thread.second.pushed.size());
  return count;
}

int State::CurrentDevice() {
  const ThreadContexts& mine = contexts[std::this_thread::get_id()];
  return mine.pushed.empty() ? mine.device : mine.pushed.back();
}

int State::StreamDevice(const void* stream) {
  if (stream == nullptr) return CurrentDevice();
  const auto found = record.options.stream_devices.find(stream);
  return found == record.options.stream_devices.end() ? 0 : found->second;
}

DeviceOptions State::OptionsOfDevice(int device) const {
  const auto found = record.options.devices.find(device);
  return found == record.options.devices.end() ? DeviceOptions() : found->second;
}

bool State::Behaves(int algorithm, int support, int64_t num_steps, int64_t batch_size) {
  const AlgorithmSupport& limited = record.options.algorithms[algorithm].support;
  if (limited.support != support) return false;
  const int64_t min_capability = limited.min_compute_capability;
  if (limited.max_steps < 0 && limited.max_batch_size < 0 && min_capability < 0) return true;
  return (limited.max_steps >= 0 && num_steps > limited.max_steps) ||
         (limited.max_batch_size >= 0 && batch_size > limited.max_batch_size) ||
         OptionsOfDevice(CurrentDevice()).compute_capability < min_capability;
}

thread_local int InMock::depth = 0;

Call::Call(Library library, const char* name)
    : state_(GetState()), lock_(state_.mutex), library_(library), name_(name) {
  Record& record = state_.record;
  record.log.push_back(name);
  ++record.calls[name];
  injected_ = InjectedStatus();
}

Call::~Call() {
  if (!lock_.owns_lock()) lock_.lock();
  Handle* const handle = state_.handles.Find(handle_);
  if (handle != nullptr) handle->in_use = false;
}

int Call::InjectedStatus() {
  Record& record = state_.record;
  if (std::string(name_) == "cuGetErrorString") return 0;
  const int64_t number = ++record.fallible_calls;
  const bool is_now = number == record.failing_call ||
                      (record.all_later_calls_fail && number > record.failing_call);
  return record.failing_call != 0 && is_now ? StatusOf(record.failure) : 0;
}

int Call::StatusOf(int failure) const {
  const bool is_driver = library_ == Library::kDriver;
  const CudnnStatuses cudnn = StatusesOf(state_.version());
  switch (failure) {
    case MOCK_NO_FAILURE:
      return 0;
    case MOCK_OUT_OF_MEMORY:
      return is_driver ? kCudaErrorOutOfMemory : cudnn.out_of_memory;
    case MOCK_NOT_SUPPORTED:
      return is_driver ? 801 : cudnn.not_supported;
    case MOCK_EXECUTION_FAILED:
      return is_driver ? 719 : cudnn.execution_failed;
    default:
      return is_driver ? 999 : cudnn.internal_error;
  }
}

int Call::Violate(const std::string& text, int driver_status) {
  state_.record.violations.push_back(Concatenate(name_, ": ", text));
  if (library_ == Library::kDriver) return driver_status;
  return StatusesOf(state_.version()).bad_parameter;
}

int Call::NeedContext(int* device) {
  if (!state_.is_initialized) {
    return Violate("called before cuInit", kDriverNotInitialized);
  }
  *device = state_.CurrentDevice();
  if (*device >= 0) return 0;
  return Violate("no context is current on this thread", kDriverInvalidContext);
}

int Call::NeedStream(const void* stream) {
  int device;
  MOCK_RETURN_IF_FAILED(NeedContext(&device));
  const int stream_device = state_.StreamDevice(stream);
  if (stream_device == device) return 0;
  return Violate(Concatenate("stream ", stream, " is of device ", stream_device,
                             ", but the current context is of device ", device),
                 kDriverInvalidHandle);
}

int Call::NeedHandle(void* address, Handle** handle) {
  MOCK_RETURN_IF_FAILED(Need(&state_.handles, address, "handle", handle));
  int64_t& calls_to_meet = state_.record.options.calls_to_meet;
  if (calls_to_meet > 0 && --calls_to_meet == 0) state_.calls_have_met.notify_all();
  if ((*handle)->in_use) return Violation("handle ", address, " is in use by another thread");
  int device;
  MOCK_RETURN_IF_FAILED(NeedContext(&device));
  if ((*handle)->device != device) {
    return Violation("handle ", address, " is of device ", (*handle)->device,
                     ", but the current context is of device ", device);
  }
  (*handle)->in_use = true;
  handle_ = address;
  state_.calls_have_met.wait(lock_, [&] { return calls_to_meet == 0; });
  if (state_.record.options.pause_microseconds > 0) {
    const std::chrono::microseconds pause(state_.record.options.pause_microseconds);
    Unlock();
    std::this_thread::sleep_for(pause);
    Lock();
  }
  return 0;
}

int Call::NeedHandleWithStream(void* address, Handle** handle) {
  MOCK_RETURN_IF_FAILED(NeedHandle(address, handle));
  if ((*handle)->has_stream) return 0;
  return Violation("handle ", address, " has no stream: cudnnSetStream was not called");
}

int Call::NeedMemory(const char* what, const void* data, int64_t bytes, size_t alignment) {
  if (bytes == 0) return 0;
  const int any_memory = state_.record.options.any_memory;
  if (any_memory == 1) alignment = std::min(alignment, kAnyMemoryAlignment);
  if (data == nullptr) return Violation(what, " is null, but needs ", bytes, " bytes");
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  if (address % alignment != 0) {
    return Violation(what, " at ", data, " is not aligned to ", alignment, " bytes");
  }
  if (any_memory != 0) return 0;
  const uintptr_t size = static_cast<uintptr_t>(bytes);
  auto after = state_.allocations.upper_bound(address);
  if (after != state_.allocations.begin()) {
    const auto allocation = --after;
    const uintptr_t within = address - allocation->first;
    if (within < allocation->second.bytes) {
      if (allocation->second.bytes - within < size) {
        return Violation(what, " at ", data, " needs ", bytes, " bytes, but the allocation has ",
                         allocation->second.bytes - within, " from there");
      }
      const int device = state_.CurrentDevice();
      if (allocation->second.device == device) return 0;
      return Violation(what, " at ", data, " is memory of device ", allocation->second.device,
                       ", but the current context is of device ", device);
    }
  }
  for (const auto& range : state_.registered_memory) {
    if (range.first > address) break;
    const uintptr_t within = address - range.first;
    if (within <= range.second && range.second - within >= size) return 0;
  }
  return Violation(what, " at ", data, ", ", bytes, " bytes, is not device memory");
}

int Call::UseMemory(const void* stream, const void* data, int64_t bytes, bool is_written) {
  const std::string conflict = state_.order.Use(stream, data, bytes, is_written);
  return conflict.empty() ? 0 : Violation(conflict);
}

int Call::NeedNoCapture() {
  if (state_.record.options.capturing_streams.empty()) return 0;
  return Violate("called while a stream records a CUDA graph", kDriverCaptureUnsupported);
}

int Call::WaitForDevice() {
  MOCK_RETURN_IF_FAILED(NeedNoCapture());
  ++state_.record.host_waits;
  return state_.failed_devices.erase(state_.CurrentDevice()) == 0 ? 0
                                                                  : StatusOf(MOCK_EXECUTION_FAILED);
}

bool Overlap(const void* data, int64_t bytes, const void* other, int64_t other_bytes) {
  if (data == nullptr || other == nullptr || bytes <= 0 || other_bytes <= 0) return false;
  const uintptr_t first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t second = reinterpret_cast<uintptr_t>(other);
  return first < second + static_cast<uintptr_t>(other_bytes) &&
         second < first + static_cast<uintptr_t>(bytes);
}

}  // namespace mock
}  // namespace cudnn_rnn
