// The backend of CPU kernels: plans of cc/cpu on threads of TensorFlow's pool. Registers the CPU
// kernels when the library is loaded: TensorFlow has none of its own.

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/tf/adapter.h"
#include "cudnn_rnn/cc/tf/device_backend.h"
#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

// The plans of one kernel's last calls. Plans hold no buffers and serve any number of calls at
// once.
class CpuPlans {
 public:
  // The order of the axes is the same in all calls.
  Status Find(const RnnConfig& config, const SequenceShape& shape,
              std::shared_ptr<const RnnPlan>* plan) {
    const Key key = {KeyOf(config), {{shape.num_steps, shape.batch_size}}};
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.plan == nullptr || entry.key != key) continue;
      *plan = entry.plan;
      return Status();
    }
    std::unique_ptr<RnnPlan> created;
    const Status status = CreateCpuPlan(config, shape, instruction_set_, &created);
    if (!status.ok()) return Explained(status, config.data_type);
    *plan = std::move(created);
    entries_[next_entry_] = {key, *plan};
    next_entry_ = (next_entry_ + 1) % entries_.size();
    return Status();
  }

 private:
  using Key = std::pair<ConfigKey, std::array<int64_t, 2>>;
  struct Entry {
    Key key;
    std::shared_ptr<const RnnPlan> plan;  // null in unused entries
  };

  // If the instruction set is to blame, names the environment variable that it comes from.
  Status Explained(const Status& error, DataType data_type) const {
    const Kernels<float>* kernels;
    const Status supported = ChooseKernels<float>(instruction_set_, data_type, &kernels);
    if (supported.ok()) return error;
    return InvalidArgument("The environment variable ", kInstructionSetVariable, " is '",
                           instruction_set_, "'. ", supported.message());
  }

  const std::string instruction_set_ = ReadEnvironment(kInstructionSetVariable);
  std::mutex mutex_;
  std::array<Entry, 4> entries_;
  size_t next_entry_ = 0;  // the oldest entry, once all are used
};

class CpuCall : public DeviceCall {
 public:
  CpuCall(::tensorflow::OpKernelContext* context, CpuPlans* plans)
      : runner_(context), plans_(plans) {}

  Status FindPlan(const RnnConfig& config, const SequenceShape& shape, const CallOptions&,
                  std::shared_ptr<const RnnPlan>* plan) override {
    return plans_->Find(config, shape, plan);
  }

  bool has_host_memory() const override { return true; }

  Execution execution() override {
    Execution execution;
    execution.runner = &runner_;
    return execution;
  }

  Status Clear(void* target, int64_t bytes) override {
    if (bytes > 0) std::memset(target, 0, static_cast<size_t>(bytes));
    return Status();
  }

  Status Copy(const std::vector<BufferCopy>& copies) override {
    for (const BufferCopy& copy : copies) {
      if (copy.bytes > 0) {
        std::memcpy(copy.target, copy.source, static_cast<size_t>(copy.bytes));
      }
    }
    return Status();
  }

 private:
  IntraOpRunner runner_;
  CpuPlans* const plans_;
};

class CpuBackend : public DeviceBackend {
 public:
  std::unique_ptr<DeviceCall> Start(::tensorflow::OpKernelContext* context) override {
    return std::unique_ptr<DeviceCall>(new CpuCall(context, &plans_));
  }

 private:
  CpuPlans plans_;
};

Status CreateCpuBackend(std::unique_ptr<DeviceBackend>* backend) {
  backend->reset(new CpuBackend());
  return Status();
}

[[maybe_unused]] const bool kRegistered = [] {
  RegisterKernels({"CPU", "", 0}, CreateCpuBackend);
  RegisterKernels({"CPU", kKernelLabel, 0}, CreateCpuBackend);
  return true;
}();

}  // namespace
}  // namespace cudnn_rnn
