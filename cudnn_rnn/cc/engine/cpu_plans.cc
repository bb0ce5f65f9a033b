#include "cudnn_rnn/cc/engine/cpu_plans.h"

#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

Status CpuPlans::Find(const RnnConfig& config, const SequenceShape& shape,
                      std::shared_ptr<const RnnPlan>* plan) {
  const Key key = {KeyOf(config), {{shape.num_steps, shape.batch_size, shape.time_major}}};
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.plan == nullptr || entry.key != key) continue;
    *plan = entry.plan;
    return Status();
  }
  std::unique_ptr<RnnPlan> created;
  const Status status = CreateCpuPlan(config, shape, instruction_set_, &created);
  if (!status.ok()) return Explained(status, FactorFormatOf(config.data_type, config.precision));
  *plan = std::move(created);
  entries_[next_entry_] = {key, *plan};
  next_entry_ = (next_entry_ + 1) % entries_.size();
  return Status();
}

Status CpuPlans::Explained(const Status& error, FactorFormat factors) const {
  const Kernels<float>* kernels;
  const Status supported = ChooseKernels<float>(instruction_set_, factors, &kernels);
  if (supported.ok()) return error;
  return InvalidArgument("The environment variable ", kInstructionSetVariable, " is '",
                         instruction_set_, "'. ", supported.message());
}

}  // namespace cudnn_rnn
