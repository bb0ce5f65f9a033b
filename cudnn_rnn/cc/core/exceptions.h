// Exceptions end where the core ends: neither a framework's kernels nor a C API may see one.
#ifndef CUDNN_RNN_CC_CORE_EXCEPTIONS_H_
#define CUDNN_RNN_CC_CORE_EXCEPTIONS_H_

#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// Describes a Status of kResourceExhausted whose own text is empty, for lack of memory.
extern const char kOutOfHostMemoryText[];

// Turns the exception that is being handled into a Status; std::bad_alloc is kResourceExhausted.
Status StatusOfCurrentException() noexcept;

// Returns what `function` returns, a Status, or the Status of what it throws.
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
