#include "cudnn_rnn/cc/tf/registration.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/tf/adapter.h"
#include "cudnn_rnn/cc/tf/params_kernels.h"
#include "cudnn_rnn/cc/tf/rnn_kernels.h"
#include "tensorflow/core/framework/kernel_def_builder.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::KernelDefBuilder;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using CreateKernel = std::function<OpKernel*(OpKernelConstruction*)>;

class Factory : public ::tensorflow::kernel_factory::OpKernelFactory {
 public:
  explicit Factory(CreateKernel create) : create_(std::move(create)) {}
  // Converts exceptions, such as std::bad_alloc, to errors of the context: TensorFlow does not
  // expect kernel constructors to throw.
  OpKernel* Create(OpKernelConstruction* context) override {
    OpKernel* kernel = nullptr;
    const Status caught = CatchExceptions([&] {
      kernel = create_(context);
      return Status();
    });
    if (!caught.ok()) context->SetStatus(CaughtToTf(caught));
    return kernel;
  }

 private:
  const CreateKernel create_;
};

template <typename Kernel>
CreateKernel Creating(const DeviceFactory& create_device) {
  return
      [create_device](OpKernelConstruction* context) { return new Kernel(context, create_device); };
}

template <typename Kernel>
CreateKernel Creating(OpVersion version, const DeviceFactory& create_device) {
  return [version, create_device](OpKernelConstruction* context) {
    return new Kernel(context, version, create_device);
  };
}

std::vector<OpKernelEntry> EntriesFor(const DeviceFactory& device) {
  const CreateKernel params_size = [](OpKernelConstruction* context) {
    return new ParamsSizeKernel(context);
  };
  const CreateKernel to_canonical = Creating<ParamsToCanonicalKernel>(device);
  const CreateKernel to_params = Creating<CanonicalToParamsKernel>(device);
  const std::vector<const char*> sizes = {"num_layers", "num_units", "input_size"};
  const std::vector<const char*> reserved = {"host_reserved"};
  const std::vector<const char*> lengths = {"sequence_lengths", "host_reserved"};
  return {
      {"CudnnRNN", {}, Creating<ForwardKernel>(OpVersion::k1, device)},
      {"CudnnRNNV2", reserved, Creating<ForwardKernel>(OpVersion::k2, device)},
      {"CudnnRNNV3", lengths, Creating<ForwardKernel>(OpVersion::k3, device)},
      {"CudnnRNNBackprop", {}, Creating<BackwardKernel>(OpVersion::k1, device)},
      {"CudnnRNNBackpropV2", reserved, Creating<BackwardKernel>(OpVersion::k2, device)},
      {"CudnnRNNBackpropV3", lengths, Creating<BackwardKernel>(OpVersion::k3, device)},
      {"CudnnRNNParamsSize", {"num_layers", "num_units", "input_size", "params_size"}, params_size},
      {"CudnnRNNParamsToCanonical", sizes, to_canonical},
      {"CudnnRNNParamsToCanonicalV2", sizes, to_canonical},
      {"CudnnRNNCanonicalToParams", sizes, to_params},
      {"CudnnRNNCanonicalToParamsV2", sizes, to_params},
  };
}

// Registers the kernel for all data types of the op.
void RegisterForAllTypes(const OpKernelEntry& entry, const KernelTarget& target) {
  RegisterKernel(entry, ::tensorflow::DT_HALF, target);
  RegisterKernel(entry, ::tensorflow::DT_FLOAT, target);
  RegisterKernel(entry, ::tensorflow::DT_DOUBLE, target);
  if (OpTakesBfloat16(entry.op_name)) RegisterKernel(entry, ::tensorflow::DT_BFLOAT16, target);
}

}  // namespace

void RegisterKernel(const OpKernelEntry& entry, ::tensorflow::DataType type,
                    const KernelTarget& target) {
  KernelDefBuilder builder(entry.op_name);
  builder.Device(target.device_type.c_str()).TypeConstraint("T", type).Priority(target.priority);
  if (!target.label.empty()) builder.Label(target.label.c_str());
  for (const char* argument : entry.host_arguments) builder.HostMemory(argument);
  // TensorFlow takes ownership of the kernel definition.
  ::tensorflow::kernel_factory::OpKernelRegistrar registrar(
      builder.Build(), entry.op_name, std::unique_ptr<Factory>(new Factory(entry.create)));
}

void RegisterKernels(const KernelTarget& target, const DeviceFactory& create_device) {
  for (const OpKernelEntry& entry : EntriesFor(create_device)) RegisterForAllTypes(entry, target);
}

void RegisterKernels(const KernelTarget& target, const DeviceFactory& create_device,
                     const std::vector<std::string>& op_names) {
  for (const OpKernelEntry& entry : EntriesFor(create_device)) {
    const bool is_named =
        std::find(op_names.begin(), op_names.end(), entry.op_name) != op_names.end();
    if (is_named) RegisterForAllTypes(entry, target);
  }
}

}  // namespace cudnn_rnn
