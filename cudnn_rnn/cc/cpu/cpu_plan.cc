#include "cudnn_rnn/cc/cpu/cpu_plan.h"

#include <algorithm>
#include <initializer_list>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/reserve_space.h"
#include "cudnn_rnn/cc/cpu/engine.h"
#include "cudnn_rnn/cc/cpu/half.h"

namespace cudnn_rnn {
namespace {

// Elements of each kind of buffer.
struct BufferSizes {
  CheckedSize input;
  CheckedSize state;
  CheckedSize params;
  CheckedSize output;
};

BufferSizes SizesOf(const RnnConfig& config, const ParamLayout& layout, int64_t num_steps,
                    int64_t batch_size) {
  const CheckedSize rows = CheckedSize(num_steps) * batch_size;
  const CheckedSize width = CheckedSize(config.num_directions()) * config.num_units;
  return {rows * config.input_size, width * config.num_layers * batch_size, layout.size(),
          rows * width};
}

// Storage is what the caller's buffers hold, Real what the engine computes in. Where they differ
// (half), the workspace holds copies in Real after the engine's own part.
template <typename Storage, typename Real>
class CpuPlan : public RnnPlan {
 public:
  static Status Create(const RnnConfig& config, const SequenceShape& shape,
                       const std::string& instruction_set, std::unique_ptr<RnnPlan>* plan) {
    ParamLayout layout;
    CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
    const Kernels<Real>* kernels;
    CUDNN_RNN_RETURN_IF_ERROR(ChooseKernels<Real>(instruction_set, &kernels));
    const BufferSizes sizes = SizesOf(config, layout, shape.num_steps, shape.batch_size);
    std::unique_ptr<CpuPlan> created(new CpuPlan(config, layout, shape, sizes, *kernels));
    CUDNN_RNN_RETURN_IF_ERROR(created->MeasureBuffers(shape.num_steps, shape.batch_size));
    *plan = std::move(created);
    return Status();
  }

  int64_t ReserveSpaceBytes() const override { return reserve_space_bytes_; }
  int64_t ForwardWorkspaceBytes(const CallOptions& options) const override {
    return options.is_training ? training_workspace_bytes_ : inference_workspace_bytes_;
  }
  int64_t BackwardWorkspaceBytes(const CallOptions&) const override {
    return backward_workspace_bytes_;
  }

  Status Forward(const ForwardBuffers& buffers, const CallOptions& options,
                 const Execution& execution) const override;
  Status Backward(const BackwardBuffers& buffers, const CallOptions& options,
                  const Execution& execution) const override;

 private:
  CpuPlan(const RnnConfig& config, const ParamLayout& layout, const SequenceShape& shape,
          const BufferSizes& sizes, const Kernels<Real>& kernels)
      : config_(config),
        sizes_(sizes),
        plan_fingerprint_(PlanFingerprint(config, shape)),
        engine_(config, layout, shape.num_steps, shape.batch_size, kernels) {}

  Status MeasureBuffers(int64_t num_steps, int64_t batch_size);

  static constexpr bool kConverts = !std::is_same<Storage, Real>::value;

  // A copy in Real, or the buffer itself where it is in Real already.
  const Real* Read(const void* buffer, CheckedSize size, Arena* arena,
                   ParallelRunner* runner) const;
  // Where the engine may write what Store then converts.
  Real* Room(void* buffer, CheckedSize size, Arena* arena) const;
  void Store(const Real* values, CheckedSize size, void* buffer, ParallelRunner* runner) const;

  int64_t cell_state_size() const { return config_.has_cell_state() ? sizes_.state.value() : 0; }

