// The CPU plans of one planner's last calls.
#ifndef CUDNN_RNN_CC_ENGINE_CPU_PLANS_H_
#define CUDNN_RNN_CC_ENGINE_CPU_PLANS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cudnn_rnn/cc/core/environment.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cpu/instruction_set.h"

namespace cudnn_rnn {

// Plans hold no buffers and serve any number of calls at once.
class CpuPlans {
 public:
  Status Find(const RnnConfig& config, const SequenceShape& shape,
              std::shared_ptr<const RnnPlan>* plan);

  const std::string& instruction_set() const { return instruction_set_; }
  // Returns the error; if the instruction set caused it, with the variable that names it.
  Status Explained(const Status& error, FactorFormat factors) const;

 private:
  // The config, the number of steps, the batch size and the order of the axes.
  using Key = std::pair<ConfigKey, std::array<int64_t, 3>>;
  struct Entry {
    Key key;
    std::shared_ptr<const RnnPlan> plan;  // null in unused entries
  };

  const std::string instruction_set_ = ReadEnvironment(kInstructionSetVariable);
  std::mutex mutex_;
  std::array<Entry, 4> entries_;
  size_t next_entry_ = 0;  // the oldest entry, once all are used
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_ENGINE_CPU_PLANS_H_
