// Device memory, allocated by a framework or by the driver.
#ifndef CUDNN_RNN_CC_CUDNN_DEVICE_MEMORY_H_
#define CUDNN_RNN_CC_CUDNN_DEVICE_MEMORY_H_

#include <cstdint>
#include <memory>

#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// Memory that the destructor frees, after the work queued so far on the allocator's stream.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* data() = 0;
};

enum class MemoryNeed {
  kRequired,
  // The caller can do without: the allocator neither waits for memory nor logs a warning.
  kOptional,
};

// Of device memory from the driver. cuDNN's matrix products (cuBLASLt) assume it by default.
// Frameworks may align less strictly: TensorFlow guarantees 64 bytes.
constexpr int64_t kDeviceAlignment = 256;

// Returns the first aligned address from `data` on.
inline void* AlignUp(void* data) {
  const uintptr_t end = reinterpret_cast<uintptr_t>(data) + kDeviceAlignment - 1;
  return reinterpret_cast<void*>(end / kDeviceAlignment * kDeviceAlignment);
}

class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  // Allocates memory aligned to kDeviceAlignment. Fails with kResourceExhausted if there is not
  // enough.
  virtual Status Allocate(int64_t bytes, MemoryNeed need,
                          std::unique_ptr<DeviceMemory>* memory) = 0;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_DEVICE_MEMORY_H_
