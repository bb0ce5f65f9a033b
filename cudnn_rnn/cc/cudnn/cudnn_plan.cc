#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

#include <algorithm>
#include <limits>

#include "cudnn_rnn/cc/cudnn/device_memory.h"

namespace cudnn_rnn {
namespace {

// cudnnSetRNNDataDescriptor refuses more steps, in every layout and for every algorithm (called in
// cuDNN 9.28, without a device; github.com/pytorch/pytorch/issues/133751 on a device).
constexpr int64_t kMaxSteps = 65535;
// cuDNN counts elements in 32 bits.
constexpr int64_t kMaxElements = std::numeric_limits<int>::max();

Status BeyondCudnn(const std::string& what, const std::string& limit, const std::string& found) {
  return InvalidArgument(what, " must be ", limit,
                         " on a GPU, because cuDNN counts in 32 bits, but is ", found,
                         ". Run the op on a CPU, or divide the batch.");
}

std::string DescribeRun(const RnnConfig& config, const SequenceShape& shape, Algorithm algorithm) {
  return Concatenate("running ", Describe(config), ", ", shape.num_steps, " steps, batch ",
                     shape.batch_size, ", algorithm ", Name(algorithm));
}

}  // namespace

CudnnPlan::CudnnPlan(GpuRuntime* runtime, const RnnConfig& config, const SequenceShape& shape,
                     const Choices& choices, const ParamLayout& layout,
                     std::shared_ptr<DropoutState> dropout)
    : runtime_(runtime),
      config_(config),
      shape_(shape),
      choices_(choices),
      layout_(layout),
      dropout_(std::move(dropout)),
      description_(DescribeRun(config, shape, choices.algorithm)),
      num_states_(config.num_layers * config.num_directions()),
      input_width_(config.input_size * SizeOf(config.data_type)),
      output_width_(config.num_directions() * config.output_size() * SizeOf(config.data_type)),
      h_width_(config.output_size() * SizeOf(config.data_type)),
      c_width_(config.num_units * SizeOf(config.data_type)) {}

Status CudnnPlan::Create(const GpuQueue& queue, const RnnConfig& config, const SequenceShape& shape,
                         const Choices& choices, std::shared_ptr<DropoutState> dropout,
                         std::shared_ptr<ModelDescriptor>* model,
                         std::shared_ptr<CudnnPlan>* plan) {
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
  std::shared_ptr<CudnnPlan> created(
      new CudnnPlan(queue.runtime(), config, shape, choices, layout, std::move(dropout)));
  CUDNN_RNN_RETURN_IF_ERROR(created->CheckSizes());
  if (!created->is_empty()) {
    if (*model == nullptr) {
      CUDNN_RNN_RETURN_IF_ERROR(ModelDescriptor::Create(queue, config, choices, shape.batch_size,
                                                        created->dropout_, model));
    }
    created->model_ = *model;
    CUDNN_RNN_RETURN_IF_ERROR(created->CreateDescriptors(queue));
  }
  CUDNN_RNN_RETURN_IF_ERROR(created->CheckWorkspace());
  *plan = std::move(created);
  return Status();
}

// Checks cuDNN's limits, and that the bytes of all buffers together fit into 64 bits.
Status CudnnPlan::CheckSizes() const {
  if (!is_empty()) CUDNN_RNN_RETURN_IF_ERROR(CheckLimitsOfCudnn());
  const CheckedSize rows = CheckedSize(shape_.num_steps) * shape_.batch_size;
  const CheckedSize total =
      rows * (CheckedSize(input_width_) + output_width_) * 4 +
      CheckedSize(num_states_) * shape_.batch_size * (h_width_ + c_width_) * 8;
  return total.overflowed() ? TooLarge() : Status();
}

Status CudnnPlan::CheckLimitsOfCudnn() const {
  const char* const reason = WhyNotSupported(choices_.algorithm, config_, choices_.is_padded);
  if (reason != nullptr) {
    return Unimplemented(Concatenate("cuDNN's algorithm ", Name(choices_.algorithm), " ", reason,
                                     "; the model is ", Describe(config_), "."));
  }
  if (shape_.num_steps > kMaxSteps) {
    return InvalidArgument("The number of steps must be at most ", kMaxSteps,
                           " on a GPU, because cuDNN accepts no longer sequences, but is ",
                           shape_.num_steps, ". Run the op on a CPU, or divide the sequences.");
  }
  const struct {
    const char* name;
    int64_t value;
  } sizes[] = {{"num_layers * directions", num_states_},
               {"num_units", config_.num_units},
               {"directions * output size", config_.num_directions() * config_.output_size()},
               {"input_size", config_.input_size},
               {"the batch size", shape_.batch_size}};
  for (const auto& size : sizes) {
    if (size.value <= kMaxElements) continue;
    return BeyondCudnn(size.name, "below 2^31", Concatenate(size.value));
  }
  const int64_t width = std::max(config_.num_units, config_.output_size());
  if (kMaxElements < CheckedSize(num_states_) * shape_.batch_size * width) {
    return BeyondCudnn("num_layers * directions * batch size * width of a state", "below 2^31",
                       Concatenate(num_states_, " * ", shape_.batch_size, " * ", width));
  }
  const int64_t vector_size =
      std::max(config_.input_size, config_.num_directions() * config_.output_size());
  const bool counts_all = choices_.is_padded || config_.skips_input_projection();
  if (counts_all &&
      kMaxElements < CheckedSize(shape_.num_steps) * shape_.batch_size * vector_size) {
    return BeyondCudnn(
        "With padding, batch-major data or skip_input, steps * batch size * width of a sequence",
        "below 2^31", Concatenate(shape_.num_steps, " * ", shape_.batch_size, " * ", vector_size));
  }
  return Status();
}

// Checks that the size of the largest workspace fits into 64 bits.
Status CudnnPlan::CheckWorkspace() const {
  CallOptions options;
  options.keeps_reserve_space = true;
  Workspace workspace;
  const CheckedSize largest =
      DescribeWorkspace(Pass::kBackward, options, /*has_zero_lengths=*/true, nullptr, &workspace);
  return largest.overflowed() ? TooLarge() : Status();
}

Status CudnnPlan::TooLarge() const {
  return InvalidArgument("The model is too large for this input: ", Describe(config_), ", with ",
                         shape_.num_steps, " steps and batch size ", shape_.batch_size,
                         " needs more bytes than a 64-bit integer can count.");
}

Status CudnnPlan::CreateDescriptors(const GpuQueue& queue) {
  CUDNN_RNN_RETURN_IF_ERROR(x_.Create(queue, "cudnnCreateRNNDataDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(y_.Create(queue, "cudnnCreateRNNDataDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(h_.Create(queue, "cudnnCreateTensorDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(c_.Create(queue, "cudnnCreateTensorDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(SetStateDescriptor(queue, config_.output_size(), h_));
  CUDNN_RNN_RETURN_IF_ERROR(SetStateDescriptor(queue, config_.num_units, c_));
  CUDNN_RNN_RETURN_IF_ERROR(
      SetLengths(queue, std::vector<int>(static_cast<size_t>(shape_.batch_size),
                                         static_cast<int>(shape_.num_steps))));
  CUDNN_RNN_RETURN_IF_ERROR(
      WeightRegions::Create(queue, model_->get(), config_, layout_, &weights_));
  size_t workspace_bytes = 0, reserve_space_bytes = 0;
  CUDNN_RNN_RETURN_IF_ERROR(
      CUDNN_RNN_CUDNN_CALL(queue, cudnnGetRNNTempSpaceSizes, queue.handle(), model_->get(),
                           choices_.is_training ? kCudnnForwardTraining : kCudnnForwardInference,
                           x_.get(), &workspace_bytes, &reserve_space_bytes));
  cudnn_workspace_bytes_ = static_cast<int64_t>(workspace_bytes);
  reserve_space_bytes_ = choices_.is_training ? static_cast<int64_t>(reserve_space_bytes) : 0;
  return Status();
}

// Sets `target` to shape [L * D, B, width], packed.
Status CudnnPlan::SetStateDescriptor(const GpuQueue& queue, int64_t width,
                                     const TensorDescriptor& target) {
  const int dimensions[] = {static_cast<int>(num_states_), static_cast<int>(shape_.batch_size),
                            static_cast<int>(width)};
  const int strides[] = {static_cast<int>(shape_.batch_size * width), static_cast<int>(width), 1};
  return CUDNN_RNN_CUDNN_CALL(queue, cudnnSetTensorNdDescriptor, target.get(),
                              CudnnDataType(config_.data_type), 3, dimensions, strides);
}

Status CudnnPlan::SetLengths(const GpuQueue& queue, const std::vector<int>& lengths) const {
  if (lengths == lengths_) return Status();
  lengths_.clear();  // not valid until both descriptors are set
  const int data_type = CudnnDataType(config_.data_type);
  const int layout = !shape_.time_major   ? kCudnnLayoutBatchMajorPadded
                     : choices_.is_padded ? kCudnnLayoutTimeMajorPadded
                                          : kCudnnLayoutTimeMajorPacked;
  double zero = 0;  // all bits are 0: zero in every data type
  const struct {
    const RnnDataDescriptor& descriptor;
    int64_t vector_size;
  } sequences[] = {{x_, config_.input_size},
                   {y_, config_.num_directions() * config_.output_size()}};
  for (const auto& sequence : sequences) {
    CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(
        queue, cudnnSetRNNDataDescriptor, sequence.descriptor.get(), data_type, layout,
        static_cast<int>(shape_.num_steps), static_cast<int>(shape_.batch_size),
        static_cast<int>(sequence.vector_size), lengths.data(), &zero));
  }
  lengths_ = lengths;
  return Status();
}

CudnnPlan::Lengths CudnnPlan::ReadLengths(const CallOptions& options) const {
  Lengths lengths;
  lengths.have_padding = HasPadding(options.sequence_lengths, shape_);
  lengths.clamped.assign(static_cast<size_t>(shape_.batch_size),
                         static_cast<int>(shape_.num_steps));
  for (size_t i = 0; i < options.sequence_lengths.size(); ++i) {
    const int64_t b = static_cast<int64_t>(i);
    const int length = options.sequence_lengths[i];
    lengths.clamped[i] = length > 0 ? length : 1;
    if (length > 0) continue;
    std::vector<ZeroRows>& zero_rows = lengths.zero_rows;
    if (!zero_rows.empty() && zero_rows.back().first + zero_rows.back().count == b) {
      ++zero_rows.back().count;
    } else {
      zero_rows.push_back({b, 1});
    }
  }
  return lengths;
}

CheckedSize CudnnPlan::DescribeWorkspace(Pass pass, const CallOptions& options,
                                         bool has_zero_lengths, void* memory,
                                         Workspace* workspace) const {
  *workspace = Workspace();
  if (is_empty()) return 0;
  const bool is_backward = pass == Pass::kBackward;
  const bool is_lstm = config_.has_cell_state();
  // In inference, the contents of one row do not affect any other row.
  const bool clears_zero_rows = has_zero_lengths && choices_.is_training;
  const CheckedSize rows = CheckedSize(shape_.num_steps) * shape_.batch_size;
  const int64_t h_bytes = state_bytes(h_width_);
  const int64_t c_bytes = is_lstm ? state_bytes(c_width_) : 0;
  Arena arena(AlignUp(memory), kDeviceAlignment);
  workspace->cudnn = arena.Take<char>(cudnn_workspace_bytes_);
  if (!weights_.is_dense()) {
    workspace->weights = arena.Take<char>(weights_.bytes());
    if (is_backward) workspace->weight_gradients = arena.Take<char>(weights_.bytes());
  }
  if (runtime_->libraries->cudnn_version < kCudnnVersionWithoutDeviceLengths) {
    workspace->device_lengths = arena.Take<int32_t>(shape_.batch_size);
  }
  if (is_backward && options.keeps_reserve_space) {
    workspace->reserve_space = arena.Take<char>(reserve_space_bytes_);
  }
  if (clears_zero_rows) workspace->input = arena.Take<char>(rows * input_width_);
  if (clears_zero_rows && is_backward)
    workspace->output_backprop = arena.Take<char>(rows * output_width_);
  if (transposes_states() || clears_zero_rows) {
    workspace->initial_h = arena.Take<char>(h_bytes);
    if (is_lstm) workspace->initial_c = arena.Take<char>(c_bytes);
  }
  if (transposes_states() || (clears_zero_rows && is_backward)) {
    workspace->final_h = arena.Take<char>(h_bytes);
    if (is_lstm) workspace->final_c = arena.Take<char>(c_bytes);
  }
  if (transposes_states() && is_backward) {
    workspace->initial_h_backprop = arena.Take<char>(h_bytes);
    if (is_lstm) workspace->initial_c_backprop = arena.Take<char>(c_bytes);
  }
  return arena.used() + (kDeviceAlignment - 1);  // for AlignUp
}

int64_t CudnnPlan::WorkspaceBytes(Pass pass, const CallOptions& options) const {
  const std::vector<int32_t>& lengths = options.sequence_lengths;
  const bool has_zero_lengths = std::find(lengths.begin(), lengths.end(), 0) != lengths.end();
  Workspace workspace;
  return DescribeWorkspace(pass, options, has_zero_lengths, nullptr, &workspace).value();
}

int64_t CudnnPlan::ForwardWorkspaceBytes(const CallOptions& options) const {
  return WorkspaceBytes(Pass::kForward, options);
}

int64_t CudnnPlan::BackwardWorkspaceBytes(const CallOptions& options) const {
  return WorkspaceBytes(Pass::kBackward, options);
}

}  // namespace cudnn_rnn
