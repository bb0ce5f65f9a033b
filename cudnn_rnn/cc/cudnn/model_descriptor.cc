#include "cudnn_rnn/cc/cudnn/model_descriptor.h"

namespace cudnn_rnn {

int CudnnDataType(DataType data_type) {
  switch (data_type) {
    case DataType::kHalf:
      return kCudnnDataHalf;
    case DataType::kBfloat16:
      return kCudnnDataBfloat16;
    case DataType::kDouble:
      return kCudnnDataDouble;
    case DataType::kFloat:
      break;
  }
  return kCudnnDataFloat;
}

namespace {

int CudnnCellMode(RnnMode mode) {
  switch (mode) {
    case RnnMode::kRelu:
      return kCudnnRnnRelu;
    case RnnMode::kTanh:
      return kCudnnRnnTanh;
    case RnnMode::kGru:
      return kCudnnGru;
    case RnnMode::kLstm:
      break;
  }
  return kCudnnLstm;
}

int MathType(DataType data_type, bool allow_tf32) {
  switch (data_type) {
    case DataType::kHalf:
    case DataType::kBfloat16:
      return kCudnnTensorOpMath;
    case DataType::kFloat:  // kCudnnDefaultMath would let cuDNN use TF32.
      return allow_tf32 ? kCudnnDefaultMath : kCudnnFmaMath;
    case DataType::kDouble:
      break;
  }
  return kCudnnDefaultMath;
}

}  // namespace

Status ModelDescriptor::Create(const GpuQueue& queue, const RnnConfig& config,
                               const Choices& choices, int64_t batch_size,
                               std::shared_ptr<DropoutState> dropout,
                               std::shared_ptr<ModelDescriptor>* descriptor) {
  std::shared_ptr<ModelDescriptor> created(new ModelDescriptor());
  created->dropout_ = std::move(dropout);
  CUDNN_RNN_RETURN_IF_ERROR(created->rnn_.Create(queue, "cudnnCreateRNNDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(
      created->dropout_descriptor_.Create(queue, "cudnnCreateDropoutDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(created->Set(queue, config, choices));
  if (choices.algorithm == Algorithm::kPersistDynamic) {
    CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(queue, cudnnBuildRNNDynamic, queue.handle(),
                                                   created->get(), static_cast<int>(batch_size)));
  }
  *descriptor = std::move(created);
  return Status();
}

Status ModelDescriptor::Set(const GpuQueue& queue, const RnnConfig& config,
                            const Choices& choices) {
  if (dropout_ != nullptr) {
    CUDNN_RNN_RETURN_IF_ERROR(dropout_->Attach(queue, &dropout_descriptor_));
  } else {
    CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(queue, cudnnSetDropoutDescriptor,
                                                   dropout_descriptor_.get(), queue.handle(), 0.0f,
                                                   nullptr, 0, 0));
  }
  const int data_type = CudnnDataType(config.data_type);
  const bool computes_in_float = data_type != kCudnnDataDouble;
  return CUDNN_RNN_CUDNN_CALL(
      queue, cudnnSetRNNDescriptor_v8, rnn_.get(), CudnnAlgorithmOf(choices.algorithm),
      CudnnCellMode(config.mode), kCudnnDoubleBias,
      config.direction == Direction::kBidirectional ? kCudnnBidirectional : kCudnnUnidirectional,
      config.skips_input_projection() ? kCudnnSkipInput : kCudnnLinearInput, data_type,
      computes_in_float ? kCudnnDataFloat : kCudnnDataDouble,
      MathType(config.data_type, choices.allow_tf32), static_cast<int32_t>(config.input_size),
      static_cast<int32_t>(config.num_units), static_cast<int32_t>(config.output_size()),
      static_cast<int32_t>(config.num_layers), dropout_descriptor_.get(),
      choices.is_padded ? kCudnnPaddedIoEnabled : kCudnnPaddedIoDisabled);
}

}  // namespace cudnn_rnn
