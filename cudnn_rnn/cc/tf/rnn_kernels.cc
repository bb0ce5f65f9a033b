#include "cudnn_rnn/cc/tf/rnn_kernels.h"

#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/reserve_space.h"
#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

TfStatus AllocateOutput(OpKernelContext* context, const char* name,
                        const std::vector<int64_t>& dimensions, Tensor** tensor) {
  TensorShape shape;
  TF_RETURN_IF_ERROR(MakeShape(dimensions, &shape));
  return context->allocate_output(name, shape, tensor);
}

TfStatus AllocateWorkspace(OpKernelContext* context, int64_t num_bytes, Tensor* workspace) {
  return context->allocate_temp(::tensorflow::DT_INT8, TensorShape({num_bytes}), workspace);
}

int64_t BytesOf(const Tensor& tensor) { return static_cast<int64_t>(tensor.tensor_data().size()); }

// The tensors that a forward call returns.
struct ForwardOutputs {
  Tensor* output = nullptr;
  Tensor* output_h = nullptr;
  Tensor* output_c = nullptr;
  Tensor* reserve_space = nullptr;
  Tensor* host_reserved = nullptr;
};

// Allocates a meaningless scalar output_c except for LSTM, and empty reserves except in training.
TfStatus AllocateOutputs(OpKernelContext* context, const Model& model, OpVersion version,
                         bool is_training, int64_t reserve_elements, ForwardOutputs* outputs) {
  const bool is_lstm = model.config.has_cell_state();
  TF_RETURN_IF_ERROR(AllocateOutput(context, "output", model.OutputShape(), &outputs->output));
  TF_RETURN_IF_ERROR(
      AllocateOutput(context, "output_h", model.HiddenStateShape(), &outputs->output_h));
  TF_RETURN_IF_ERROR(AllocateOutput(context, "output_c",
                                    is_lstm ? model.CellStateShape() : std::vector<int64_t>(),
                                    &outputs->output_c));
  TF_RETURN_IF_ERROR(
      AllocateOutput(context, "reserve_space", {reserve_elements}, &outputs->reserve_space));
  if (!HasHostReserved(version)) return TfStatus();
  return AllocateOutput(context, "host_reserved", {is_training ? kReserveHeaderBytes : 0},
                        &outputs->host_reserved);
}

}  // namespace

ForwardKernel::ForwardKernel(OpKernelConstruction* context, OpVersion version,
                             const DeviceFactory& create_device)
    : StatusKernel(context), version_(version) {
  OP_REQUIRES_OK(context, ReadRnnAttributes(context, version, &attributes_));
  OP_REQUIRES_OK(context, context->GetAttr("is_training", &is_training_));
  OP_REQUIRES_OK(context, ToTf(ReadEnvironmentSwitch("TF_CUDNN_RESET_RND_GEN_STATE",
                                                     &repeats_dropout_pattern_)));
  OP_REQUIRES_OK(context, ToTf(create_device(&device_)));
  // Call 0 restarts a GPU's generator, and would repeat the pattern of a concurrent first call that
  // has overtaken call 0.
  if (device_->is_gpu()) num_calls_ = 1;
  bool keeps_weights;
  OP_REQUIRES_OK(context, ReadKeepsWeights(context, &keeps_weights));
  if (keeps_weights && !is_training_) kept_weights_.reset(new KeptWeights());
}

TfStatus ForwardKernel::Run(OpKernelContext* context) {
  Model model;
  TF_RETURN_IF_ERROR(ReadModel(context, version_, attributes_, &model));
  CallOptions options;
  options.is_training = is_training_;
  options.dropout_call_index = repeats_dropout_pattern_ ? 0 : num_calls_.fetch_add(1);
  options.sequence_lengths = model.sequence_lengths;
  EngineCall call(device_.get(), context);
  TF_RETURN_IF_ERROR(ToTf(call.Prepare(model.config, model.shape, options)));
  const cudnn_rnn_sizes& sizes = call.sizes();

  ForwardOutputs outputs;
  const int64_t reserve_elements =
      is_training_ ? ReserveSpaceElements(sizes.reserve_space_bytes, SizeOf(model.config.data_type),
                                          call.choice())
                   : 0;
  TF_RETURN_IF_ERROR(
      AllocateOutputs(context, model, version_, is_training_, reserve_elements, &outputs));
  Tensor workspace;
  TF_RETURN_IF_ERROR(AllocateWorkspace(context, sizes.forward_workspace_bytes, &workspace));

  cudnn_rnn_forward_buffers buffers = {};
  buffers.input = DataOf(*model.input);
  buffers.input_h = DataOf(*model.input_h);
  buffers.params = DataOf(*model.params);
  buffers.output = MutableDataOf(outputs.output);
  buffers.output_h = MutableDataOf(outputs.output_h);
  if (model.config.has_cell_state()) {
    buffers.input_c = DataOf(*model.input_c);
    buffers.output_c = MutableDataOf(outputs.output_c);
  } else {
    TF_RETURN_IF_ERROR(
        ToTf(call.Clear(MutableDataOf(outputs.output_c), BytesOf(*outputs.output_c))));
  }
  buffers.reserve_space = MutableDataOf(outputs.reserve_space);
  if (is_training_) {  // The plan defines the bytes before these.
    const int64_t bytes = buffers.reserve_space_bytes = sizes.reserve_space_bytes;
    TF_RETURN_IF_ERROR(ToTf(call.Clear(static_cast<char*>(buffers.reserve_space) + bytes,
                                       BytesOf(*outputs.reserve_space) - bytes)));
  }
  buffers.workspace = MutableDataOf(&workspace);
  buffers.workspace_bytes = sizes.forward_workspace_bytes;
  std::shared_ptr<KeptWeights::Set> weights;
  if (kept_weights_ != nullptr) {
    weights = kept_weights_->Find(context, *model.params, call.PackedWeights());
  }
  if (weights != nullptr) {
    buffers.packed_weights = MutableDataOf(&weights->memory);
    buffers.packed_weights_are_ready = weights->is_ready;
  }
  TF_RETURN_IF_ERROR(ToTf(call.Forward(buffers)));
  if (weights != nullptr && !buffers.packed_weights_are_ready) kept_weights_->Keep(weights);
  if (outputs.host_reserved != nullptr && is_training_) {
    WriteReserveHeader(IdentityOf(model.config, model.shape, model.sequence_lengths),
                       options.dropout_call_index, MutableDataOf(outputs.host_reserved),
                       call.choice());
  }
  return TfStatus();
}

