// In its own file, so that a build with another version recompiles only this file.

#include "tests/cudnn/mock/state.h"

#ifndef CUDNN_RNN_MOCK_DEFAULT_VERSION
#define CUDNN_RNN_MOCK_DEFAULT_VERSION 91300
#endif

namespace cudnn_rnn {
namespace mock {

const int64_t kBuiltVersion = CUDNN_RNN_MOCK_DEFAULT_VERSION;

}  // namespace mock
}  // namespace cudnn_rnn
