#include "cudnn_rnn/cc/cudnn/aligned_copies.h"

#include <utility>

namespace cudnn_rnn {

Status AlignedCopies::Write(int64_t bytes, void** operand) {
  if (bytes == 0 || IsAligned(*operand)) return Status();
  void* copy = nullptr;
  CUDNN_RNN_RETURN_IF_ERROR(Allocate(bytes, &copy));
  results_.push_back({*operand, copy, bytes});
  *operand = copy;
  return Status();
}

Status AlignedCopies::Finish() const {
  for (const Result& result : results_) {
    CUDNN_RNN_RETURN_IF_ERROR(queue_.Copy(result.target, result.copy, result.bytes));
  }
  return Status();
}

Status AlignedCopies::Allocate(int64_t bytes, void** copy) {
  bool is_capturing;
  CUDNN_RNN_RETURN_IF_ERROR(queue_.IsCapturing(&is_capturing));
  if (is_capturing) {
    return FailedPrecondition(Concatenate(
        "A CUDA graph cannot record this call: the address of a tensor is no multiple of ",
        queue_.runtime()->buffer_alignment,
        " bytes, and its aligned copy lasts only for the call. Allocate params, the workspace and "
        "the reserve space at such addresses."));
  }
  std::unique_ptr<DeviceMemory> memory;
  CUDNN_RNN_RETURN_IF_ERROR(allocator_->Allocate(bytes, MemoryNeed::kRequired, &memory));
  *copy = memory->data();
  memories_.push_back(std::move(memory));
  return Status();
}

}  // namespace cudnn_rnn
