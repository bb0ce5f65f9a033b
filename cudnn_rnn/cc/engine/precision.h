// The process's precision of float models; see Precision (core/rnn_config.h).
#ifndef CUDNN_RNN_CC_ENGINE_PRECISION_H_
#define CUDNN_RNN_CC_ENGINE_PRECISION_H_

#include <string>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// What models have whose config names no precision.
struct PrecisionChoice {
  Precision precision = Precision::kDefault;
  std::string reason;  // for the user, after "medium: "
};

// Chooses what SetPrecision set last; otherwise what an environment variable says, as it was when
// this function was first called: ours, or TensorFlow's for its own products. Fails if the value of
// ours is wrong.
Status ChoosePrecision(PrecisionChoice* choice);

// Sets the process's precision, for calls that start later. kDefault: what the environment says.
void SetPrecision(Precision precision);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_ENGINE_PRECISION_H_
