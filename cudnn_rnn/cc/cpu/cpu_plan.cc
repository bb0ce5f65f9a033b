#include "cudnn_rnn/cc/cpu/cpu_plan.h"

#include <algorithm>
#include <vector>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/reserve_space.h"
#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/backward_pass.h"
#include "cudnn_rnn/cc/cpu/buffer_exchange.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/forward_pass.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "cudnn_rnn/cc/cpu/reserve_contents.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {
namespace {

// Returns the cost of a forward pass in processor cycles: one multiply-add per row and parameter.
int64_t ForwardCost(int64_t num_rows, int64_t num_params) {
  constexpr double kMultiplyAddsPerCycle = 16;
  return Cycles(static_cast<double>(num_rows) * static_cast<double>(num_params) /
                kMultiplyAddsPerCycle);
}

// Returns the function for the reserve space of a tensor type.
Rearrangement<float> RearrangementOf(const Kernels<float>& kernels, Half) {
  return kernels.half.make_halves_finite;
}
Rearrangement<float> RearrangementOf(const Kernels<float>& kernels, Bfloat16) {
  return kernels.bfloat16.make_halves_finite;
}
template <typename Real>
Rearrangement<Real> RearrangementOf(const Kernels<Real>&, Real) {
  return nullptr;
}

// Storage is the element type of the caller's buffers, Real that of the engine. If Storage is
// Bfloat16, the factors of products may be rounded to bfloat16. The workspace holds, in order, the
// engine's workspace, the packed sequences, and copies of buffers not in the engine's form.
template <typename Storage, typename Real>
class CpuPlan : public RnnPlan {
 public:
  static Status Create(const RnnConfig& config, const ParamLayout& layout,
                       const SequenceShape& shape, const Kernels<Real>& kernels,
                       std::unique_ptr<RnnPlan>* plan) {
    std::unique_ptr<CpuPlan> created(new CpuPlan(config, layout, shape, kernels));
    CUDNN_RNN_RETURN_IF_ERROR(created->CheckSizes());
    *plan = std::move(created);
    return Status();
  }

  int64_t ReserveSpaceBytes() const override { return ReserveSpaceSize().value(); }
  int64_t ForwardWorkspaceBytes(const CallOptions& options) const override {
    // output_h and output_c count as states.
    return (EngineForwardBytes(options.is_training) +
            ExchangeSize(HasPadding(options), {/*inputs=*/1, /*outputs=*/1, /*states=*/2,
                                               NumCopiedParams(/*is_forward=*/true), 0}))
        .value();
  }
  int64_t BackwardWorkspaceBytes(const CallOptions& options) const override {
    return (EngineBackwardBytes(options.keeps_reserve_space) +
            RestoredBytes(options.keeps_reserve_space) +
            ExchangeSize(HasPadding(options), {/*inputs=*/2, /*outputs=*/2, /*states=*/3,
                                               NumCopiedParams(/*is_forward=*/false), num_params_}))
        .value();
  }

