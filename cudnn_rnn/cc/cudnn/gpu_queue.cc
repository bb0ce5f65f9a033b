#include "cudnn_rnn/cc/cudnn/gpu_queue.h"

#include <algorithm>
#include <limits>

namespace cudnn_rnn {
namespace {

// The largest CU_DEVICE_ATTRIBUTE_MAX_PITCH of any device; pitched copies refuse larger ones.
constexpr int64_t kMaxPitch = std::numeric_limits<int>::max();

}  // namespace

GpuQueue::~GpuQueue() {
  if (context_pushed_) {
    void* context;
    libraries().cuCtxPopCurrent_v2(&context);
  }
}

Status GpuQueue::Begin() {
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(*this, cuStreamGetCtx, stream_, &context_));
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(*this, cuCtxPushCurrent_v2, context_));
  context_pushed_ = true;
  return Status();
}

Status GpuQueue::BorrowHandle() {
  StreamHandle* const shared = runtime_->handles.Find(context_, stream_);
  std::unique_lock<std::recursive_mutex> lock(shared->mutex);
  if (shared->handle == nullptr) CUDNN_RNN_RETURN_IF_ERROR(CreateHandle(&shared->handle));
  handle_ = shared->handle;
  handle_lock_ = std::move(lock);
  return Status();
}

void GpuQueue::ReturnHandle() {
  handle_ = nullptr;
  handle_lock_ = std::unique_lock<std::recursive_mutex>();
}

Status GpuQueue::CreateHandle(void** handle) const {
  CUDNN_RNN_RETURN_IF_ERROR(CheckNotCapturing("creating a cuDNN handle"));
  void* created = nullptr;
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(*this, cudnnCreate, &created));
  const Status set = CUDNN_RNN_CUDNN_CALL(*this, cudnnSetStream, created, stream_);
  if (set.ok()) {
    *handle = created;
  } else {
    libraries().cudnnDestroy(created);
  }
  return set;
}

Status GpuQueue::IsCapturing(bool* is_capturing) const {
  int capture = kCudaStreamNotCapturing;
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(*this, cuStreamIsCapturing, stream_, &capture));
  *is_capturing = capture != kCudaStreamNotCapturing;
  return Status();
}

Status GpuQueue::CheckNotCapturing(const char* action) const {
  bool is_capturing;
  CUDNN_RNN_RETURN_IF_ERROR(IsCapturing(&is_capturing));
  if (!is_capturing) return Status();
  return FailedPrecondition(
      Concatenate("The stream records a CUDA graph, in which ", action, " is not possible (while ",
                  what_, "). Run the same call once on this stream before recording the graph."));
}

Status GpuQueue::Copy(void* target, const void* source, int64_t bytes) const {
  if (bytes == 0) return Status();
  return CUDNN_RNN_DRIVER_CALL(*this, cuMemcpyDtoDAsync_v2, AddressOf(target), AddressOf(source),
                               static_cast<size_t>(bytes), stream_);
}

Status GpuQueue::Copy2d(void* target, const void* source, const Copy2dShape& shape) const {
  if (shape.width == 0 || shape.height == 0) return Status();
  if (std::max(shape.source_pitch, shape.target_pitch) > kMaxPitch) {
    for (int64_t row = 0; row < shape.height; ++row) {
      CUDNN_RNN_RETURN_IF_ERROR(Copy(static_cast<char*>(target) + row * shape.target_pitch,
                                     static_cast<const char*>(source) + row * shape.source_pitch,
                                     shape.width));
    }
    return Status();
  }
  DriverCopy2d copy = DriverCopy2d();
  copy.source_memory_type = kCudaMemoryTypeDevice;
  copy.source_device = AddressOf(source);
  copy.source_pitch = static_cast<size_t>(shape.source_pitch);
  copy.target_memory_type = kCudaMemoryTypeDevice;
  copy.target_device = AddressOf(target);
  copy.target_pitch = static_cast<size_t>(shape.target_pitch);
  copy.width_bytes = static_cast<size_t>(shape.width);
  copy.height = static_cast<size_t>(shape.height);
  return CUDNN_RNN_DRIVER_CALL(*this, cuMemcpy2DAsync_v2, &copy, stream_);
}

Status GpuQueue::CopyFromHost(void* target, const void* source, int64_t bytes) const {
  if (bytes == 0) return Status();
  return CUDNN_RNN_DRIVER_CALL(*this, cuMemcpyHtoDAsync_v2, AddressOf(target), source,
                               static_cast<size_t>(bytes), stream_);
}

Status GpuQueue::Clear(void* target, int64_t bytes) const {
  if (bytes == 0) return Status();
  return CUDNN_RNN_DRIVER_CALL(*this, cuMemsetD8Async, AddressOf(target), 0,
                               static_cast<size_t>(bytes), stream_);
}

}  // namespace cudnn_rnn
