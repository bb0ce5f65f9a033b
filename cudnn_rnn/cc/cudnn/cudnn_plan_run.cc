// CudnnPlan's forward and backward passes: the work that they queue on the stream.

#include "cudnn_rnn/cc/core/reserve_space.h"
#include "cudnn_rnn/cc/cudnn/aligned_copies.h"
#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

namespace cudnn_rnn {
namespace {

char* Offset(void* pointer, int64_t bytes) { return static_cast<char*>(pointer) + bytes; }
const char* Offset(const void* pointer, int64_t bytes) {
  return static_cast<const char*>(pointer) + bytes;
}

}  // namespace

Status CudnnPlan::Forward(const ForwardBuffers& buffers, const CallOptions& options,
                          const Execution& execution) const {
  CUDNN_RNN_RETURN_IF_ERROR(CheckSequenceLengths(options.sequence_lengths, shape_));
  GpuQueue queue(runtime_, execution.stream, description_);
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  if (is_empty()) {
    CUDNN_RNN_RETURN_IF_ERROR(queue.Copy(buffers.output_h, buffers.input_h, state_bytes(h_width_)));
    if (!config_.has_cell_state()) return Status();
    return queue.Copy(buffers.output_c, buffers.input_c, state_bytes(c_width_));
  }
  AlignedCopies copies(queue, execution.allocator);
  ForwardBuffers aligned = buffers;
  if (weights_.is_dense()) {
    CUDNN_RNN_RETURN_IF_ERROR(copies.Read(weights_.bytes(), &aligned.params));
  }
  CUDNN_RNN_RETURN_IF_ERROR(copies.Write(reserve_space_bytes_, &aligned.reserve_space));
  CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
  std::lock_guard<std::mutex> lock(model_->mutex());
  CUDNN_RNN_RETURN_IF_ERROR(QueueForward(queue, aligned, options, ReadLengths(options)));
  return copies.Finish();
}

Status CudnnPlan::QueueForward(const GpuQueue& queue, const ForwardBuffers& buffers,
                               const CallOptions& options, const Lengths& lengths) const {
  const bool is_lstm = config_.has_cell_state();
  Workspace workspace;
  DescribeWorkspace(Pass::kForward, options, !lengths.zero_rows.empty(), buffers.workspace,
                    &workspace);
  CUDNN_RNN_RETURN_IF_ERROR(SetLengths(queue, lengths.clamped));
  CUDNN_RNN_RETURN_IF_ERROR(StageLengths(queue, lengths, workspace.device_lengths));
  const void *input, *initial_h, *initial_c = nullptr, *weights;
  CUDNN_RNN_RETURN_IF_ERROR(
      StageSequence(queue, lengths, buffers.input, input_width_, workspace.input, &input));
  CUDNN_RNN_RETURN_IF_ERROR(
      StageState(queue, lengths, buffers.input_h, h_width_, workspace.initial_h, &initial_h));
  if (is_lstm) {
    CUDNN_RNN_RETURN_IF_ERROR(
        StageState(queue, lengths, buffers.input_c, c_width_, workspace.initial_c, &initial_c));
  }
  CUDNN_RNN_RETURN_IF_ERROR(StageWeights(queue, buffers.params, workspace.weights, &weights));
  void* final_h = workspace.final_h != nullptr ? workspace.final_h : buffers.output_h;
  void* final_c = workspace.final_c != nullptr ? workspace.final_c : buffers.output_c;
  if (choices_.is_training) {
    // cuDNN need not write all of it, and programs may read what was in the memory before.
    CUDNN_RNN_RETURN_IF_ERROR(queue.Clear(buffers.reserve_space, reserve_space_bytes_));
  }

  std::unique_lock<std::mutex> dropout_lock;
  if (dropout_ != nullptr) {
    CUDNN_RNN_RETURN_IF_ERROR(
        dropout_->BeginCall(queue, options.dropout_call_index == 0, &dropout_lock));
  }
  const Status forward = CUDNN_RNN_CUDNN_CALL(
      queue, cudnnRNNForward, queue.handle(), model_->get(),
      choices_.is_training ? kCudnnForwardTraining : kCudnnForwardInference,
      workspace.device_lengths, x_.get(), input, y_.get(), buffers.output, h_.get(), initial_h,
      final_h, c_.get(), initial_c, is_lstm ? final_c : nullptr,
      static_cast<size_t>(weights_.bytes()), weights, static_cast<size_t>(cudnn_workspace_bytes_),
      workspace.cudnn, static_cast<size_t>(reserve_space_bytes_),
      choices_.is_training ? buffers.reserve_space : nullptr);
  if (dropout_ != nullptr) CUDNN_RNN_RETURN_IF_ERROR(dropout_->EndCall(queue));
  CUDNN_RNN_RETURN_IF_ERROR(forward);

  CUDNN_RNN_RETURN_IF_ERROR(UnstageState(queue, h_width_, workspace.final_h, buffers.output_h));
  CUDNN_RNN_RETURN_IF_ERROR(ClearFirstStep(queue, lengths, output_width_, buffers.output));
  CUDNN_RNN_RETURN_IF_ERROR(
      PassThroughState(queue, lengths, h_width_, buffers.input_h, buffers.output_h));
  if (!is_lstm) return Status();
  CUDNN_RNN_RETURN_IF_ERROR(UnstageState(queue, c_width_, workspace.final_c, buffers.output_c));
  return PassThroughState(queue, lengths, c_width_, buffers.input_c, buffers.output_c);
}

Status CudnnPlan::Backward(const BackwardBuffers& buffers, const CallOptions& options,
                           const Execution& execution) const {
  CUDNN_RNN_RETURN_IF_ERROR(CheckSequenceLengths(options.sequence_lengths, shape_));
  CUDNN_RNN_RETURN_IF_ERROR(
      CheckReserveSpaceSize(buffers.reserve_space_bytes, reserve_space_bytes_));
  GpuQueue queue(runtime_, execution.stream, description_);
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  if (is_empty()) {
    CUDNN_RNN_RETURN_IF_ERROR(
        queue.Clear(buffers.params_backprop, layout_.size() * SizeOf(config_.data_type)));
    CUDNN_RNN_RETURN_IF_ERROR(
        queue.Copy(buffers.input_h_backprop, buffers.output_h_backprop, state_bytes(h_width_)));
    if (!config_.has_cell_state()) return Status();
    return queue.Copy(buffers.input_c_backprop, buffers.output_c_backprop, state_bytes(c_width_));
  }
  AlignedCopies copies(queue, execution.allocator);
  BackwardBuffers aligned = buffers;
  if (weights_.is_dense()) {
    CUDNN_RNN_RETURN_IF_ERROR(copies.Read(weights_.bytes(), &aligned.params));
    CUDNN_RNN_RETURN_IF_ERROR(copies.Write(weights_.bytes(), &aligned.params_backprop));
  }
  if (!options.keeps_reserve_space) {  // otherwise the workspace has a copy
    CUDNN_RNN_RETURN_IF_ERROR(copies.Read(reserve_space_bytes_, &aligned.reserve_space));
  }
  CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
  std::lock_guard<std::mutex> lock(model_->mutex());
  CUDNN_RNN_RETURN_IF_ERROR(QueueBackward(queue, aligned, options, ReadLengths(options)));
  return copies.Finish();
}

Status CudnnPlan::QueueBackward(const GpuQueue& queue, const BackwardBuffers& buffers,
                                const CallOptions& options, const Lengths& lengths) const {
  Workspace workspace;
  DescribeWorkspace(Pass::kBackward, options, !lengths.zero_rows.empty(), buffers.workspace,
                    &workspace);
  CUDNN_RNN_RETURN_IF_ERROR(SetLengths(queue, lengths.clamped));
  CUDNN_RNN_RETURN_IF_ERROR(StageLengths(queue, lengths, workspace.device_lengths));
  // cudnnRNNBackwardData overwrites the reserve space; cudnnRNNBackwardWeights reads the result.
  void* reserve_space = buffers.reserve_space;
  if (workspace.reserve_space != nullptr) {
    reserve_space = workspace.reserve_space;
    CUDNN_RNN_RETURN_IF_ERROR(
        queue.Copy(reserve_space, buffers.reserve_space, reserve_space_bytes_));
  }
  std::unique_lock<std::mutex> dropout_lock;
  if (dropout_ != nullptr) {
    CUDNN_RNN_RETURN_IF_ERROR(dropout_->BeginCall(queue, /*restarts=*/false, &dropout_lock));
  }
  const void *input, *initial_h;
  Status backward =
      QueueBackwardData(queue, buffers, lengths, workspace, reserve_space, &input, &initial_h);
  if (backward.ok()) {
    backward = QueueBackwardWeights(queue, buffers, workspace, reserve_space, input, initial_h);
  }
  if (dropout_ != nullptr) CUDNN_RNN_RETURN_IF_ERROR(dropout_->EndCall(queue));
  return backward;
}

// Returns the input and the initial h that it used, for QueueBackwardWeights.
Status CudnnPlan::QueueBackwardData(const GpuQueue& queue, const BackwardBuffers& buffers,
                                    const Lengths& lengths, const Workspace& workspace,
                                    void* reserve_space, const void** input,
                                    const void** initial_h) const {
  const bool is_lstm = config_.has_cell_state();
  const void *output_backprop, *final_h_backprop, *final_c_backprop = nullptr, *initial_c = nullptr,
                                                  *weights;
  CUDNN_RNN_RETURN_IF_ERROR(
      StageSequence(queue, lengths, buffers.input, input_width_, workspace.input, input));
  CUDNN_RNN_RETURN_IF_ERROR(StageSequence(queue, lengths, buffers.output_backprop, output_width_,
                                          workspace.output_backprop, &output_backprop));
  CUDNN_RNN_RETURN_IF_ERROR(
      StageState(queue, lengths, buffers.input_h, h_width_, workspace.initial_h, initial_h));
  CUDNN_RNN_RETURN_IF_ERROR(StageState(queue, lengths, buffers.output_h_backprop, h_width_,
                                       workspace.final_h, &final_h_backprop));
  if (is_lstm) {
    CUDNN_RNN_RETURN_IF_ERROR(
        StageState(queue, lengths, buffers.input_c, c_width_, workspace.initial_c, &initial_c));
    CUDNN_RNN_RETURN_IF_ERROR(StageState(queue, lengths, buffers.output_c_backprop, c_width_,
                                         workspace.final_c, &final_c_backprop));
  }
  CUDNN_RNN_RETURN_IF_ERROR(StageWeights(queue, buffers.params, workspace.weights, &weights));
  if (lengths.have_padding) {
    // cuDNN does not promise to write the gradient of the padding.
    CUDNN_RNN_RETURN_IF_ERROR(
        queue.Clear(buffers.input_backprop, shape_.num_steps * shape_.batch_size * input_width_));
  }
  const bool transposes = workspace.initial_h_backprop != nullptr;
  void* h_backprop = transposes ? workspace.initial_h_backprop : buffers.input_h_backprop;
  void* c_backprop = transposes ? workspace.initial_c_backprop : buffers.input_c_backprop;

  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(
      queue, cudnnRNNBackwardData_v8, queue.handle(), model_->get(), workspace.device_lengths,
      y_.get(), buffers.output, output_backprop, x_.get(), buffers.input_backprop, h_.get(),
      *initial_h, final_h_backprop, h_backprop, c_.get(), initial_c, final_c_backprop,
      is_lstm ? c_backprop : nullptr, static_cast<size_t>(weights_.bytes()), weights,
      static_cast<size_t>(cudnn_workspace_bytes_), workspace.cudnn,
      static_cast<size_t>(reserve_space_bytes_), reserve_space));

