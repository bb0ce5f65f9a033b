// Check that cuDNN computes right values in bfloat16. Its statuses do not tell: a cuDNN that
// accepts the data type may compute wrong values on some GPUs.
#ifndef CUDNN_RNN_CC_CUDNN_BFLOAT16_CHECK_H_
#define CUDNN_RNN_CC_CUDNN_BFLOAT16_CHECK_H_

#include <string>

#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cudnn/algorithm_trial.h"

namespace cudnn_rnn {

// Runs a small model of the trial's mode, in training also its gradient, once for each device, and
// compares the results with those in float of a plan of `create_host_plan` on the same random data.
// Waits for the device. Fails with kUnimplemented if they differ.
Status CheckBfloat16(const Trial& trial, void* context, PlanFactory create_host_plan);

// The largest error in the results of cuDNN, in units of the largest error that the check accepts,
// and where it is.
struct Bfloat16Error {
  float size = 0;
  std::string place;  // "returned 0.5 in the output, element 7; expected 1"
};

// Runs both plans, without CheckBfloat16's memory of results.
Status MeasureBfloat16(const Trial& trial, PlanFactory create_host_plan, Bfloat16Error* error);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_BFLOAT16_CHECK_H_
