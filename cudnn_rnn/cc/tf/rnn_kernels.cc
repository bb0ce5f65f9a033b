// CPU kernels of CudnnRNN and CudnnRNNBackprop: tensors and status in and out, nothing else.

#include <atomic>
#include <memory>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::DEVICE_CPU;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

constexpr char kStateAxes[] = "num_layers * directions, batch, num_units";
constexpr char kOutputAxes[] = "time, batch, directions * num_units";

// The inputs that forward and backward share, checked against one another.
struct Model {
  RnnConfig config;
  int64_t num_steps = 0;
  int64_t batch_size = 0;
  const Tensor* input = nullptr;    // [time, batch, input_size]
  const Tensor* input_h = nullptr;  // [num_layers * directions, batch, num_units]
  const Tensor* input_c = nullptr;  // the same for LSTM, else ignored
  const Tensor* params = nullptr;   // [params_size]

  std::vector<int64_t> state_shape() const {
    return {config.num_layers * config.num_directions(), batch_size, config.num_units};
  }
  std::vector<int64_t> output_shape() const {
    return {num_steps, batch_size, config.num_directions() * config.num_units};
  }
};

const void* DataOf(const Tensor& tensor) { return tensor.tensor_data().data(); }
void* MutableDataOf(Tensor* tensor) { return const_cast<char*>(tensor->tensor_data().data()); }

TfStatus ReadModel(OpKernelContext* context, const RnnConfig& attributes, Model* model) {
  TF_RETURN_IF_ERROR(context->input("input", &model->input));
  TF_RETURN_IF_ERROR(context->input("input_h", &model->input_h));
  TF_RETURN_IF_ERROR(context->input("input_c", &model->input_c));
  TF_RETURN_IF_ERROR(context->input("params", &model->params));
  TF_RETURN_IF_ERROR(CheckRank("input", *model->input, 3, "time, batch, input_size"));
  TF_RETURN_IF_ERROR(CheckRank("input_h", *model->input_h, 3, kStateAxes));

  model->config = attributes;
  RnnConfig& config = model->config;
  model->num_steps = model->input->dim_size(0);
  model->batch_size = model->input->dim_size(1);
  config.input_size = model->input->dim_size(2);
  const int64_t stacked = model->input_h->dim_size(0);
  config.num_layers = stacked / config.num_directions();
  config.num_units = model->input_h->dim_size(2);
  if (config.input_size == 0) {
    return ToTf(InvalidArgument("input must have input_size of at least 1 in its last dimension, ",
                                "but has shape ", ShapeText(ShapeOf(*model->input)), "."));
  }
  if (config.num_layers == 0 || stacked % config.num_directions() != 0 || config.num_units == 0) {
    return ToTf(InvalidArgument("input_h must have shape [num_layers * ", config.num_directions(),
                                ", batch, num_units] for direction ", Name(config.direction),
                                ", with num_layers and num_units of at least 1, but has shape ",
                                ShapeText(ShapeOf(*model->input_h)), "."));
  }
  TF_RETURN_IF_ERROR(ToTf(Validate(config)));
  TF_RETURN_IF_ERROR(CheckShape("input_h", *model->input_h, model->state_shape(), kStateAxes));
  if (config.has_cell_state()) {
    TF_RETURN_IF_ERROR(CheckShape("input_c", *model->input_c, model->state_shape(), kStateAxes));
  }
  ParamLayout layout;
  TF_RETURN_IF_ERROR(ToTf(ParamLayout::Create(config, &layout)));
  return CheckShape("params", *model->params, {layout.size()},
                    "params_size for these num_layers, num_units and input_size");
}

TfStatus AllocateOutput(OpKernelContext* context, const char* name,
                        const std::vector<int64_t>& dimensions, Tensor** tensor) {
  TensorShape shape;
  for (int64_t dimension : dimensions) shape.AddDim(dimension);
  return context->allocate_output(name, shape, tensor);
}

TfStatus AllocateWorkspace(OpKernelContext* context, int64_t num_bytes, Tensor* workspace) {
  return context->allocate_temp(::tensorflow::DT_INT8, TensorShape({num_bytes}), workspace);
}

