#include "cudnn_rnn/cc/cudnn/bfloat16_plan.h"

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/reserve_space.h"

namespace cudnn_rnn {

Status Bfloat16Plan::Create(GpuRuntime* runtime, const RnnConfig& config,
                            const SequenceShape& shape, std::shared_ptr<const RnnPlan> float_plan,
                            std::shared_ptr<const RnnPlan>* plan) {
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
  // These products do not overflow: the float plan has checked its sizes in bytes.
  const int64_t rows = shape.num_steps * shape.batch_size;
  const int64_t states = config.num_layers * config.num_directions() * shape.batch_size;
  const Sizes sizes = {rows * config.input_size,
                       rows * config.num_directions() * config.output_size(),
                       states * config.output_size(),
                       config.has_cell_state() ? states * config.num_units : 0, layout.size()};
  // A workspace holds at most five copies of each kind of buffer, and the float plan uses at most
  // half of the 64-bit range.
  const CheckedSize copies =
      (CheckedSize(sizes.input) + sizes.output + sizes.h + sizes.c + sizes.params) *
      (5 * static_cast<int64_t>(sizeof(float)));
  if ((copies * 2).overflowed()) {
    return InvalidArgument("The model is too large for this input: ", Describe(config), ", with ",
                           shape.num_steps, " steps and batch size ", shape.batch_size,
                           " needs more bytes than 64 bits can count.");
  }
  plan->reset(new Bfloat16Plan(runtime, sizes, "converting for " + Describe(config),
                               std::move(float_plan)));
  return Status();
}

int64_t Bfloat16Plan::ReserveSpaceBytes() const {
  if (float_plan_->ReserveSpaceBytes() == 0) return 0;  // inference, or nothing to compute
  Arena arena(nullptr);
  arena.Take<char>(float_plan_->ReserveSpaceBytes());
  arena.Take<float>(sizes_.output);
  return arena.used().value();
}

float* Bfloat16Plan::OutputIn(void* reserve_space) const {
  Arena arena(reserve_space);
  arena.Take<char>(float_plan_->ReserveSpaceBytes());
  return arena.Take<float>(sizes_.output);
}

int64_t Bfloat16Plan::ForwardWorkspaceBytes(const CallOptions& options) const {
  Arena arena(nullptr);
  for (const int64_t elements :
       {sizes_.input, sizes_.h, sizes_.c, sizes_.params, sizes_.output, sizes_.h, sizes_.c}) {
    arena.Take<float>(elements);
  }
  arena.Take<char>(float_plan_->ForwardWorkspaceBytes(options));
  return arena.used().value();
}

int64_t Bfloat16Plan::BackwardWorkspaceBytes(const CallOptions& options) const {
  Arena arena(nullptr);
  for (const int64_t elements :
       {sizes_.input, sizes_.h, sizes_.c, sizes_.params, sizes_.h, sizes_.output, sizes_.h,
        sizes_.c, sizes_.input, sizes_.h, sizes_.c, sizes_.params}) {
    arena.Take<float>(elements);
  }
  arena.Take<char>(float_plan_->BackwardWorkspaceBytes(options));
  return arena.used().value();
}

Status Bfloat16Plan::Forward(const ForwardBuffers& buffers, const CallOptions& options,
                             const Execution& execution) const {
  GpuQueue queue(runtime_, execution.stream, description_);
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  Bfloat16Kernels& kernels = runtime_->bfloat16_kernels;
  ForwardBuffers floats;
  const Conversion<const void*> inputs[] = {{buffers.input, &floats.input, sizes_.input},
                                            {buffers.input_h, &floats.input_h, sizes_.h},
                                            {buffers.input_c, &floats.input_c, sizes_.c},
                                            {buffers.params, &floats.params, sizes_.params}};
  const Conversion<void*> outputs[] = {{buffers.output, &floats.output, sizes_.output},
                                       {buffers.output_h, &floats.output_h, sizes_.h},
                                       {buffers.output_c, &floats.output_c, sizes_.c}};
  Arena arena(buffers.workspace);
  for (const auto& input : inputs) {
    float* values = arena.Take<float>(input.elements);
    CUDNN_RNN_RETURN_IF_ERROR(kernels.ToFloat(queue, input.buffer, input.elements, values));
    *input.float_buffer = values;
  }
  for (const auto& output : outputs) *output.float_buffer = arena.Take<float>(output.elements);
  floats.workspace = arena.Take<char>(float_plan_->ForwardWorkspaceBytes(options));
  if (ReserveSpaceBytes() > 0) {
    floats.reserve_space = buffers.reserve_space;
    floats.output = OutputIn(buffers.reserve_space);
  }
  CUDNN_RNN_RETURN_IF_ERROR(float_plan_->Forward(floats, options, execution));
  for (const auto& output : outputs) {
    CUDNN_RNN_RETURN_IF_ERROR(
        kernels.FromFloat(queue, *output.float_buffer, output.elements, output.buffer));
  }
  return Status();
}

Status Bfloat16Plan::Backward(const BackwardBuffers& buffers, const CallOptions& options,
                              const Execution& execution) const {
  CUDNN_RNN_RETURN_IF_ERROR(
      CheckReserveSpaceSize(buffers.reserve_space_bytes, ReserveSpaceBytes()));
  GpuQueue queue(runtime_, execution.stream, description_);
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  Bfloat16Kernels& kernels = runtime_->bfloat16_kernels;
  BackwardBuffers floats;
  const Conversion<const void*> inputs[] = {
      {buffers.input, &floats.input, sizes_.input},
      {buffers.input_h, &floats.input_h, sizes_.h},
      {buffers.input_c, &floats.input_c, sizes_.c},
      {buffers.params, &floats.params, sizes_.params},
      {buffers.output_h, &floats.output_h, sizes_.h},
      {buffers.output_backprop, &floats.output_backprop, sizes_.output},
      {buffers.output_h_backprop, &floats.output_h_backprop, sizes_.h},
      {buffers.output_c_backprop, &floats.output_c_backprop, sizes_.c}};
  const Conversion<void*> outputs[] = {
      {buffers.input_backprop, &floats.input_backprop, sizes_.input},
      {buffers.input_h_backprop, &floats.input_h_backprop, sizes_.h},
      {buffers.input_c_backprop, &floats.input_c_backprop, sizes_.c},
      {buffers.params_backprop, &floats.params_backprop, sizes_.params}};
  Arena arena(buffers.workspace);
  for (const auto& input : inputs) {
    float* values = arena.Take<float>(input.elements);
    CUDNN_RNN_RETURN_IF_ERROR(kernels.ToFloat(queue, input.buffer, input.elements, values));
    *input.float_buffer = values;
  }
  for (const auto& output : outputs) *output.float_buffer = arena.Take<float>(output.elements);
  floats.reserve_space = buffers.reserve_space;
  floats.reserve_space_bytes = float_plan_->ReserveSpaceBytes();
  floats.output = OutputIn(buffers.reserve_space);
  floats.workspace = arena.Take<char>(float_plan_->BackwardWorkspaceBytes(options));
  CUDNN_RNN_RETURN_IF_ERROR(float_plan_->Backward(floats, options, execution));
  for (const auto& output : outputs) {
    CUDNN_RNN_RETURN_IF_ERROR(
        kernels.FromFloat(queue, *output.float_buffer, output.elements, output.buffer));
  }
  return Status();
}

}  // namespace cudnn_rnn