  CUDNN_RNN_RETURN_IF_ERROR(
      UnstageState(queue, h_width_, workspace.initial_h_backprop, buffers.input_h_backprop));
  CUDNN_RNN_RETURN_IF_ERROR(ClearFirstStep(queue, lengths, input_width_, buffers.input_backprop));
  CUDNN_RNN_RETURN_IF_ERROR(PassThroughState(queue, lengths, h_width_, buffers.output_h_backprop,
                                             buffers.input_h_backprop));
  if (!is_lstm) return Status();
  CUDNN_RNN_RETURN_IF_ERROR(
      UnstageState(queue, c_width_, workspace.initial_c_backprop, buffers.input_c_backprop));
  return PassThroughState(queue, lengths, c_width_, buffers.output_c_backprop,
                          buffers.input_c_backprop);
}

Status CudnnPlan::QueueBackwardWeights(const GpuQueue& queue, const BackwardBuffers& buffers,
                                       const Workspace& workspace, void* reserve_space,
                                       const void* input, const void* initial_h) const {
  const bool is_dense = workspace.weight_gradients == nullptr;
  void* gradients = is_dense ? buffers.params_backprop : workspace.weight_gradients;
  CUDNN_RNN_RETURN_IF_ERROR(queue.Clear(gradients, weights_.bytes()));  // cuDNN accumulates
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(
      queue, cudnnRNNBackwardWeights_v8, queue.handle(), model_->get(), kCudnnWeightGradientAdd,
      workspace.device_lengths, x_.get(), input, h_.get(), initial_h, y_.get(), buffers.output,
      static_cast<size_t>(weights_.bytes()), gradients, static_cast<size_t>(cudnn_workspace_bytes_),
      workspace.cudnn, static_cast<size_t>(reserve_space_bytes_), reserve_space));
  if (is_dense) return Status();
  return weights_.FromWeightSpace(queue, gradients, buffers.params_backprop);
}