namespace {

// Points `buffers` to the inputs and results of the forward call and to the results' gradients.
TfStatus ReadForwardResults(OpKernelContext* context, const Model& model,
                            cudnn_rnn_backward_buffers* buffers) {
  const bool is_lstm = model.config.has_cell_state();
  struct Expected {
    const char* name;
    std::vector<int64_t> shape;
    const char* axes;
    const void** data;
    bool is_read;
  };
  const void* unused;
  const std::vector<int64_t> output = model.OutputShape();
  const std::vector<int64_t> hidden = model.HiddenStateShape(), cell = model.CellStateShape();
  const Expected tensors[] = {
      {"output", output, model.OutputAxes(), &buffers->output, true},
      {"output_h", hidden, model.HiddenStateAxes(), &buffers->output_h, true},
      {"output_c", cell, model.CellStateAxes(), &unused, is_lstm},
      {"output_backprop", output, model.OutputAxes(), &buffers->output_backprop, true},
      {"output_h_backprop", hidden, model.HiddenStateAxes(), &buffers->output_h_backprop, true},
      {"output_c_backprop", cell, model.CellStateAxes(), &buffers->output_c_backprop, is_lstm},
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

// The host_reserved tensor of the V2 and V3 ops is in host memory, so a GPU's gradient can check
// it. `choice` is what the reserve space says; `on_cpu`: whether this gradient runs on a CPU.
TfStatus CheckHostReserved(OpKernelContext* context, const Model& model,
                           const ForwardChoice& choice, bool on_cpu) {
  const Tensor* host_reserved;
  TF_RETURN_IF_ERROR(context->input("host_reserved", &host_reserved));
  int64_t dropout_call_index;
  ForwardChoice recorded;
  TF_RETURN_IF_ERROR(
      ToTf(ReadReserveHeader(IdentityOf(model.config, model.shape, model.sequence_lengths),
                             kReserveHeaderBytes, DataOf(*host_reserved), BytesOf(*host_reserved),
                             &dropout_call_index, "host_reserved", &recorded)));
  const bool was_on_cpu = recorded.algorithm == 0;
  if (was_on_cpu != on_cpu) {
    const auto name = [](bool is_cpu) { return is_cpu ? "CPU" : "GPU"; };
    return ToTf(InvalidArgument("reserve_space is that of a forward call on a ", name(was_on_cpu),
                                ", but its gradient runs on a ", name(on_cpu),
                                ", and each keeps other data there. Place both on one device."));
  }
  if (on_cpu ||
      (recorded.algorithm == choice.algorithm && recorded.allow_tf32 == choice.allow_tf32)) {
    return TfStatus();
  }
  return ToTf(InvalidArgument(
      "host_reserved and reserve_space are of two forward calls, which ran different algorithms or "
      "of which only one was allowed to use TF32. Pass both as one forward call returned them."));
}

// The input reserve_space. `is_owned` says whether this kernel holds the only reference to it and
// may therefore overwrite it.
struct ReserveSpace {
  Tensor tensor;
  bool is_owned = false;
};

TfStatus ReadReserveSpace(OpKernelContext* context, ReserveSpace* reserve_space) {
  int index, end;
  TF_RETURN_IF_ERROR(context->op_kernel().InputRange("reserve_space", &index, &end));
  const Tensor& input = context->input(index);
  TF_RETURN_IF_ERROR(CheckRank("reserve_space", input, 1, "elements"));
  // TensorFlow forwards a buffer only if no other op, fetch or variable holds it.
  const std::unique_ptr<Tensor> forwarded = context->forward_input(
      index, OpKernelContext::Params::kNoReservation, input.dtype(), input.shape(),
      context->input_memory_type(index), context->input_alloc_attr(index));
  reserve_space->is_owned = forwarded != nullptr;
  reserve_space->tensor = forwarded == nullptr ? input : *forwarded;
  return TfStatus();
}

// A GPU's gradient knows the rate only from its attribute.
Status CheckDropout(const ForwardChoice& forward, const ForwardChoice& gradient) {
  if (forward.algorithm == 0 || forward.uses_dropout == gradient.uses_dropout) return Status();
  if (!forward.uses_dropout) {
    return InvalidArgument(
        "The gradient has dropout, but reserve_space is that of a forward call without dropout. "
        "Give both the same attribute dropout.");
  }
  return InvalidArgument(
      "The gradient's attribute dropout is 0, but reserve_space is that of a forward call with "
      "dropout, and a GPU's reserve_space does not contain the rate. Set the attributes dropout, "
      "seed and seed2 of the gradient's node to those of the forward node. (Graphs of "
      "TensorFlow 1.0 lack them: build the gradient again with tf.gradients, or run the gradient "
      "on a CPU.)");
}

TfStatus AllocateGradients(OpKernelContext* context, const Model& model, EngineCall* call,
                           cudnn_rnn_backward_buffers* buffers) {
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
    // Data that the forward call did not read have gradient 0: input_c except for LSTM, and the
    // elements of params that the model does not need.
    int64_t read_bytes = BytesOf(*tensor);
    if (gradient.of == model.input_c && !model.config.has_cell_state()) read_bytes = 0;
    if (gradient.of == model.params) {
      read_bytes = model.params_size * SizeOf(model.config.data_type);
    }
    if (read_bytes == BytesOf(*tensor)) continue;
    char* unread = static_cast<char*>(*gradient.data) + read_bytes;
    TF_RETURN_IF_ERROR(ToTf(call->Clear(unread, BytesOf(*tensor) - read_bytes)));
  }
  return TfStatus();
}

}  // namespace

BackwardKernel::BackwardKernel(OpKernelConstruction* context, OpVersion version,
                               const DeviceFactory& create_device)
    : StatusKernel(context), version_(version) {
  OP_REQUIRES_OK(context, ReadRnnAttributes(context, version, &attributes_));
  OP_REQUIRES_OK(context, ToTf(create_device(&device_)));
}

TfStatus BackwardKernel::Run(OpKernelContext* context) {
  Model model;
  TF_RETURN_IF_ERROR(ReadModel(context, version_, attributes_, &model));
  cudnn_rnn_backward_buffers buffers = {};
  TF_RETURN_IF_ERROR(ReadForwardResults(context, model, &buffers));
  ReserveSpace reserve_space;
  TF_RETURN_IF_ERROR(ReadReserveSpace(context, &reserve_space));
  const int64_t reserve_elements = reserve_space.tensor.NumElements();
  const ForwardChoice choice = ChoiceOfReserveSpace(reserve_elements);
  EngineCall call(device_.get(), context);
  if (call.has_host_memory()) {
    TakeSettingsFromHeader(DataOf(reserve_space.tensor), BytesOf(reserve_space.tensor),
                           &model.config);
  }
  if (HasHostReserved(version_)) {
    TF_RETURN_IF_ERROR(CheckHostReserved(context, model, choice, call.has_host_memory()));
  }

  CallOptions options;
  options.is_training = true;  // as in the forward call
  options.sequence_lengths = model.sequence_lengths;
  options.keeps_reserve_space = !reserve_space.is_owned;
  options.forward_choice = choice;
  TF_RETURN_IF_ERROR(ToTf(call.Prepare(model.config, model.shape, options)));
  const cudnn_rnn_sizes& sizes = call.sizes();
  // The size of a CPU's reserve space says nothing about the forward call.
  if (!call.has_host_memory()) TF_RETURN_IF_ERROR(ToTf(CheckDropout(choice, call.choice())));
  const int64_t element_size = SizeOf(model.config.data_type);
  TF_RETURN_IF_ERROR(ToTf(CheckReserveSpaceSize(
      reserve_elements * element_size,
      ReserveSpaceElements(sizes.reserve_space_bytes, element_size, call.choice()) *
          element_size)));
  buffers.reserve_space = MutableDataOf(&reserve_space.tensor);
  buffers.reserve_space_bytes = sizes.reserve_space_bytes;

  TF_RETURN_IF_ERROR(AllocateGradients(context, model, &call, &buffers));
  Tensor workspace;
  TF_RETURN_IF_ERROR(AllocateWorkspace(context, sizes.backward_workspace_bytes, &workspace));
  buffers.workspace = MutableDataOf(&workspace);
  buffers.workspace_bytes = sizes.backward_workspace_bytes;
  TF_RETURN_IF_ERROR(ToTf(call.Backward(buffers)));
  return TfStatus();
}

}  // namespace cudnn_rnn
