// Copies of a call's operands that the caller has not aligned as cuDNN requires.
#ifndef CUDNN_RNN_CC_CUDNN_ALIGNED_COPIES_H_
#define CUDNN_RNN_CC_CUDNN_ALIGNED_COPIES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cudnn_rnn/cc/cudnn/device_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_queue.h"

namespace cudnn_rnn {

// Does nothing for operands that are aligned as the runtime requires, as device memory almost
// always is. The copies exist until the destructor.
class AlignedCopies {
 public:
  AlignedCopies(const GpuQueue& queue, DeviceAllocator* allocator)
      : queue_(queue), allocator_(allocator) {}

  // Replaces `operand`, which is not aligned, by an aligned copy of it.
  template <typename Pointer>
  Status Read(int64_t bytes, Pointer* operand) {
    if (bytes == 0 || IsAligned(*operand)) return Status();
    void* copy = nullptr;
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(bytes, &copy));
    CUDNN_RNN_RETURN_IF_ERROR(queue_.Copy(copy, *operand, bytes));
    *operand = copy;
    return Status();
  }

  // Replaces `operand`, which is not aligned, by aligned memory. Finish copies what the call writes
  // there.
  Status Write(int64_t bytes, void** operand);
  // Must follow the call.
  Status Finish() const;

 private:
  struct Result {
    void* target;
    void* copy;
    int64_t bytes;
  };

  bool IsAligned(const void* operand) const {
    const int64_t alignment = queue_.runtime()->buffer_alignment;
    return reinterpret_cast<uintptr_t>(operand) % static_cast<uintptr_t>(alignment) == 0;
  }
  Status Allocate(int64_t bytes, void** copy);

  const GpuQueue& queue_;
  DeviceAllocator* const allocator_;
  std::vector<std::unique_ptr<DeviceMemory>> memories_;
  std::vector<Result> results_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_ALIGNED_COPIES_H_
