// The mock of CUDA's driver: devices, contexts, memory, copies and events.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cudnn/mock/state.h"

namespace cudnn_rnn {

using namespace mock;  // NOLINT: C functions are outside the namespace

namespace {

constexpr uintptr_t kFirstContext = 0x0200000000000000;
constexpr size_t kAllocationAlignment = 256;
constexpr int kMemoryTypeHost = 1;
constexpr size_t kMaxPitch = 2147483647;
constexpr int kDriverVersion = 12080;

template <typename Body>
int Run(const char* name, const Body& body) {
  return Run(Library::kDriver, name, body);
}

template <typename Body>
int RunRelease(const char* name, const Body& body) {
  return RunRelease(Library::kDriver, name, body);
}

int NeedInitialized(Call* call) {
  if (call->state().is_initialized) return 0;
  return call->Violate("called before cuInit", kDriverNotInitialized);
}

int NeedDevice(Call* call, int device) {
  MOCK_RETURN_IF_FAILED(NeedInitialized(call));
  if (device >= 0 && device < call->state().record.options.num_devices) return 0;
  return call->Violate(Concatenate("there is no device ", device), kDriverInvalidDevice);
}

void* ContextOf(int device) {
  return reinterpret_cast<void*>(kFirstContext + static_cast<uintptr_t>(device) * 64);
}

char* Bytes(DeviceAddress address) { return reinterpret_cast<char*>(address); }

// One side of a two-dimensional copy.
struct CopySide {
  const char* name;
  size_t x_bytes, y;
  int memory_type;
  const void* host;
  DeviceAddress device;
  void* array;
  size_t pitch;
};

// Checks one side of a copy; sets `first` to the first byte copied.
int CheckCopySide(Call* call, const CopySide& side, size_t width, size_t height,
                  const char** first) {
  if (side.memory_type != kCudaMemoryTypeDevice && side.memory_type != kMemoryTypeHost) {
    return call->Violation(side.name, " has memory type ", side.memory_type);
  }
  if (side.array != nullptr) return call->Violation(side.name, " is an array");
  if (side.pitch > kMaxPitch) {
    return call->Violation(side.name, " pitch ", side.pitch, " is above ", kMaxPitch);
  }
  if (side.x_bytes > side.pitch || width > side.pitch - side.x_bytes) {
    return call->Violation(side.name, " pitch ", side.pitch, " is below x ", side.x_bytes,
                           " + width ", width);
  }
  if (side.y > kMaxPitch || height > kMaxPitch) {
    return call->Violation(side.name, " y ", side.y, " or height ", height, " is too large");
  }
  const bool is_device = side.memory_type == kCudaMemoryTypeDevice;
  const char* base = is_device ? Bytes(side.device) : static_cast<const char*>(side.host);
  if (base == nullptr) return call->Violation(side.name, " is null");
  *first = base + side.y * side.pitch + side.x_bytes;
  if (!is_device || width == 0 || height == 0) return 0;
  const size_t extent = (height - 1) * side.pitch + width;
  return call->NeedMemory(side.name, *first, static_cast<int64_t>(extent), 1);
}

int UseCopySide(Call* call, const void* stream, const CopySide& side, const char* first,
                size_t width, size_t height, bool is_written) {
  if (side.memory_type != kCudaMemoryTypeDevice) return 0;
  for (size_t row = 0; row < height; ++row) {
    MOCK_RETURN_IF_FAILED(
        call->UseMemory(stream, first + row * side.pitch, static_cast<int64_t>(width), is_written));
  }
  return 0;
}

int NeedEvent(Call* call, void* address, Event** event) {
  MOCK_RETURN_IF_FAILED(NeedInitialized(call));
  return call->Need(&call->state().events, address, "event", event);
}

}  // namespace

extern "C" {

int cuInit(unsigned int flags) {
  return Run("cuInit", [&](Call* call) {
    if (flags != 0) return call->Violation("flags must be 0, but are ", flags);
    if (call->state().record.options.num_devices == 0) return kDriverNoDevice;
    call->state().is_initialized = true;
    return 0;
  });
}

int cuDriverGetVersion(int* version) {
  return Run("cuDriverGetVersion", [&](Call* call) {
    if (version == nullptr) return call->Violation("version is null");
    *version = kDriverVersion;
    return 0;
  });
}

int cuGetErrorString(int error, const char** text) {
  return Run("cuGetErrorString", [&](Call* call) {
    if (text == nullptr) return call->Violation("text is null");
    static const std::map<int, const char*> texts = {
        {0, "no error"},
        {kDriverInvalidValue, "invalid argument"},
        {kCudaErrorOutOfMemory, "out of memory"},
        {kDriverNotInitialized, "initialization error"},
        {kDriverNoDevice, "no CUDA-capable device is detected"},
        {kDriverInvalidDevice, "invalid device ordinal"},
        {kDriverInvalidContext, "invalid device context"},
        {kDriverInvalidHandle, "invalid resource handle"},
        {kDriverNotReady, "device not ready"},
        {kDriverCaptureUnsupported, "operation not permitted when stream is capturing"},
        {719, "unspecified launch failure"},
        {801, "operation not supported"},
        {999, "unknown error"},
    };
    const auto found = texts.find(error);
    *text = found == texts.end() ? nullptr : found->second;
    return found == texts.end() ? kDriverInvalidValue : 0;
  });
}

int cuStreamGetCtx(void* stream, void** context) {
  return Run("cuStreamGetCtx", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(NeedInitialized(call));
    if (context == nullptr) return call->Violation("context is null");
    const int device = call->state().StreamDevice(stream);
    if (device < 0) return kDriverInvalidContext;
    *context = ContextOf(device);
    return 0;
  });
}

int cuStreamIsCapturing(void* stream, int* status) {
  return Run("cuStreamIsCapturing", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    if (status == nullptr) return call->Violation("status is null");
    *status = static_cast<int>(call->state().record.options.capturing_streams.count(stream));
    return 0;
  });
}

