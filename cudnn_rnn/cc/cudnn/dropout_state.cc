#include "cudnn_rnn/cc/cudnn/dropout_state.h"

namespace cudnn_rnn {

DropoutState::DropoutState(const GpuQueue& queue, const RnnConfig& config)
    : libraries_(queue.libraries()),
      context_(queue.context()),
      creation_stream_(queue.stream()),
      dropout_(config.dropout),
      seed_((static_cast<uint64_t>(config.seed) << 32) | static_cast<uint64_t>(config.seed2)),
      last_stream_(queue.stream()) {}

DropoutState::~DropoutState() {
  if (last_use_ == nullptr) return;
  const ContextForRelease context(libraries_, context_);
  if (!context.is_current()) return;
  // The memory returns to the allocator of the stream that this state was created on.
  if (last_stream_ != creation_stream_ && !last_is_captured_) {
    libraries_.cuEventSynchronize(last_use_);
  }
  libraries_.cuEventDestroy_v2(last_use_);
}

Status DropoutState::Create(GpuQueue* queue, const RnnConfig& config, MemoryNeed need,
                            DeviceAllocator* allocator, std::shared_ptr<DropoutState>* state) {
  std::shared_ptr<DropoutState> created(new DropoutState(*queue, config));
  CUDNN_RNN_RETURN_IF_ERROR(created->Allocate(queue, need, allocator));
  CUDNN_RNN_RETURN_IF_ERROR(queue->BorrowHandle());
  CUDNN_RNN_RETURN_IF_ERROR(created->Initialize(*queue));
  *state = std::move(created);
  return Status();
}

Status DropoutState::Allocate(GpuQueue* queue, MemoryNeed need, DeviceAllocator* allocator) {
  CUDNN_RNN_RETURN_IF_ERROR(queue->BorrowHandle());
  CUDNN_RNN_RETURN_IF_ERROR(
      CUDNN_RNN_CUDNN_CALL(*queue, cudnnDropoutGetStatesSize, queue->handle(), &bytes_));
  queue->ReturnHandle();
  const int64_t bytes = static_cast<int64_t>(bytes_);
  CUDNN_RNN_RETURN_IF_ERROR(allocator->Allocate(bytes, need, &states_));
  return allocator->Allocate(bytes, need, &initial_states_);
}

Status DropoutState::Initialize(const GpuQueue& queue) {
  CUDNN_RNN_RETURN_IF_ERROR(
      CUDNN_RNN_DRIVER_CALL(queue, cuEventCreate, &last_use_, kCudaEventWithoutTime));
  DropoutDescriptor descriptor;
  CUDNN_RNN_RETURN_IF_ERROR(descriptor.Create(queue, "cudnnCreateDropoutDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(queue, cudnnSetDropoutDescriptor, descriptor.get(),
                                                 queue.handle(), dropout_, states_->data(), bytes_,
                                                 seed_));
  CUDNN_RNN_RETURN_IF_ERROR(
      queue.Copy(initial_states_->data(), states_->data(), static_cast<int64_t>(bytes_)));
  return EndCall(queue);
}

Status DropoutState::Attach(const GpuQueue& queue, DropoutDescriptor* descriptor) const {
  return CUDNN_RNN_CUDNN_CALL(queue, cudnnRestoreDropoutDescriptor, descriptor->get(),
                              queue.handle(), dropout_, states_->data(), bytes_, seed_);
}

Status DropoutState::BeginCall(const GpuQueue& queue, bool restarts,
                               std::unique_lock<std::mutex>* lock) {
  *lock = std::unique_lock<std::mutex>(mutex_);
  bool is_captured;
  CUDNN_RNN_RETURN_IF_ERROR(queue.IsCapturing(&is_captured));
  if (queue.stream() != last_stream_) {
    if (is_captured || last_is_captured_) {
      return FailedPrecondition(
          "The dropout pattern of this op continues that of its last call, which was on another "
          "stream. While a stream records a CUDA graph, it cannot wait for another stream's call, "
          "nor another stream for the recorded one. Run the calls of this op before the recording, "
          "the recording, and the calls after it on the same stream.");
    }
    CUDNN_RNN_RETURN_IF_ERROR(
        CUDNN_RNN_DRIVER_CALL(queue, cuStreamWaitEvent, queue.stream(), last_use_, 0));
  }
  if (restarts && is_used_) {
    CUDNN_RNN_RETURN_IF_ERROR(
        queue.Copy(states_->data(), initial_states_->data(), static_cast<int64_t>(bytes_)));
  }
  is_used_ = true;
  last_is_captured_ = is_captured;
  return Status();
}

Status DropoutState::EndCall(const GpuQueue& queue) {
  last_stream_ = queue.stream();
  if (last_is_captured_) return Status();
  return CUDNN_RNN_DRIVER_CALL(queue, cuEventRecord, last_use_, queue.stream());
}

}  // namespace cudnn_rnn
