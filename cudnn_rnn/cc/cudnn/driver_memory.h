// Device memory allocated by the CUDA driver, for use without a framework.
#ifndef CUDNN_RNN_CC_CUDNN_DRIVER_MEMORY_H_
#define CUDNN_RNN_CC_CUDNN_DRIVER_MEMORY_H_

#include "cudnn_rnn/cc/cudnn/device_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"

namespace cudnn_rnn {

// Allocates on the stream's device. The driver waits for the device when it frees memory.
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
