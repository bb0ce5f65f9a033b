// The backend of CPU kernels: plans of cc/cpu on threads of TensorFlow's pool. Registers the CPU
// kernels when the library is loaded: TensorFlow has none of its own.

#include <cstring>
#include <string>

#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/tf/adapter.h"
#include "cudnn_rnn/cc/tf/device_backend.h"
#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

class CpuCall : public DeviceCall {
 public:
  CpuCall(::tensorflow::OpKernelContext* context, const std::string& instruction_set)
      : runner_(context), instruction_set_(instruction_set) {}

  Status FindPlan(const RnnConfig& config, const SequenceShape& shape, const CallOptions&,
                  std::shared_ptr<const RnnPlan>* plan) override {
    std::unique_ptr<RnnPlan> created;
    const Status status = CreateCpuPlan(config, shape, instruction_set_, &created);
    if (!status.ok()) return Explained(status, config.data_type);
    *plan = std::move(created);
    return Status();
  }

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
  // If the instruction set is to blame, names the environment variable that it comes from.
  Status Explained(const Status& error, DataType data_type) const {
    const Kernels<float>* kernels;
    const Status supported = ChooseKernels<float>(instruction_set_, data_type, &kernels);
    if (supported.ok()) return error;
    return InvalidArgument("The environment variable ", kInstructionSetVariable, " is '",
                           instruction_set_, "'. ", supported.message());
  }

  IntraOpRunner runner_;
  const std::string& instruction_set_;
};

class CpuBackend : public DeviceBackend {
 public:
  std::unique_ptr<DeviceCall> Start(::tensorflow::OpKernelContext* context) override {
    return std::unique_ptr<DeviceCall>(new CpuCall(context, instruction_set_));
  }

 private:
  const std::string instruction_set_ = ReadEnvironment(kInstructionSetVariable);
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
