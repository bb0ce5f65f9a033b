// RnnPlan on a CPU. cpu/engine.h says how it computes.
#ifndef CUDNN_RNN_CC_CPU_CPU_PLAN_H_
#define CUDNN_RNN_CC_CPU_CPU_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// `instruction_set` is portable, avx2 or avx512, or empty for the best that the processor runs.
// Fails on one that it does not, on an invalid config and on buffers larger than 64 bits can count.
// The number of steps and the batch size may be 0: outputs are then empty, states and their
// gradients pass through unchanged and the gradient of the parameters is 0.
Status CreateCpuPlan(const RnnConfig& config, const SequenceShape& shape,
                     const std::string& instruction_set, std::unique_ptr<RnnPlan>* plan);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_CPU_PLAN_H_