Status CudnnPlan::StageSequence(const GpuQueue& queue, const Lengths& lengths, const void* source,
                                int64_t width, void* staging, const void** result) const {
  *result = source;
  if (staging == nullptr) return Status();
  *result = staging;
  CUDNN_RNN_RETURN_IF_ERROR(
      queue.Copy(staging, source, shape_.num_steps * shape_.batch_size * width));
  return ClearFirstStep(queue, lengths, width, staging);
}

Status CudnnPlan::StageState(const GpuQueue& queue, const Lengths& lengths, const void* source,
                             int64_t width, void* staging, const void** result) const {
  *result = source;
  if (staging == nullptr) return Status();
  *result = staging;
  const int64_t batch = shape_.batch_size;
  if (!transposes_states()) {
    CUDNN_RNN_RETURN_IF_ERROR(queue.Copy(staging, source, state_bytes(width)));
  }
  for (int64_t state = 0; state < num_states_; ++state) {
    char* rows = Offset(staging, state * batch * width);
    if (transposes_states()) {  // [B, L * D, width] -> [L * D, B, width]
      CUDNN_RNN_RETURN_IF_ERROR(queue.Copy2d(rows, Offset(source, state * width),
                                             {width, batch, num_states_ * width, width}));
    }
    for (const ZeroRows& zero : lengths.zero_rows) {
      CUDNN_RNN_RETURN_IF_ERROR(queue.Clear(rows + zero.first * width, zero.count * width));
    }
  }
  return Status();
}