  PackedWeightsSpec PackedWeights(const CallOptions& options) const override {
    const std::vector<int32_t>& lengths = options.sequence_lengths;
    const bool has_steps = lengths.empty() || std::count(lengths.begin(), lengths.end(), 0) <
                                                  static_cast<int64_t>(lengths.size());
    const Packing packing = model_.schedule.recurrent_weights.value;
    const bool has_packed_weights = kConverts || packing != Packing::kNone;
    if (!has_packed_weights || options.is_training || IsEmpty(shape_) || !has_steps) {
      return PackedWeightsSpec();
    }
    Arena arena(nullptr);
    if (kConverts) arena.Take<Real>(NumCopiedParams(/*is_forward=*/true));
    cudnn_rnn::PackedWeights<Real>(model_, Pass::kInference, &arena);
    const ConfigKey model = KeyOf(WithoutDropout(config_));
    PackedWeightsSpec spec = {arena.used().value(), {model.begin(), model.end()}};
    spec.layout.push_back(static_cast<int64_t>(packing));
    spec.layout.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(&model_.kernels)));
    return spec;
  }

  Status Forward(const ForwardBuffers& buffers, const CallOptions& options,
                 const Execution& execution) const override {
    CUDNN_RNN_RETURN_IF_ERROR(CheckSequenceLengths(options.sequence_lengths, shape_));
    const bool is_training = options.is_training;
    Arena arena(static_cast<char*>(buffers.workspace) + EngineForwardBytes(is_training).value());
    const PackedSequences sequences = PackSequences(options, &arena);
    const BufferShapes shapes = ShapesOf(sequences);
    const auto run = [&](TeamMember* member) {
      const KernelThread<Real> thread(model_.kernels);
      Arena copies = arena;  // Each member computes the same addresses.
      const BufferExchange<Storage, Real> exchange(model_.kernels, &copies, member);
      ForwardTensors<Real> tensors;
      tensors.input = exchange.Read(buffers.input, shapes.input);
      tensors.input_h = exchange.Read(buffers.input_h, shapes.hidden);
      tensors.input_c = exchange.Read(buffers.input_c, shapes.cell);
      ReadParams(buffers, exchange, member, &tensors);
      tensors.output = exchange.OutputMemory(buffers.output, shapes.output);
      tensors.output_h = exchange.OutputMemory(buffers.output_h, shapes.hidden);
      tensors.output_c = exchange.OutputMemory(buffers.output_c, shapes.cell);
      tensors.reserve_space =
          is_training ? static_cast<char*>(buffers.reserve_space) + kReserveHeaderBytes : nullptr;
      tensors.workspace = buffers.workspace;
      RunForward(model_, tensors, sequences, is_training, options.dropout_call_index, member);
      exchange.Store(tensors.output, shapes.output, buffers.output);
      exchange.Store(tensors.output_h, shapes.hidden, buffers.output_h);
      exchange.Store(tensors.output_c, shapes.cell, buffers.output_c);
      if (is_training) {
        FinishReserveSpace(model_, sequences.num_rows(), rearrange_, tensors.reserve_space, member);
      }
    };
    RunOnThreads(/*is_backward=*/false, sequences.num_rows(), execution.runner, run);
    if (is_training) {
      WriteReserveHeader(IdentityOf(options, buffers.output_h), options.dropout_call_index,
                         buffers.reserve_space);
    }
    return Status();
  }

  Status Backward(const BackwardBuffers& buffers, const CallOptions& options,
                  const Execution& execution) const override {
    CUDNN_RNN_RETURN_IF_ERROR(CheckSequenceLengths(options.sequence_lengths, shape_));
    int64_t dropout_call_index;
    CUDNN_RNN_RETURN_IF_ERROR(ReadReserveHeader(IdentityOf(options, buffers.output_h),
                                                ReserveSpaceBytes(), buffers.reserve_space,
                                                buffers.reserve_space_bytes, &dropout_call_index));
    Arena arena(static_cast<char*>(buffers.workspace) +
                EngineBackwardBytes(options.keeps_reserve_space).value());
    char* const kept = static_cast<char*>(buffers.reserve_space) + kReserveHeaderBytes;
    // The engine may overwrite a copy.
    const bool has_copy = kConverts && options.keeps_reserve_space;
    char* const restored = has_copy ? arena.Take<char>(cudnn_rnn::ReserveSpaceBytes(model_)) : kept;
    const PackedSequences sequences = PackSequences(options, &arena);
    const BufferShapes shapes = ShapesOf(sequences);
    const auto run = [&](TeamMember* member) {
      const KernelThread<Real> thread(model_.kernels);
      Arena copies = arena;  // Each member computes the same addresses.
      const BufferExchange<Storage, Real> exchange(model_.kernels, &copies, member);
      BackwardTensors<Real> tensors;
      tensors.input = exchange.Read(buffers.input, shapes.input);
      tensors.input_h = exchange.Read(buffers.input_h, shapes.hidden);
      tensors.input_c = exchange.Read(buffers.input_c, shapes.cell);
      tensors.params = ReadParams(exchange, buffers.params, /*is_forward=*/false);
      tensors.output = exchange.Read(buffers.output, shapes.output);
      tensors.output_backprop = exchange.Read(buffers.output_backprop, shapes.output);
      tensors.output_h_backprop = exchange.Read(buffers.output_h_backprop, shapes.hidden);
      tensors.output_c_backprop = exchange.Read(buffers.output_c_backprop, shapes.cell);
      if (kConverts) {
        RestoreReserveSpace(model_, sequences.num_rows(), rearrange_, kept, restored, member);
      }
      tensors.reserve_space = restored;
      tensors.keeps_reserve_space = options.keeps_reserve_space && !has_copy;
      tensors.input_backprop = exchange.OutputMemory(buffers.input_backprop, shapes.input);
      tensors.input_h_backprop = exchange.OutputMemory(buffers.input_h_backprop, shapes.hidden);
      tensors.input_c_backprop = exchange.OutputMemory(buffers.input_c_backprop, shapes.cell);
      tensors.params_backprop =
          exchange.OutputMemory(buffers.params_backprop, VectorShape(num_params_));
      tensors.workspace = buffers.workspace;
      RunBackward(model_, tensors, sequences, dropout_call_index, member);
      exchange.Store(tensors.input_backprop, shapes.input, buffers.input_backprop);
      exchange.Store(tensors.input_h_backprop, shapes.hidden, buffers.input_h_backprop);
      exchange.Store(tensors.input_c_backprop, shapes.cell, buffers.input_c_backprop);
      exchange.Store(tensors.params_backprop, VectorShape(num_params_), buffers.params_backprop);
    };
    // The engine may overwrite it, also in a call that fails: invalidates the header for others.
    if (!options.keeps_reserve_space) {
      WriteReserveHeader(ReserveSpaceIdentity(), /*dropout_call_index=*/0, buffers.reserve_space);
    }
    RunOnThreads(/*is_backward=*/true, sequences.num_rows(), execution.runner, run);
    return Status();
  }

 private:
  CpuPlan(const RnnConfig& config, const ParamLayout& layout, const SequenceShape& shape,
          const Kernels<Real>& kernels)
      : model_(config, layout, shape, kernels) {}

  // The elements of `params` differ from the engine's.
  static constexpr bool kConverts = !std::is_same<Storage, Real>::value;

  struct BufferShapes {
    BufferShape input;
    BufferShape output;
    BufferShape hidden;
    BufferShape cell;
  };
  // Number of buffers of each kind in a call.
  struct BufferCounts {
    int64_t inputs;
    int64_t outputs;
    int64_t states;           // of h; as many of c
    CheckedSize read_params;  // elements of params
    CheckedSize written_params;
  };

  // Copies all parameters into the engine's type, or only biases if matrices are packed as they
  // are.
  ParamTensors<Real> ReadParams(const BufferExchange<Storage, Real>& exchange, const void* params,
                                bool is_forward) const {
    const int64_t count = NumCopiedParams(is_forward);
    const Storage* last = static_cast<const Storage*>(params) + (num_params_ - count);
    return ParamsOf(exchange.Read(last, VectorShape(count)), params, is_forward);
  }
  // `copied` are the last NumCopiedParams parameters.
  ParamTensors<Real> ParamsOf(const Real* copied, const void* params, bool is_forward) const {
    if (!model_.PacksBfloat16(is_forward)) {
      return {copied, nullptr, copied + model_.layout.first_bias()};
    }
    return {nullptr, static_cast<const uint16_t*>(params), copied};
  }
  int64_t NumCopiedParams(bool is_forward) const {
    return num_params_ - (model_.PacksBfloat16(is_forward) ? model_.layout.first_bias() : 0);
  }
  static BufferShape VectorShape(int64_t size) {
    return {{size, 1, /*time_major=*/true, nullptr, 1}, size, size, 1};
  }

  // Returns the bytes of the packed sequences and of the copies.
  CheckedSize ExchangeSize(bool has_padding, const BufferCounts& counts) const {
    Arena arena(nullptr);
    const auto take = [&arena](int64_t count, CheckedSize num_elements) {
      for (int64_t i = 0; i < count; ++i) arena.Take<Real>(num_elements);
    };
    if (has_padding) arena.Take<int64_t>(PackedSequences::NumElements(shape_));
    if (kConverts) take(1, counts.read_params);
    if (kConverts) take(1, counts.written_params);
    if (kConverts || has_padding || !shape_.time_major) {
      const CheckedSize rows = CheckedSize(shape_.num_steps) * shape_.batch_size;
      const CheckedSize state_rows = CheckedSize(num_pseudo_layers()) * shape_.batch_size;
      take(counts.inputs, rows * config_.input_size);
      take(counts.outputs, rows * model_.output_width);
      take(counts.states, state_rows * config_.output_size());
      take(counts.states, state_rows * cell_width());
    }
    return arena.used();
  }

  CheckedSize ReserveSpaceSize() const {
    return cudnn_rnn::ReserveSpaceBytes(model_) + kReserveHeaderBytes;
  }
  // Return the bytes of the engine's workspaces.
  CheckedSize EngineForwardBytes(bool is_training) const {
    return WorkspaceBytes<ForwardWorkspace<Real>>(model_,
                                                  is_training ? Pass::kTraining : Pass::kInference);
  }
  CheckedSize EngineBackwardBytes(bool keeps_reserve_space) const {
    const bool in_place = kConverts || !keeps_reserve_space;
    return WorkspaceBytes<BackwardWorkspace<Real>>(
        model_, in_place ? Pass::kBackwardInPlace : Pass::kBackward);
  }
  // Returns the bytes of a copy of the reserve space.
  CheckedSize RestoredBytes(bool keeps_reserve_space) const {
    return kConverts && keeps_reserve_space ? cudnn_rnn::ReserveSpaceBytes(model_) : 0;
  }

  Status CheckSizes() const {
    CheckedSize total = ReserveSpaceSize() +
                        ExchangeSize(/*has_padding=*/true, {2, 2, 3, num_params_, num_params_}) +
                        EngineBackwardBytes(true) + RestoredBytes(true) +
                        EngineForwardBytes(false) + EngineForwardBytes(true);
    // The caller's own buffers, which the workspaces need not hold copies of.
    const CheckedSize rows = CheckedSize(shape_.num_steps) * shape_.batch_size;
    const CheckedSize state_rows = CheckedSize(num_pseudo_layers()) * shape_.batch_size;
    total = total + (rows * (CheckedSize(config_.input_size) + model_.output_width) +
                     state_rows * config_.num_units) *
                        8;
    if (!total.overflowed()) return Status();
    return InvalidArgument("The model is too large for this input: with ", shape_.num_steps,
                           " steps and batch size ", shape_.batch_size, ", num_layers ",
                           config_.num_layers, ", num_units ", config_.num_units, ", input_size ",
                           config_.input_size, " need more bytes than 64 bits can count.");
  }

  void RunOnThreads(bool is_backward, int64_t num_rows, ParallelRunner* runner,
                    const Team::Program& program) const {
    const int64_t cost = (is_backward ? 2 : 1) * ForwardCost(num_rows, num_params_);
    RunTeam(runner, cost, program,
            model_.UsefulThreads(is_backward, cost, runner->min_cycles_to_wake()));
  }

  // Reads the parameters and points to the packed weights, which begin with the copied parameters
  // if these are converted.
  void ReadParams(const ForwardBuffers& buffers, const BufferExchange<Storage, Real>& exchange,
                  TeamMember* member, ForwardTensors<Real>* tensors) const {
    Arena packed(buffers.packed_weights);
    if (!kConverts || buffers.packed_weights == nullptr) {
      tensors->params = ReadParams(exchange, buffers.params, /*is_forward=*/true);
    } else if (buffers.packed_weights_are_ready) {
      tensors->params = ParamsOf(packed.Take<Real>(NumCopiedParams(/*is_forward=*/true)),
                                 buffers.params, /*is_forward=*/true);
    } else {
      const BufferExchange<Storage, Real> kept(model_.kernels, &packed, member);
      tensors->params = ReadParams(kept, buffers.params, /*is_forward=*/true);
    }
    tensors->packed_weights_are_ready = buffers.packed_weights_are_ready;
    tensors->packed_weights = nullptr;
    if (buffers.packed_weights != nullptr) {
      tensors->packed_weights = static_cast<char*>(buffers.packed_weights) + packed.used().value();
    }
  }

  bool HasPadding(const CallOptions& options) const {
    return cudnn_rnn::HasPadding(options.sequence_lengths, shape_);
  }

  // Full lengths need no packing.
  PackedSequences PackSequences(const CallOptions& options, Arena* arena) const {
    if (!HasPadding(options)) return PackedSequences(shape_);
    return PackedSequences(shape_, options.sequence_lengths.data(),
                           arena->Take<int64_t>(PackedSequences::NumElements(shape_)));
  }

  BufferShapes ShapesOf(const PackedSequences& sequences) const {
    const int64_t steps = shape_.num_steps, batch_size = shape_.batch_size;
    const int64_t rows = steps * batch_size, state_rows = num_pseudo_layers() * batch_size;
    const RowMap step_map = {steps, batch_size, shape_.time_major, sequences.positions(), rows};
    const RowMap state_map = {num_pseudo_layers(), batch_size, shape_.time_major, sequences.order(),
                              batch_size};
    return {{step_map, rows, sequences.num_rows(), config_.input_size},
            {step_map, rows, sequences.num_rows(), model_.output_width},
            {state_map, state_rows, state_rows, config_.output_size()},
            {state_map, state_rows, state_rows, cell_width()}};
  }

  ReserveSpaceIdentity IdentityOf(const CallOptions& options, const void* output_h) const {
    const int64_t elements = num_pseudo_layers() * shape_.batch_size * config_.output_size();
    ReserveSpaceIdentity identity =
        cudnn_rnn::IdentityOf(config_, shape_, options.sequence_lengths);
    identity.output_h = Fingerprint(output_h, elements * static_cast<int64_t>(sizeof(Storage)));
    return identity;
  }

  int64_t num_pseudo_layers() const { return config_.num_layers * config_.num_directions(); }
  // Buffers of c are empty if the cell has no cell state.
  int64_t cell_width() const { return config_.has_cell_state() ? config_.num_units : 0; }

  const EngineModel<Real> model_;
  const RnnConfig& config_ = model_.config;
  const SequenceShape& shape_ = model_.shape;
  const int64_t num_params_ = model_.layout.size();
  const Rearrangement<Real> rearrange_ = RearrangementOf(model_.kernels, Storage());
};

