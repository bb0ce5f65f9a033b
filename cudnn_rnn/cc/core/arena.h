// An allocator of aligned pieces of one memory block.
#ifndef CUDNN_RNN_CC_CORE_ARENA_H_
#define CUDNN_RNN_CC_CORE_ARENA_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/checked_math.h"

namespace cudnn_rnn {

// Takes aligned pieces of one memory block. With a null block, only adds up their sizes.
class Arena {
 public:
  explicit Arena(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <typename T>
  T* Take(CheckedSize num_elements) {
    constexpr int64_t kAlignment = 64;
    char* piece = memory_ == nullptr ? nullptr : memory_ + used_.value();
    const CheckedSize bytes = num_elements * static_cast<int64_t>(sizeof(T)) + (kAlignment - 1);
    used_ = used_ + (bytes.overflowed() ? bytes : bytes.value() / kAlignment * kAlignment);
    return reinterpret_cast<T*>(piece);
  }

  CheckedSize used() const { return used_; }

 private:
  char* memory_;
  CheckedSize used_ = 0;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_ARENA_H_
