#include "cudnn_rnn/cc/cudnn/dropout_state.h"

namespace cudnn_rnn {

// cuDNN takes one seed, so both are combined; (seed, 0) gives `seed` itself.
DropoutState::DropoutState(const RnnConfig& config)
    : dropout_(config.dropout),
      seed_(static_cast<uint64_t>(config.seed) ^
            static_cast<uint64_t>(config.seed2) * 0x9e3779b97f4a7c15ull) {}

Status DropoutState::Create(const GpuQueue& queue, const RnnConfig& config, MemoryNeed need,
                            DeviceAllocator* allocator, std::shared_ptr<DropoutState>* state) {
  std::shared_ptr<DropoutState> created(new DropoutState(config));
  CUDNN_RNN_RETURN_IF_ERROR(
      CUDNN_RNN_CUDNN_CALL(queue, cudnnDropoutGetStatesSize, queue.handle(), &created->bytes_));
  const int64_t bytes = static_cast<int64_t>(created->bytes_);
  CUDNN_RNN_RETURN_IF_ERROR(allocator->Allocate(bytes, need, &created->states_));
  CUDNN_RNN_RETURN_IF_ERROR(allocator->Allocate(bytes, need, &created->initial_states_));
  DropoutDescriptor descriptor;
  CUDNN_RNN_RETURN_IF_ERROR(descriptor.Create(queue, "cudnnCreateDropoutDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(
      queue, cudnnSetDropoutDescriptor, descriptor.get(), queue.handle(), created->dropout_,
      created->states_->data(), created->bytes_, created->seed_));
  CUDNN_RNN_RETURN_IF_ERROR(
      queue.Copy(created->initial_states_->data(), created->states_->data(), bytes));
  *state = std::move(created);
  return Status();
}

Status DropoutState::Attach(const GpuQueue& queue, DropoutDescriptor* descriptor) const {
  return CUDNN_RNN_CUDNN_CALL(queue, cudnnRestoreDropoutDescriptor, descriptor->get(),
                              queue.handle(), dropout_, states_->data(), bytes_, seed_);
}

Status DropoutState::BeginCall(const GpuQueue& queue, bool restarts,
                               std::unique_lock<std::mutex>* lock) {
  *lock = std::unique_lock<std::mutex>(mutex_);
  if (restarts && is_used_) {
    CUDNN_RNN_RETURN_IF_ERROR(
        queue.Copy(states_->data(), initial_states_->data(), static_cast<int64_t>(bytes_)));
  }
  is_used_ = true;
  return Status();
}

}  // namespace cudnn_rnn
