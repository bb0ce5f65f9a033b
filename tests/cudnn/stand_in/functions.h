// The mock's functions, for programs that link it statically.
#ifndef CUDNN_RNN_TESTS_CUDNN_STAND_IN_FUNCTIONS_H_
#define CUDNN_RNN_TESTS_CUDNN_STAND_IN_FUNCTIONS_H_

#include "cudnn_rnn/cc/cudnn/cudnn_types.h"
#include "tests/cudnn/stand_in/stand_in.h"

namespace cudnn_rnn {

extern "C" {
#define CUDNN_RNN_DECLARE(symbol, parameters) STAND_IN_EXPORT int symbol parameters;
CUDNN_RNN_DRIVER_FUNCTIONS(CUDNN_RNN_DECLARE)
CUDNN_RNN_CUDNN_FUNCTIONS(CUDNN_RNN_DECLARE)
#undef CUDNN_RNN_DECLARE
STAND_IN_EXPORT size_t cudnnGetVersion();
STAND_IN_EXPORT const char* cudnnGetErrorString(int status);
}  // extern "C"

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_STAND_IN_FUNCTIONS_H_
