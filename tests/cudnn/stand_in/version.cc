// In its own file, so that a build with another version recompiles only this file.

#include "tests/cudnn/stand_in/state.h"

#ifndef CUDNN_RNN_STAND_IN_DEFAULT_VERSION
#define CUDNN_RNN_STAND_IN_DEFAULT_VERSION 90300
#endif

namespace cudnn_rnn {
namespace stand_in {

const int64_t kBuiltVersion = CUDNN_RNN_STAND_IN_DEFAULT_VERSION;

}  // namespace stand_in
}  // namespace cudnn_rnn
