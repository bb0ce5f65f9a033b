// Device memory allocated by the CUDA driver, for use without a framework.
#ifndef CUDNN_RNN_CC_CUDNN_DRIVER_MEMORY_H_
#define CUDNN_RNN_CC_CUDNN_DRIVER_MEMORY_H_

#include "cudnn_rnn/cc/cudnn/device_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_queue.h"

namespace cudnn_rnn {

class DriverMemory : public DeviceMemory {
 public:
  DriverMemory(const GpuLibraries* libraries, void* context)
      : libraries_(libraries), context_(context) {}
  ~DriverMemory() override {
    if (address_ == 0) return;
    const ContextForRelease context(*libraries_, context_);
    if (context.is_current()) libraries_->cuMemFree_v2(address_);
  }

  DeviceAddress* address() { return &address_; }
  void* data() override { return reinterpret_cast<void*>(static_cast<uintptr_t>(address_)); }

 private:
  const GpuLibraries* const libraries_;
  void* const context_;
  DeviceAddress address_ = 0;
};

// Allocates on the stream's device. The driver waits for the device when it frees memory.
class DriverAllocator : public DeviceAllocator {
 public:
  DriverAllocator(GpuRuntime* runtime, void* stream) : runtime_(runtime), stream_(stream) {}

  Status Allocate(int64_t bytes, MemoryNeed, std::unique_ptr<DeviceMemory>* memory) override {
    GpuQueue queue(runtime_, stream_, Concatenate("allocating ", bytes, " bytes"));
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    std::unique_ptr<DriverMemory> allocated(
        new DriverMemory(runtime_->libraries.get(), queue.context()));
    CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(queue, cuMemAlloc_v2, allocated->address(),
                                                    static_cast<size_t>(bytes)));
    *memory = std::move(allocated);
    return Status();
  }

 private:
  GpuRuntime* const runtime_;
  void* const stream_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_DRIVER_MEMORY_H_
