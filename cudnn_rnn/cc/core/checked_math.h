// Overflow-checked 64-bit arithmetic for sizes, which come from users' graphs.
#ifndef CUDNN_RNN_CC_CORE_CHECKED_MATH_H_
#define CUDNN_RNN_CC_CORE_CHECKED_MATH_H_

#include <cstdint>
#include <limits>

namespace cudnn_rnn {

// A non-negative 64-bit number that remembers whether it ever overflowed.
class CheckedSize {
 public:
  CheckedSize(int64_t value) : value_(value) {}  // NOLINT: implicit on purpose

  bool overflowed() const { return overflowed_; }
  // Meaningful only if overflowed() is false.
  int64_t value() const { return value_; }

  friend CheckedSize operator*(CheckedSize a, CheckedSize b) {
    CheckedSize result(0);
    result.overflowed_ = a.overflowed_ || b.overflowed_;
    if (a.value_ != 0 && b.value_ > std::numeric_limits<int64_t>::max() / a.value_) {
      result.overflowed_ = true;
    } else {
      result.value_ = a.value_ * b.value_;
    }
    return result;
  }

  friend CheckedSize operator+(CheckedSize a, CheckedSize b) {
    CheckedSize result(0);
    result.overflowed_ = a.overflowed_ || b.overflowed_;
    if (b.value_ > std::numeric_limits<int64_t>::max() - a.value_) {
      result.overflowed_ = true;
    } else {
      result.value_ = a.value_ + b.value_;
    }
    return result;
  }

  friend CheckedSize operator/(CheckedSize a, int64_t divisor) {
    a.value_ /= divisor;
    return a;
  }

  // A size that overflowed is larger than any that did not.
  friend bool operator<(CheckedSize a, CheckedSize b) {
    return !a.overflowed_ && (b.overflowed_ || a.value_ < b.value_);
  }

 private:
  int64_t value_;
  bool overflowed_ = false;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_CHECKED_MATH_H_
