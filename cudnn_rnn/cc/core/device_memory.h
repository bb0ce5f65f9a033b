// Memory of a device, from whoever manages it: a framework's allocator or the driver.
#ifndef CUDNN_RNN_CC_CORE_DEVICE_MEMORY_H_
#define CUDNN_RNN_CC_CORE_DEVICE_MEMORY_H_

#include <cstdint>
#include <memory>

#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// Freed with the object, after the work queued so far on the allocator's stream.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* data() = 0;
};

enum class MemoryNeed {
  kRequired,
  // Its lack is no failure: nobody should wait for it, or complain.
  kOptional,
};

class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  // Aligned to 256 bytes. Fails with kResourceExhausted where there is not enough.
  virtual Status Allocate(int64_t bytes, MemoryNeed need,
                          std::unique_ptr<DeviceMemory>* memory) = 0;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_DEVICE_MEMORY_H_