FactorFormat FactorFormatOf(const RnnConfig& config, const SequenceShape& shape) {
  const FactorFormat factors = FactorFormatOf(config.data_type, config.precision);
  const bool is_small = config.num_units < kMinUnitsToSplit || shape.num_steps < kMinStepsToSplit;
  const bool has_few_rows = factors == FactorFormat::kSplit &&
                            shape.batch_size < (is_small ? kMinSplitRowsIfSmall : kMinSplitRows);
  const bool uses_weights_once = config.data_type != DataType::kBfloat16 && IsDecodeStep(shape);
  return has_few_rows || uses_weights_once ? FactorFormat::kExact : factors;
}

template <typename Real>
Status ChooseKernels(const RnnConfig& config, const SequenceShape& shape,
                     const std::string& instruction_set, const Kernels<Real>** kernels) {
  const FactorFormat factors = FactorFormatOf(config, shape);
  CUDNN_RNN_RETURN_IF_ERROR(ChooseKernels<Real>(instruction_set, factors, kernels));
  if (factors != FactorFormat::kRounded) return Status();
  const Kernels<Real>* const for_few_rows = KernelsForFewRows(**kernels);
  if (for_few_rows != nullptr && ReadingLimitsSteps(config, shape, **kernels)) {
    *kernels = for_few_rows;
  }
  return Status();
}

