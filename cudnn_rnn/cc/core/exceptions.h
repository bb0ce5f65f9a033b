// Converts exceptions to Status: neither a framework's kernels nor a C API may see an exception.
#ifndef CUDNN_RNN_CC_CORE_EXCEPTIONS_H_
#define CUDNN_RNN_CC_CORE_EXCEPTIONS_H_

#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// The message for a Status of kResourceExhausted whose own text is empty for lack of memory.
extern const char kOutOfHostMemoryText[];

// Converts the current exception into a Status; std::bad_alloc and
// std::length_error become kResourceExhausted.
Status StatusOfCurrentException() noexcept;

// Returns the Status that `function` returns, or the Status of the exception that it throws.
template <typename Function>
Status CatchExceptions(const Function& function) noexcept {
  try {
    return function();
  } catch (...) {
    return StatusOfCurrentException();
  }
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_EXCEPTIONS_H_