template <typename T>
class ForwardKernel : public OpKernel {
 public:
  explicit ForwardKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadAttributes(context, DataTypeOf<T>::value, &attributes_));
    OP_REQUIRES_OK(context, context->GetAttr("is_training", &is_training_));
    OP_REQUIRES_OK(
        context, ReadEnvironmentSwitch("TF_CUDNN_RESET_RND_GEN_STATE", &repeats_dropout_pattern_));
  }

  void Compute(OpKernelContext* context) override {
    Model model;
    OP_REQUIRES_OK(context, ReadModel(context, attributes_, &model));
    std::unique_ptr<RnnPlan> plan;
    OP_REQUIRES_OK(context, ToTf(CreateCpuPlan(model.config, {model.num_steps, model.batch_size},
                                               instruction_set_, &plan)));

    const bool is_lstm = model.config.has_cell_state();
    const int64_t element_size = static_cast<int64_t>(sizeof(T));
    const int64_t reserve_elements =
        is_training_ ? (plan->ReserveSpaceBytes() + element_size - 1) / element_size : 0;
    Tensor *output, *output_h, *output_c, *reserve_space;
    OP_REQUIRES_OK(context, AllocateOutput(context, "output", model.output_shape(), &output));
    OP_REQUIRES_OK(context, AllocateOutput(context, "output_h", model.state_shape(), &output_h));
    OP_REQUIRES_OK(
        context, AllocateOutput(context, "output_c",
                                is_lstm ? model.state_shape() : std::vector<int64_t>(), &output_c));
    OP_REQUIRES_OK(context,
                   AllocateOutput(context, "reserve_space", {reserve_elements}, &reserve_space));
    CallOptions options;
    options.is_training = is_training_;
    options.dropout_call = repeats_dropout_pattern_ ? 0 : num_calls_.fetch_add(1);
    Tensor workspace;
    OP_REQUIRES_OK(context,
                   AllocateWorkspace(context, plan->ForwardWorkspaceBytes(options), &workspace));
    if (!is_lstm) output_c->scalar<T>()() = T(0);

    ForwardBuffers buffers;
    buffers.input = DataOf(*model.input);
    buffers.input_h = DataOf(*model.input_h);
    buffers.params = DataOf(*model.params);
    buffers.output = MutableDataOf(output);
    buffers.output_h = MutableDataOf(output_h);
    if (is_lstm) {
      buffers.input_c = DataOf(*model.input_c);
      buffers.output_c = MutableDataOf(output_c);
    }
    buffers.reserve_space = MutableDataOf(reserve_space);
    buffers.workspace = MutableDataOf(&workspace);
    IntraOpRunner runner(context);
    OP_REQUIRES_OK(context, ToTf(plan->Forward(buffers, options, {&runner})));
  }

 private:
  const std::string instruction_set_ = ReadEnvironment(kInstructionSetVariable);
  RnnConfig attributes_;
  bool is_training_ = true;
  bool repeats_dropout_pattern_ = false;
  std::atomic<int64_t> num_calls_{0};
};

