// The process's precision of float models; see Precision (core/rnn_config.h).
#ifndef CUDNN_RNN_CC_ENGINE_PRECISION_H_
#define CUDNN_RNN_CC_ENGINE_PRECISION_H_

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// The precision of models whose config names none.
struct PrecisionChoice {
  Precision precision = Precision::kDefault;
  // For the user, after "medium, ". Lasts as long as the process: every call of an op makes a
  // choice, so none allocates.
  const char* reason = "";
  // Whether the choice is for products on a CPU alone.
  bool is_for_cpu = false;
};

// Chooses the precision that SetPrecision set last. If none is set, reads an environment variable,
// once per process: ours, or the one that TensorFlow has for its own products. Fails if the value
// of ours is wrong.
Status ChoosePrecision(PrecisionChoice* choice);

// Sets the process's precision for calls that start later. kDefault restores that of the
// environment.
void SetPrecision(Precision precision);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_ENGINE_PRECISION_H_