int cuStreamWaitEvent(void* stream, void* event, unsigned int flags) {
  return Run("cuStreamWaitEvent", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    if (flags != 0) return call->Violation("flags ", flags, " are not known here");
    Event* found;
    MOCK_RETURN_IF_FAILED(NeedEvent(call, event, &found));
    if (!found->is_recorded) return call->Violation("the event was not recorded");
    call->state().order.StreamWaits(stream, found->clock);
    return 0;
  });
}

int cuCtxPushCurrent_v2(void* context) {
  return Run("cuCtxPushCurrent_v2", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(NeedInitialized(call));
    for (int device = 0; device < call->state().record.options.num_devices; ++device) {
      if (context != ContextOf(device)) continue;
      call->state().contexts[std::this_thread::get_id()].pushed.push_back(device);
      return 0;
    }
    return call->Violate(Concatenate("there is no context ", context), kDriverInvalidContext);
  });
}

int cuCtxPopCurrent_v2(void** context) {
  return RunRelease("cuCtxPopCurrent_v2", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(NeedInitialized(call));
    std::vector<int>& pushed = call->state().contexts[std::this_thread::get_id()].pushed;
    if (pushed.empty()) {
      return call->Violate("this thread has pushed no context", kDriverInvalidContext);
    }
    if (context != nullptr) *context = ContextOf(pushed.back());
    pushed.pop_back();
    return 0;
  });
}

int cuCtxGetDevice(int* device) {
  return Run("cuCtxGetDevice", [&](Call* call) {
    int current;
    MOCK_RETURN_IF_FAILED(call->NeedContext(&current));
    if (device == nullptr) return call->Violation("device is null");
    *device = current;
    return 0;
  });
}

int cuDeviceGetName(char* name, int bytes, int device) {
  return Run("cuDeviceGetName", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(NeedDevice(call, device));
    if (name == nullptr || bytes < 1) return call->Violation("name is null or has no bytes");
    std::snprintf(name, static_cast<size_t>(bytes), "Mock sm_%d",
                  call->state().OptionsOfDevice(device).compute_capability);
    return 0;
  });
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  return Run("cuDeviceGetAttribute", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(NeedDevice(call, device));
    if (value == nullptr) return call->Violation("value is null");
    const DeviceOptions options = call->state().OptionsOfDevice(device);
    switch (attribute) {
      case kCudaMultiprocessorCount:
        *value = options.multiprocessors;
        return 0;
      case kCudaComputeCapabilityMajor:
        *value = options.compute_capability / 10;
        return 0;
      case kCudaComputeCapabilityMinor:
        *value = options.compute_capability % 10;
        return 0;
      default:
        return call->Violation("attribute ", attribute, " is not known here");
    }
  });
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  return Run("cuDeviceTotalMem_v2", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(NeedDevice(call, device));
    if (bytes == nullptr) return call->Violation("bytes is null");
    *bytes = static_cast<size_t>(call->state().OptionsOfDevice(device).memory_bytes);
    return 0;
  });
}

int cuStreamSynchronize(void* stream) {
  return Run("cuStreamSynchronize", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    State& state = call->state();
    state.order.HostWaits(state.order.Record(stream));
    return call->WaitForDevice();
  });
}