Status CudnnPlan::StageWeights(const GpuQueue& queue, const void* params, void* staging,
                               const void** result) const {
  *result = params;
  if (staging == nullptr) return Status();
  *result = staging;
  return weights_.ToWeightSpace(queue, params, staging);
}

Status CudnnPlan::StageLengths(const GpuQueue& queue, const Lengths& lengths,
                               int32_t* staging) const {
  if (staging == nullptr) return Status();
  CUDNN_RNN_RETURN_IF_ERROR(
      queue.CheckNotCapturing("copying sequence lengths to the device, for cuDNN before 8.9.1,"));
  return queue.CopyFromHost(staging, lengths.clamped.data(),
                            shape_.batch_size * static_cast<int64_t>(sizeof(int32_t)));
}

Status CudnnPlan::UnstageState(const GpuQueue& queue, int64_t width, const void* staging,
                               void* target) const {
  if (staging == nullptr) return Status();
  for (int64_t state = 0; state < num_states_; ++state) {  // [L * D, B, *] -> [B, L * D, *]
    CUDNN_RNN_RETURN_IF_ERROR(queue.Copy2d(Offset(target, state * width),
                                           Offset(staging, state * shape_.batch_size * width),
                                           {width, shape_.batch_size, width, num_states_ * width}));
  }
  return Status();
}

Status CudnnPlan::ClearFirstStep(const GpuQueue& queue, const Lengths& lengths, int64_t width,
                                 void* sequence) const {
  for (const ZeroRows& zero : lengths.zero_rows) {
    if (shape_.time_major) {
      CUDNN_RNN_RETURN_IF_ERROR(
          queue.Clear(Offset(sequence, zero.first * width), zero.count * width));
      continue;
    }
    for (int64_t row = zero.first; row < zero.first + zero.count; ++row) {
      CUDNN_RNN_RETURN_IF_ERROR(
          queue.Clear(Offset(sequence, row * shape_.num_steps * width), width));
    }
  }
  return Status();
}

Status CudnnPlan::PassThroughState(const GpuQueue& queue, const Lengths& lengths, int64_t width,
                                   const void* source, void* target) const {
  for (const ZeroRows& zero : lengths.zero_rows) {
    if (shape_.time_major) {
      const int64_t pitch = shape_.batch_size * width;
      const int64_t first = zero.first * width;
      CUDNN_RNN_RETURN_IF_ERROR(queue.Copy2d(Offset(target, first), Offset(source, first),
                                             {zero.count * width, num_states_, pitch, pitch}));
    } else {
      const int64_t row_bytes = num_states_ * width;
      CUDNN_RNN_RETURN_IF_ERROR(queue.Copy(Offset(target, zero.first * row_bytes),
                                           Offset(source, zero.first * row_bytes),
                                           zero.count * row_bytes));
    }
  }
  return Status();
}

}  // namespace cudnn_rnn