template <typename Storage, typename Real>
Status Create(const RnnConfig& config, const SequenceShape& shape,
              const std::string& instruction_set, std::unique_ptr<RnnPlan>* plan) {
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
  const Kernels<Real>* kernels;
  CUDNN_RNN_RETURN_IF_ERROR(ChooseKernels(config, shape, instruction_set, &kernels));
  return CpuPlan<Storage, Real>::Create(config, layout, shape, *kernels, plan);
}

template <typename Real>
Status Explain(const RnnConfig& config, const SequenceShape& shape,
               const std::string& instruction_set, bool is_training, const ParallelRunner& runner,
               std::string* text) {
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
  const Kernels<Real>* kernels;
  CUDNN_RNN_RETURN_IF_ERROR(ChooseKernels(config, shape, instruction_set, &kernels));
  const int64_t cost = ForwardCost(shape.num_steps * shape.batch_size, layout.size());
  const int64_t useful =
      EngineModel<Real>(config, layout, shape, *kernels)
          .UsefulThreads(/*is_backward=*/false, cost, runner.min_cycles_to_wake());
  *text = ExplainSchedule(config, shape, *kernels, is_training,
                          {TeamSize(runner, cost, useful), runner.min_cycles_to_wait()});
  return Status();
}

}  // namespace

