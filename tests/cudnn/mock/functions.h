// The mock's functions, for programs that link it statically.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_FUNCTIONS_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_FUNCTIONS_H_

#include "cudnn_rnn/cc/cudnn/cudnn_types.h"
#include "tests/cudnn/mock/mock_cudnn.h"

namespace cudnn_rnn {

extern "C" {
#define CUDNN_RNN_DECLARE(symbol, parameters) MOCK_EXPORT int symbol parameters;
CUDNN_RNN_DRIVER_FUNCTIONS(CUDNN_RNN_DECLARE)
CUDNN_RNN_CUDNN_FUNCTIONS(CUDNN_RNN_DECLARE)
#undef CUDNN_RNN_DECLARE
MOCK_EXPORT size_t cudnnGetVersion();
MOCK_EXPORT const char* cudnnGetErrorString(int status);
}  // extern "C"

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_FUNCTIONS_H_
