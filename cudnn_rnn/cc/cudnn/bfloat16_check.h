// Check that cuDNN computes right values in bfloat16. Its statuses do not tell: a cuDNN that
// accepts the data type may compute wrong values on some GPUs.
#ifndef CUDNN_RNN_CC_CUDNN_BFLOAT16_CHECK_H_
#define CUDNN_RNN_CC_CUDNN_BFLOAT16_CHECK_H_

#include "cudnn_rnn/cc/cudnn/algorithm_trial.h"

namespace cudnn_rnn {

// Runs a small model of the trial's mode, in training also its gradient, once for each device, and
// compares the results with those of exact arithmetic. Waits for the device. Fails with
// kUnimplemented if they differ.
Status CheckBfloat16(const Trial& trial, void* context);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_BFLOAT16_CHECK_H_
