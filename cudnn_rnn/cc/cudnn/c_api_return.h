// Conversion of a Status to the return value of a C API function.
#ifndef CUDNN_RNN_CC_CUDNN_C_API_RETURN_H_
#define CUDNN_RNN_CC_CUDNN_C_API_RETURN_H_

#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// Stores the message for cudnn_rnn_last_error and returns the code.
int KeepLastError(const Status& status) noexcept;

// Calls `function`, which returns a Status, and returns the code. An exception becomes an error.
template <typename Function>
int ReturnFromC(const Function& function) noexcept {
  return KeepLastError(CatchExceptions(function));
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_C_API_RETURN_H_