template <typename T>
class BackwardKernel : public OpKernel {
 public:
  explicit BackwardKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadAttributes(context, DataTypeOf<T>::value, &attributes_));
  }

  void Compute(OpKernelContext* context) override {
    Model model;
    OP_REQUIRES_OK(context, ReadModel(context, attributes_, &model));
    BackwardBuffers buffers;
    OP_REQUIRES_OK(context, ReadForwardResults(context, model, &buffers));
    std::unique_ptr<RnnPlan> plan;
    OP_REQUIRES_OK(context, ToTf(CreateCpuPlan(model.config, {model.num_steps, model.batch_size},
                                               instruction_set_, &plan)));

    const Tensor* reserve_space;
    OP_REQUIRES_OK(context, context->input("reserve_space", &reserve_space));
    OP_REQUIRES_OK(context, CheckRank("reserve_space", *reserve_space, 1, "elements"));
    buffers.reserve_space = const_cast<void*>(DataOf(*reserve_space));
    // The forward call rounded the size up to whole elements.
    const int64_t given_bytes = reserve_space->NumElements() * static_cast<int64_t>(sizeof(T));
    const int64_t excess = given_bytes - plan->ReserveSpaceBytes();
    const bool rounded = excess >= 0 && excess < static_cast<int64_t>(sizeof(T));
    buffers.reserve_space_bytes = rounded ? plan->ReserveSpaceBytes() : given_bytes;

    OP_REQUIRES_OK(context, AllocateGradients(context, model, &buffers));
    Tensor workspace;
    OP_REQUIRES_OK(context, AllocateWorkspace(context, plan->BackwardWorkspaceBytes(CallOptions()),
                                              &workspace));
    buffers.workspace = MutableDataOf(&workspace);
    IntraOpRunner runner(context);
    OP_REQUIRES_OK(context, ToTf(plan->Backward(buffers, CallOptions(), {&runner})));
  }

 private:
  static TfStatus ReadForwardResults(OpKernelContext* context, const Model& model,
                                     BackwardBuffers* buffers) {
    const bool is_lstm = model.config.has_cell_state();
    struct Expected {
      const char* name;
      std::vector<int64_t> shape;
      const char* axes;
      const void** data;
      bool is_read;
    };
    const void* unused;
    const Expected tensors[] = {
        {"output", model.output_shape(), kOutputAxes, &buffers->output, true},
        {"output_h", model.state_shape(), kStateAxes, &buffers->output_h, true},
        {"output_c", model.state_shape(), kStateAxes, &unused, is_lstm},
        {"output_backprop", model.output_shape(), kOutputAxes, &buffers->output_backprop, true},
        {"output_h_backprop", model.state_shape(), kStateAxes, &buffers->output_h_backprop, true},
        {"output_c_backprop", model.state_shape(), kStateAxes, &buffers->output_c_backprop,
         is_lstm},
    };
    for (const Expected& expected : tensors) {
      if (!expected.is_read) continue;
      const Tensor* tensor;
      TF_RETURN_IF_ERROR(context->input(expected.name, &tensor));
      TF_RETURN_IF_ERROR(CheckShape(expected.name, *tensor, expected.shape, expected.axes));
      *expected.data = DataOf(*tensor);
    }
    buffers->input = DataOf(*model.input);
    buffers->input_h = DataOf(*model.input_h);
    if (is_lstm) buffers->input_c = DataOf(*model.input_c);
    buffers->params = DataOf(*model.params);
    return TfStatus();
  }

  static TfStatus AllocateGradients(OpKernelContext* context, const Model& model,
                                    BackwardBuffers* buffers) {
    struct Gradient {
      const char* name;
      const Tensor* of;
      void** data;
    };
    const Gradient gradients[] = {
        {"input_backprop", model.input, &buffers->input_backprop},
        {"input_h_backprop", model.input_h, &buffers->input_h_backprop},
        {"input_c_backprop", model.input_c, &buffers->input_c_backprop},
        {"params_backprop", model.params, &buffers->params_backprop},
    };
    for (const Gradient& gradient : gradients) {
      Tensor* tensor;
      TF_RETURN_IF_ERROR(context->allocate_output(gradient.name, gradient.of->shape(), &tensor));
      *gradient.data = MutableDataOf(tensor);
      // Only LSTM has a cell state; elsewhere input_c was ignored.
      if (gradient.of == model.input_c && !model.config.has_cell_state()) {
        tensor->flat<T>().setZero();
      }
    }
    return TfStatus();
  }

  const std::string instruction_set_ = ReadEnvironment(kInstructionSetVariable);
  RnnConfig attributes_;
};

#define REGISTER_RNN_KERNELS(T)                                                               \
  REGISTER_KERNEL_BUILDER(Name("CudnnRNN").Device(DEVICE_CPU).TypeConstraint<T>("T"),         \
                          ForwardKernel<T>);                                                  \
  REGISTER_KERNEL_BUILDER(Name("CudnnRNNBackprop").Device(DEVICE_CPU).TypeConstraint<T>("T"), \
                          BackwardKernel<T>)

REGISTER_RNN_KERNELS(Eigen::half);
REGISTER_RNN_KERNELS(float);
REGISTER_RNN_KERNELS(double);

#undef REGISTER_RNN_KERNELS

}  // namespace
}  // namespace cudnn_rnn
