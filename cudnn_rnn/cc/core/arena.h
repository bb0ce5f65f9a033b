// An allocator of aligned pieces of one memory block.
#ifndef CUDNN_RNN_CC_CORE_ARENA_H_
#define CUDNN_RNN_CC_CORE_ARENA_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/checked_math.h"

namespace cudnn_rnn {

// Takes pieces of one memory block, aligned like the block to a power of two. With a null block,
// only adds up their sizes.
class Arena {
 public:
  explicit Arena(void* memory, int64_t alignment = 64)
      : memory_(static_cast<char*>(memory)), alignment_(alignment) {}

  template <typename T>
  T* Take(CheckedSize num_elements) {
    char* piece = memory_ == nullptr ? nullptr : memory_ + used_.value();
    const CheckedSize bytes = num_elements * static_cast<int64_t>(sizeof(T)) + (alignment_ - 1);
    used_ = used_ + (bytes.overflowed() ? bytes : bytes.value() & -alignment_);
    return reinterpret_cast<T*>(piece);
  }

  CheckedSize used() const { return used_; }

 private:
  char* memory_;
  int64_t alignment_;
  CheckedSize used_ = 0;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_ARENA_H_
