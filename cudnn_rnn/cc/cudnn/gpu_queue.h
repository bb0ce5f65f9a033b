// The work of one call on a CUDA stream. From Begin() to the destructor, the stream's context is
// current on this thread.
#ifndef CUDNN_RNN_CC_CUDNN_GPU_QUEUE_H_
#define CUDNN_RNN_CC_CUDNN_GPU_QUEUE_H_

#include <cstdint>
#include <mutex>
#include <string>

#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"

namespace cudnn_rnn {

// Calls a library function. An error names the function and the queue's activity.
#define CUDNN_RNN_DRIVER_CALL(queue, function, ...) \
  (queue).CheckDriverStatus((queue).libraries().function(__VA_ARGS__), #function)
#define CUDNN_RNN_CUDNN_CALL(queue, function, ...) \
  (queue).CheckCudnnStatus((queue).libraries().function(__VA_ARGS__), #function)

// A pitched copy of `height` rows of `width` bytes; row starts are `pitch` bytes apart.
struct Copy2dShape {
  int64_t width;
  int64_t height;
  int64_t source_pitch;
  int64_t target_pitch;
};

class GpuQueue {
 public:
  // `what` names the activity for error messages: "running ...".
  GpuQueue(GpuRuntime* runtime, void* stream, std::string what)
      : runtime_(runtime), stream_(stream), what_(std::move(what)) {}
  ~GpuQueue();
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;

  // Must be called first.
  Status Begin();
  // Must precede calls of cuDNN that need handle(). The queue holds the stream's handle until
  // ReturnHandle or the destructor; other threads wait for it. Creates the handle if the stream has
  // none yet; only that may wait for the device.
  //
  // A thread that holds a handle must not wait for another thread that may need it: not for a mutex
  // of CudnnPlanCache, AlgorithmCache or Bfloat16Results, not for another stream's handle, and not
  // for memory (MemoryNeed::kRequired).
  Status BorrowHandle();
  void ReturnHandle();
  // Sets `is_capturing` to whether the stream records a CUDA graph.
  Status IsCapturing(bool* is_capturing) const;
  // Fails while the stream records a CUDA graph, in which `action` is not possible.
  Status CheckNotCapturing(const char* action) const;

  const GpuLibraries& libraries() const { return *runtime_->libraries; }
  GpuRuntime* runtime() const { return runtime_; }
  void* stream() const { return stream_; }
  void* context() const { return context_; }
  void* handle() const { return handle_; }

  Status CheckDriverStatus(int status, const char* function) const {
    return CheckDriver(libraries(), status, function, what_);
  }
  Status CheckCudnnStatus(int status, const char* function) const {
    return CheckCudnn(libraries(), status, function, what_);
  }

  // Queue work on the stream; do nothing for 0 bytes.
  Status Copy(void* target, const void* source, int64_t bytes) const;
  Status Copy2d(void* target, const void* source, const Copy2dShape& shape) const;
  // `source` is read before the call returns.
  Status CopyFromHost(void* target, const void* source, int64_t bytes) const;
  Status Clear(void* target, int64_t bytes) const;

 private:
  Status CreateHandle(void** handle) const;

  GpuRuntime* const runtime_;
  void* const stream_;
  const std::string what_;
  void* context_ = nullptr;
  void* handle_ = nullptr;
  std::unique_lock<std::recursive_mutex> handle_lock_;
  bool context_pushed_ = false;
};

inline DeviceAddress AddressOf(const void* pointer) {
  return static_cast<DeviceAddress>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_GPU_QUEUE_H_
