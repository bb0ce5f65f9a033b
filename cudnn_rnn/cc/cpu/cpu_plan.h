// RnnPlan on a CPU; cpu/engine_model.h describes the computation.
#ifndef CUDNN_RNN_CC_CPU_CPU_PLAN_H_
#define CUDNN_RNN_CC_CPU_CPU_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

// Creates a plan. `instruction_set` is a name that ChooseKernels accepts, or empty for its default.
// Fails if the processor does not support the instruction set, if the config is invalid, or if the
// buffers' sizes in bytes overflow 64 bits.
// The number of steps and the batch size may be 0: outputs are then empty, states and their
// gradients pass through unchanged and the gradient of the parameters is 0.
Status CreateCpuPlan(const RnnConfig& config, const SequenceShape& shape,
                     const std::string& instruction_set, std::unique_ptr<RnnPlan>* plan);
// With the default instruction set. (A PlanFactory.)
Status CreateCpuPlan(const RnnConfig& config, const SequenceShape& shape,
                     std::unique_ptr<RnnPlan>* plan);
// With given kernels. The elements of buffers are T, whatever the config's data type.
template <typename T>
Status CreateCpuPlan(const RnnConfig& config, const SequenceShape& shape, const Kernels<T>& kernels,
                     std::unique_ptr<RnnPlan>* plan);

// Returns how such a plan computes sequences of full length on the runner's threads, one line per
// decision, in `text`; see schedule.h.
Status ExplainCpuPlan(const RnnConfig& config, const SequenceShape& shape,
                      const std::string& instruction_set, bool is_training,
                      const ParallelRunner& runner, std::string* text);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_CPU_PLAN_H_