Status CreateCpuPlan(const RnnConfig& config, const SequenceShape& shape,
                     const std::string& instruction_set, std::unique_ptr<RnnPlan>* plan) {
  switch (config.data_type) {
    case DataType::kHalf:
      return Create<Half, float>(config, shape, instruction_set, plan);
    case DataType::kBfloat16:
      return Create<Bfloat16, float>(config, shape, instruction_set, plan);
    case DataType::kFloat:
      return Create<float, float>(config, shape, instruction_set, plan);
    case DataType::kDouble:
      break;
  }
  return Create<double, double>(config, shape, instruction_set, plan);
}

Status CreateCpuPlan(const RnnConfig& config, const SequenceShape& shape,
                     std::unique_ptr<RnnPlan>* plan) {
  return CreateCpuPlan(config, shape, std::string(), plan);
}

template <typename T>
Status CreateCpuPlan(const RnnConfig& config, const SequenceShape& shape, const Kernels<T>& kernels,
                     std::unique_ptr<RnnPlan>* plan) {
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
  return CpuPlan<T, T>::Create(config, layout, shape, kernels, plan);
}
template Status CreateCpuPlan(const RnnConfig&, const SequenceShape&, const Kernels<float>&,
                              std::unique_ptr<RnnPlan>*);
template Status CreateCpuPlan(const RnnConfig&, const SequenceShape&, const Kernels<double>&,
                              std::unique_ptr<RnnPlan>*);

Status ExplainCpuPlan(const RnnConfig& config, const SequenceShape& shape,
                      const std::string& instruction_set, bool is_training,
                      const ParallelRunner& runner, std::string* text) {
  const auto explain = config.data_type == DataType::kDouble ? Explain<double> : Explain<float>;
  return explain(config, shape, instruction_set, is_training, runner, text);
}

}  // namespace cudnn_rnn