int cuMemAlloc_v2(DeviceAddress* pointer, size_t bytes) {
  return Run("cuMemAlloc_v2", [&](Call* call) {
    int device;
    MOCK_RETURN_IF_FAILED(call->NeedContext(&device));
    if (pointer == nullptr) return call->Violation("pointer is null");
    if (bytes == 0) return call->Violation("bytes is 0");
    State& state = call->state();
    MOCK_RETURN_IF_FAILED(call->WaitForDevice());
    state.order.HostWaitsForAll();
    const int64_t limit = state.record.options.memory_limit;
    const size_t used = static_cast<size_t>(state.allocated_bytes());
    if (limit >= 0 && (used > static_cast<size_t>(limit) || bytes > limit - used)) {
      return kCudaErrorOutOfMemory;
    }
    void* memory = nullptr;
    if (posix_memalign(&memory, kAllocationAlignment, bytes) != 0) return kCudaErrorOutOfMemory;
    std::memset(memory, 0xff, bytes);  // NaN in every floating-point type
    *pointer = reinterpret_cast<uintptr_t>(memory);
    state.allocations[reinterpret_cast<uintptr_t>(memory)] = {bytes, device};
    state.record.peak_memory = std::max(state.record.peak_memory, state.allocated_bytes());
    return 0;
  });
}

int cuMemFree_v2(DeviceAddress pointer) {
  return RunRelease("cuMemFree_v2", [&](Call* call) {
    int device;
    MOCK_RETURN_IF_FAILED(call->NeedContext(&device));
    State& state = call->state();
    const auto found = state.allocations.find(static_cast<uintptr_t>(pointer));
    if (found == state.allocations.end()) {
      return call->Violation("pointer ", static_cast<void*>(Bytes(pointer)),
                             " is not what cuMemAlloc_v2 gave, or is freed already");
    }
    if (found->second.device != device) {
      return call->Violation("the memory is of device ", found->second.device,
                             ", but the current context is of device ", device);
    }
    state.order.HostWaitsForAll();
    state.allocations.erase(found);
    std::free(Bytes(pointer));
    return call->WaitForDevice();
  });
}

int cuMemsetD8Async(DeviceAddress target, unsigned char value, size_t bytes, void* stream) {
  return Run("cuMemsetD8Async", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    MOCK_RETURN_IF_FAILED(
        call->NeedMemory("target", Bytes(target), static_cast<int64_t>(bytes), 1));
    MOCK_RETURN_IF_FAILED(
        call->UseMemory(stream, Bytes(target), static_cast<int64_t>(bytes), true));
    if (bytes > 0) std::memset(Bytes(target), value, bytes);
    return 0;
  });
}

int cuMemcpyDtoDAsync_v2(DeviceAddress target, DeviceAddress source, size_t bytes, void* stream) {
  return Run("cuMemcpyDtoDAsync_v2", [&](Call* call) {
    const int64_t size = static_cast<int64_t>(bytes);
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    MOCK_RETURN_IF_FAILED(call->NeedMemory("target", Bytes(target), size, 1));
    MOCK_RETURN_IF_FAILED(call->NeedMemory("source", Bytes(source), size, 1));
    if (Overlap(Bytes(target), size, Bytes(source), size)) {
      return call->Violation("source and target overlap");
    }
    MOCK_RETURN_IF_FAILED(call->UseMemory(stream, Bytes(source), size, false));
    MOCK_RETURN_IF_FAILED(call->UseMemory(stream, Bytes(target), size, true));
    if (bytes > 0) std::memcpy(Bytes(target), Bytes(source), bytes);
    return 0;
  });
}

int cuMemcpyHtoDAsync_v2(DeviceAddress target, const void* source, size_t bytes, void* stream) {
  return Run("cuMemcpyHtoDAsync_v2", [&](Call* call) {
    const int64_t size = static_cast<int64_t>(bytes);
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    MOCK_RETURN_IF_FAILED(call->NeedMemory("target", Bytes(target), size, 1));
    if (bytes == 0) return 0;
    if (source == nullptr) return call->Violation("source is null");
    for (const auto& allocation : call->state().allocations) {
      const int64_t allocated = static_cast<int64_t>(allocation.second.bytes);
      if (Overlap(source, size, Bytes(allocation.first), allocated)) {
        return call->Violation("source is device memory");
      }
    }
    MOCK_RETURN_IF_FAILED(call->UseMemory(stream, Bytes(target), size, true));
    std::memcpy(Bytes(target), source, bytes);
    return 0;
  });
}

int cuMemcpyDtoHAsync_v2(void* target, DeviceAddress source, size_t bytes, void* stream) {
  return Run("cuMemcpyDtoHAsync_v2", [&](Call* call) {
    const int64_t size = static_cast<int64_t>(bytes);
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    MOCK_RETURN_IF_FAILED(call->NeedMemory("source", Bytes(source), size, 1));
    if (bytes == 0) return 0;
    if (target == nullptr) return call->Violation("target is null");
    MOCK_RETURN_IF_FAILED(call->UseMemory(stream, Bytes(source), size, false));
    std::memcpy(target, Bytes(source), bytes);
    return 0;
  });
}