  const RnnConfig config_;
  const BufferSizes sizes_;
  const uint64_t plan_fingerprint_;
  const Engine<Real> engine_;
  int64_t reserve_space_bytes_ = 0;
  int64_t training_workspace_bytes_ = 0;
  int64_t inference_workspace_bytes_ = 0;
  int64_t backward_workspace_bytes_ = 0;
};

template <typename Storage, typename Real>
Status CpuPlan<Storage, Real>::MeasureBuffers(int64_t num_steps, int64_t batch_size) {
  CheckedSize forward_copies(0), backward_copies(0);
  if (kConverts) {
    Arena forward(nullptr), backward(nullptr);
    const CheckedSize state = sizes_.state;
    const CheckedSize params = sizes_.params;
    for (const CheckedSize& size :
         {sizes_.input, state, state, params, sizes_.output, state, state}) {
      forward.Take<Real>(size);
    }
    for (const CheckedSize& size :
         {sizes_.input, state, state, params, sizes_.output, sizes_.output, state, state,
          sizes_.input, state, state, params}) {
      backward.Take<Real>(size);
    }
    forward_copies = forward.used();
    backward_copies = backward.used();
  }
  const CheckedSize reserve_space = engine_.ReserveSpaceBytes() + kReserveHeaderBytes;
  const CheckedSize training = engine_.ForwardWorkspaceBytes(true) + forward_copies;
  const CheckedSize inference = engine_.ForwardWorkspaceBytes(false) + forward_copies;
  const CheckedSize backward = engine_.BackwardWorkspaceBytes() + backward_copies;
  const CheckedSize total = reserve_space + training + inference + backward +
                            (sizes_.input + sizes_.output + sizes_.state) * 8;
  if (total.overflowed()) {
    return InvalidArgument("The model is too large for this input: with ", num_steps,
                           " steps and batch size ", batch_size, ", num_layers ",
                           config_.num_layers, ", num_units ", config_.num_units, ", input_size ",
                           config_.input_size, " need more bytes than 64 bits can count.");
  }
  reserve_space_bytes_ = reserve_space.value();
  training_workspace_bytes_ = training.value();
  inference_workspace_bytes_ = inference.value();
  backward_workspace_bytes_ = backward.value();
  return Status();
}

constexpr int64_t kConversionBlock = 8192;
constexpr int64_t kConversionCycles = kConversionBlock * 4;

template <typename Function>
void ForBlocks(int64_t size, ParallelRunner* runner, const Function& function) {
  const int64_t num_blocks = (size + kConversionBlock - 1) / kConversionBlock;
  runner->Run(num_blocks, kConversionCycles, [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(size, end * kConversionBlock);
    for (int64_t i = begin * kConversionBlock; i < last; ++i) function(i);
  });
}

void Convert(const uint16_t* source, int64_t size, float* target, ParallelRunner* runner) {
  ForBlocks(size, runner, [=](int64_t i) { target[i] = HalfToFloat(source[i]); });
}

void Convert(const float* source, int64_t size, uint16_t* target, ParallelRunner* runner) {
  ForBlocks(size, runner, [=](int64_t i) { target[i] = FloatToHalf(source[i]); });
}

// Never called: where types agree nothing is converted.
template <typename T>
void Convert(const T*, int64_t, T*, ParallelRunner*) {}

template <typename Storage, typename Real>
const Real* CpuPlan<Storage, Real>::Read(const void* buffer, CheckedSize size, Arena* arena,
                                         ParallelRunner* runner) const {
  if (!kConverts) return static_cast<const Real*>(buffer);
  Real* values = arena->Take<Real>(size);
  if (buffer != nullptr) {
    Convert(static_cast<const Storage*>(buffer), size.value(), values, runner);
  }
  return values;
}

template <typename Storage, typename Real>
Real* CpuPlan<Storage, Real>::Room(void* buffer, CheckedSize size, Arena* arena) const {
  return kConverts ? arena->Take<Real>(size) : static_cast<Real*>(buffer);
}

template <typename Storage, typename Real>
void CpuPlan<Storage, Real>::Store(const Real* values, CheckedSize size, void* buffer,
                                   ParallelRunner* runner) const {
  if (kConverts && buffer != nullptr) {
    Convert(values, size.value(), static_cast<Storage*>(buffer), runner);
  }
}

template <typename Storage, typename Real>
Status CpuPlan<Storage, Real>::Forward(const ForwardBuffers& buffers, const CallOptions& options,
                                       const Execution& execution) const {
  const bool is_training = options.is_training;
  const int64_t dropout_call = options.dropout_call;
  ParallelRunner* const runner = execution.runner;
  char* workspace = static_cast<char*>(buffers.workspace);
  Arena copies(kConverts ? workspace + engine_.ForwardWorkspaceBytes(is_training).value()
                         : nullptr);
  const int64_t cells = cell_state_size();
  ForwardTensors<Real> tensors;
  tensors.input = Read(buffers.input, sizes_.input, &copies, runner);
  tensors.input_h = Read(buffers.input_h, sizes_.state, &copies, runner);
  tensors.input_c = Read(buffers.input_c, cells, &copies, runner);
  tensors.params = Read(buffers.params, sizes_.params, &copies, runner);
  tensors.output = Room(buffers.output, sizes_.output, &copies);
  tensors.output_h = Room(buffers.output_h, sizes_.state, &copies);
  tensors.output_c = Room(buffers.output_c, cells, &copies);
  tensors.reserve_space =
      is_training ? static_cast<char*>(buffers.reserve_space) + kReserveHeaderBytes : nullptr;
  tensors.workspace = workspace;
  engine_.Forward(tensors, is_training, dropout_call, runner);
  Store(tensors.output, sizes_.output, buffers.output, runner);
  Store(tensors.output_h, sizes_.state, buffers.output_h, runner);
  Store(tensors.output_c, cells, buffers.output_c, runner);
  if (is_training) {
    const int64_t state_bytes = sizes_.state.value() * static_cast<int64_t>(sizeof(Storage));
    WriteReserveHeader({plan_fingerprint_, Fingerprint(buffers.output_h, state_bytes)},
                       dropout_call, buffers.reserve_space);
  }
  return Status();
}

template <typename Storage, typename Real>
Status CpuPlan<Storage, Real>::Backward(const BackwardBuffers& buffers, const CallOptions&,
                                        const Execution& execution) const {
  ParallelRunner* const runner = execution.runner;
  const int64_t state_bytes = sizes_.state.value() * static_cast<int64_t>(sizeof(Storage));
  int64_t dropout_call;
  CUDNN_RNN_RETURN_IF_ERROR(ReadReserveHeader(
      {plan_fingerprint_, Fingerprint(buffers.output_h, state_bytes)}, reserve_space_bytes_,
      buffers.reserve_space, buffers.reserve_space_bytes, &dropout_call));
  char* workspace = static_cast<char*>(buffers.workspace);
  Arena copies(kConverts ? workspace + engine_.BackwardWorkspaceBytes().value() : nullptr);
  const int64_t cells = cell_state_size();
  BackwardTensors<Real> tensors;
  tensors.input = Read(buffers.input, sizes_.input, &copies, runner);
  tensors.input_h = Read(buffers.input_h, sizes_.state, &copies, runner);
  tensors.input_c = Read(buffers.input_c, cells, &copies, runner);
  tensors.params = Read(buffers.params, sizes_.params, &copies, runner);
  tensors.output = Read(buffers.output, sizes_.output, &copies, runner);
  tensors.output_backprop = Read(buffers.output_backprop, sizes_.output, &copies, runner);
  tensors.output_h_backprop = Read(buffers.output_h_backprop, sizes_.state, &copies, runner);
  tensors.output_c_backprop = Read(buffers.output_c_backprop, cells, &copies, runner);
  tensors.reserve_space = static_cast<const char*>(buffers.reserve_space) + kReserveHeaderBytes;
  tensors.input_backprop = Room(buffers.input_backprop, sizes_.input, &copies);
  tensors.input_h_backprop = Room(buffers.input_h_backprop, sizes_.state, &copies);
  tensors.input_c_backprop = Room(buffers.input_c_backprop, cells, &copies);
  tensors.params_backprop = Room(buffers.params_backprop, sizes_.params, &copies);
  tensors.workspace = workspace;
  engine_.Backward(tensors, dropout_call, runner);
  Store(tensors.input_backprop, sizes_.input, buffers.input_backprop, runner);
  Store(tensors.input_h_backprop, sizes_.state, buffers.input_h_backprop, runner);
  Store(tensors.input_c_backprop, cells, buffers.input_c_backprop, runner);
  Store(tensors.params_backprop, sizes_.params, buffers.params_backprop, runner);
  return Status();
}

}  // namespace

Status CreateCpuPlan(const RnnConfig& config, const SequenceShape& shape,
                     const std::string& instruction_set, std::unique_ptr<RnnPlan>* plan) {
  if (config.has_projection()) return Unimplemented("num_proj is not supported on a CPU yet.");
  switch (config.data_type) {
    case DataType::kHalf:
      return CpuPlan<uint16_t, float>::Create(config, shape, instruction_set, plan);
    case DataType::kBfloat16:
      return Unimplemented("bfloat16 is not supported on a CPU yet.");
    case DataType::kFloat:
      return CpuPlan<float, float>::Create(config, shape, instruction_set, plan);
    case DataType::kDouble:
      break;
  }
  return CpuPlan<double, double>::Create(config, shape, instruction_set, plan);
}

}  // namespace cudnn_rnn
