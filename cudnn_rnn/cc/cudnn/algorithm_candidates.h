// The algorithms that Algorithm::kAuto may choose.
#ifndef CUDNN_RNN_CC_CUDNN_ALGORITHM_CANDIDATES_H_
#define CUDNN_RNN_CC_CUDNN_ALGORITHM_CANDIDATES_H_

#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cudnn/algorithm.h"
#include "cudnn_rnn/cc/cudnn/device_model.h"

namespace cudnn_rnn {

// A call that an algorithm might run. None of its sequences has padding.
struct CandidateCall {
  const DeviceModel& device;
  const RnnConfig& config;
  const SequenceShape& shape;
  bool is_training;
};

// Returns why kAuto does not even try the algorithm, or null if it does. A trial cannot replace
// these rules: a kernel that hangs, or that corrupts the CUDA context, ends the program.
const char* WhyNotTried(Algorithm algorithm, const CandidateCall& call);

// Returns the algorithms besides kStandard that kAuto tries.
std::vector<Algorithm> AlgorithmsToTry(const CandidateCall& call);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_ALGORITHM_CANDIDATES_H_
