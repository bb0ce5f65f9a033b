// Device memory straight from the driver, where there is no framework.
#ifndef CUDNN_RNN_CC_CUDNN_DRIVER_MEMORY_H_
#define CUDNN_RNN_CC_CUDNN_DRIVER_MEMORY_H_

#include "cudnn_rnn/cc/core/device_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"

namespace cudnn_rnn {

// On the stream's device. The driver waits for the device where it frees.
class DriverAllocator : public DeviceAllocator {
 public:
  DriverAllocator(GpuRuntime* runtime, void* stream) : runtime_(runtime), stream_(stream) {}
  Status Allocate(int64_t bytes, MemoryNeed need, std::unique_ptr<DeviceMemory>* memory) override;

 private:
  GpuRuntime* const runtime_;
  void* const stream_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_DRIVER_MEMORY_H_