int cuMemcpy2DAsync_v2(const DriverCopy2d* copy, void* stream) {
  return Run("cuMemcpy2DAsync_v2", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    if (copy == nullptr) return call->Violation("copy is null");
    const size_t width = copy->width_bytes, height = copy->height;
    const CopySide source = {
        "source",          copy->source_x_bytes, copy->source_y,     copy->source_memory_type,
        copy->source_host, copy->source_device,  copy->source_array, copy->source_pitch};
    const CopySide target = {
        "target",          copy->target_x_bytes, copy->target_y,     copy->target_memory_type,
        copy->target_host, copy->target_device,  copy->target_array, copy->target_pitch};
    const char* from;
    const char* to;
    MOCK_RETURN_IF_FAILED(CheckCopySide(call, source, width, height, &from));
    MOCK_RETURN_IF_FAILED(CheckCopySide(call, target, width, height, &to));
    MOCK_RETURN_IF_FAILED(UseCopySide(call, stream, source, from, width, height, false));
    MOCK_RETURN_IF_FAILED(UseCopySide(call, stream, target, to, width, height, true));
    // Rows may interleave, but no row may overlap its own copy.
    for (size_t row = 0; width > 0 && row < height; ++row) {
      char* const target_row = const_cast<char*>(to) + row * target.pitch;
      const char* const source_row = from + row * source.pitch;
      const int64_t size = static_cast<int64_t>(width);
      if (Overlap(target_row, size, source_row, size)) {
        return call->Violation("source and target overlap");
      }
      std::memcpy(target_row, source_row, width);
    }
    return 0;
  });
}

int cuEventCreate(void** event, unsigned int flags) {
  return Run("cuEventCreate", [&](Call* call) {
    Event created;
    MOCK_RETURN_IF_FAILED(call->NeedContext(&created.device));
    if (event == nullptr) return call->Violation("event is null");
    if (flags > 3) return call->Violation("flags ", flags, " are not known here");
    created.has_time = (flags & 2) == 0;
    *event = call->state().events.Add(created);
    return 0;
  });
}

int cuEventDestroy_v2(void* event) {
  return RunRelease("cuEventDestroy_v2", [&](Call* call) {
    Event* found;
    MOCK_RETURN_IF_FAILED(NeedEvent(call, event, &found));
    call->state().events.Remove(event);
    return 0;
  });
}

int cuEventRecord(void* event, void* stream) {
  return Run("cuEventRecord", [&](Call* call) {
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    Event* found;
    MOCK_RETURN_IF_FAILED(NeedEvent(call, event, &found));
    if (found->device != call->state().CurrentDevice()) {
      return call->Violate("event and stream are of two devices", kDriverInvalidHandle);
    }
    found->is_recorded = true;
    found->is_waited_for = false;
    found->stream = stream;
    found->time_ms = call->state().stream_times_ms[stream];
    found->clock = call->state().order.Record(stream);
    return 0;
  });
}

int cuEventSynchronize(void* event) {
  return Run("cuEventSynchronize", [&](Call* call) {
    Event* found;
    MOCK_RETURN_IF_FAILED(NeedEvent(call, event, &found));
    if (!found->is_recorded) return call->Violation("the event was not recorded");
    MOCK_RETURN_IF_FAILED(call->WaitForDevice());
    call->state().order.HostWaits(found->clock);
    // Work queued earlier on the event's stream is done too.
    for (auto& other : call->state().events.all()) {
      Event& earlier = other.second;
      if (earlier.is_recorded && earlier.stream == found->stream &&
          earlier.time_ms <= found->time_ms) {
        earlier.is_waited_for = true;
      }
    }
    return 0;
  });
}

int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  return Run("cuEventElapsedTime", [&](Call* call) {
    Event* first;
    Event* second;
    MOCK_RETURN_IF_FAILED(NeedEvent(call, start, &first));
    MOCK_RETURN_IF_FAILED(NeedEvent(call, end, &second));
    if (milliseconds == nullptr) return call->Violation("milliseconds is null");
    for (const Event* event : {first, second}) {
      if (!event->has_time || !event->is_recorded) {
        return call->Violate("an event has no time, or was not recorded", kDriverInvalidHandle);
      }
      if (!event->is_waited_for) {
        return call->Violate("nobody has waited for an event", kDriverNotReady);
      }
    }
    *milliseconds = static_cast<float>(second->time_ms - first->time_ms);
    return 0;
  });
}

}  // extern "C"

}  // namespace cudnn_rnn
