#include "cudnn_rnn/cc/cpu/engine.h"

#include <algorithm>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine_layers.h"
#include "cudnn_rnn/cc/cpu/engine_steps.h"

namespace cudnn_rnn {
namespace {

// Maximum rows of a single step for which weights are not packed as a whole; see docs/engine.md.
constexpr int64_t kMaxUnpackedRows = 32;

// In processor cycles. A step that costs less is not worth sharing among any number of threads, so
// workspace is reserved for running layers side by side.
constexpr int64_t kStepWorthSharing = 4000;

// The wavefront's blocks. With many blocks per layer, little time is lost while the wavefront fills
// and drains; with several steps per block, a block is worth a barrier and its input products fill
// a tile.
constexpr int64_t kBlocksPerLayer = 8;
constexpr int64_t kStepsOfABlock = 8;

template <typename T>
const CellKernels<T>& CellOf(const Kernels<T>& kernels, RnnMode mode) {
  switch (mode) {
    case RnnMode::kLstm:
      return kernels.lstm;
    case RnnMode::kGru:
      return kernels.gru;
    case RnnMode::kRelu:
      return kernels.relu;
    case RnnMode::kTanh:
      break;
  }
  return kernels.tanh;
}

}  // namespace

template <typename T>
Engine<T>::Engine(const RnnConfig& config, const ParamLayout& layout, const SequenceShape& shape,
                  const Kernels<T>& kernels)
    : config_(config),
      layout_(layout),
      kernels_(kernels),
      cell_(CellOf(kernels, config.mode)),
      is_decode_step_(shape.num_steps == 1 && shape.batch_size <= kMaxUnpackedRows),
      batch_size_(shape.batch_size),
      max_rows_(CheckedSize(shape.num_steps) * shape.batch_size),
      units_(config.num_units),
      output_size_(config.output_size()),
      gates_(config.num_gates()),
      gate_width_(gates_ * units_),
      directions_(config.num_directions()),
      output_width_(directions_ * output_size_),
      recurrent_panel_size_(PanelSize(kernels, output_size_)),
      recurrent_gate_size_(NumPanels(kernels, units_) * recurrent_panel_size_),
      layers_at_once_(directions_ == 1 && shape.num_steps >= 2 * kStepsOfABlock &&
                              StepCost() < kStepWorthSharing
                          ? config.num_layers
                          : 1),
      packs_input_weights_(!is_decode_step_ && (layers_at_once_ > 1 ||
                                                CheckedSize(kMaxRowsOfPackedTiles) < max_rows_)) {}

template <typename T>
CheckedSize Engine<T>::ReserveSpaceBytes() const {
  Arena arena(nullptr);
  ReserveSpace reserve;
  DescribeReserveSpace(0, &arena, &reserve);
  const CheckedSize inner = arena.used() * (config_.num_layers - 1);
  Arena last(nullptr);
  DescribeReserveSpace(config_.num_layers - 1, &last, &reserve);
  return inner + last.used();
}

// All layers but the last take the same size.
template <typename T>
void Engine<T>::DescribeReserveSpace(int64_t layer, Arena* arena, ReserveSpace* reserve) const {
  *reserve = ReserveSpace();
  for (int64_t d = 0; d < directions_; ++d) {
    if (gates_ > 1) {
      reserve->gates[d] = arena->Take<T>(max_rows_ * gate_width_);
      reserve->units[d] = arena->Take<T>(max_rows_ * units_);
    }
    if (config_.has_projection()) reserve->unprojected[d] = arena->Take<T>(max_rows_ * units_);
  }
  if (layer + 1 < config_.num_layers) reserve->output = arena->Take<T>(max_rows_ * output_width_);
}

template <typename T>
typename Engine<T>::ReserveSpace Engine<T>::ReserveOf(int64_t layer, void* reserve_space) const {
  Arena measure(nullptr);
  ReserveSpace reserve;
  DescribeReserveSpace(0, &measure, &reserve);
  Arena arena(static_cast<char*>(reserve_space) + layer * measure.used().value());
  DescribeReserveSpace(layer, &arena, &reserve);
  return reserve;
}

template <typename T>
int64_t Engine<T>::WidestInput() const {
  return std::max(config_.skips_input_projection() ? 0 : config_.input_size,
                  config_.num_layers > 1 ? output_width_ : 0);
}

template <typename T>
CheckedSize Engine<T>::ForwardWorkspaceBytes(bool is_training) const {
  Arena arena(nullptr);
  ForwardWorkspace workspace;
  DescribeForwardWorkspace(is_training, &arena, &workspace);
  return arena.used();
}

template <typename T>
void Engine<T>::DescribeForwardWorkspace(bool is_training, Arena* arena,
                                         ForwardWorkspace* workspace) const {
  const bool several = config_.num_layers > 1;
  *workspace = ForwardWorkspace();
  if (!is_decode_step_) {
    const CheckedSize inputs =
        PackedElements(gate_width_, packs_input_weights_ ? WidestInput() : 0);
    const CheckedSize recurrent = PackedElements(units_, output_size_) * (directions_ * gates_);
    if (layers_at_once_ > 1) {
      workspace->packed_input_weights = arena->Take<T>(inputs * layers_at_once_);
      workspace->packed_recurrent = arena->Take<T>(recurrent * layers_at_once_);
    } else {  // W is no longer needed when R is packed.
      workspace->packed_input_weights = arena->Take<T>(std::max(inputs, recurrent));
      workspace->packed_recurrent = workspace->packed_input_weights;
    }
    if (config_.has_projection()) {
      workspace->packed_projection =
          arena->Take<T>(PackedElements(output_size_, units_) * (directions_ * layers_at_once_));
    }
  }
  workspace->bias = arena->Take<T>(CheckedSize(gate_width_) * layers_at_once_);
  const CheckedSize batch(batch_size_);
  for (int64_t d = 0; d < directions_; ++d) {
    if (!is_training || gates_ == 1) {
      workspace->gates[d] = arena->Take<T>(max_rows_ * gate_width_);
      if (is_decode_step_ && config_.mode == RnnMode::kGru) {
        workspace->candidates[d] = arena->Take<T>(batch * units_);
      }
      if (config_.has_projection()) {
        workspace->unprojected[d] = arena->Take<T>(batch * units_ * layers_at_once_);
      }
    }
  }
  if (several && !is_training) {
    workspace->outputs[0] = arena->Take<T>(max_rows_ * output_width_);
    if (config_.num_layers > 2) workspace->outputs[1] = arena->Take<T>(max_rows_ * output_width_);
  }
  if (several && is_training && config_.dropout > 0) {
    workspace->dropped = arena->Take<T>(max_rows_ * output_width_);
  }
}

template <typename T>
void Engine<T>::CopyHiddenStates(const T* source, T* target) const {
  std::copy_n(source, config_.num_layers * directions_ * batch_size_ * output_size_, target);
}

template <typename T>
void Engine<T>::CopyCellStates(const T* source, T* target) const {
  if (!config_.has_cell_state()) return;
  std::copy_n(source, config_.num_layers * directions_ * batch_size_ * units_, target);
}

template <typename T>
void Engine<T>::Forward(const ForwardTensors<T>& tensors, const PackedSequences& sequences,
                        bool is_training, int64_t dropout_call_index, TeamMember* member) const {
  if (sequences.num_rows() == 0) {  // No steps: the states pass through unchanged.
    member->Single([&] {
      CopyHiddenStates(tensors.input_h, tensors.output_h);
      CopyCellStates(tensors.input_c, tensors.output_c);
    });
    return;
  }
  Arena arena(tensors.workspace);
  ForwardWorkspace workspace;
  DescribeForwardWorkspace(is_training, &arena, &workspace);
  const std::vector<ForwardLayer> layers =
      ForwardLayers(tensors, workspace, sequences, is_training, dropout_call_index);
  if (RunsWavefronts(sequences, member)) {
    RunForwardSideBySide(layers, member);
  } else {
    for (const ForwardLayer& layer : layers) RunForwardLayer(layer, member);
  }
}

template <typename T>
std::vector<typename Engine<T>::ForwardLayer> Engine<T>::ForwardLayers(
    const ForwardTensors<T>& tensors, const ForwardWorkspace& workspace,
    const PackedSequences& sequences, bool is_training, int64_t dropout_call_index) const {
  std::vector<ForwardLayer> layers(static_cast<size_t>(config_.num_layers));
  const T* input = tensors.input;
  for (int64_t l = 0; l < config_.num_layers; ++l) {
    const bool last = l + 1 == config_.num_layers;
    const ReserveSpace reserve = is_training ? ReserveOf(l, tensors.reserve_space) : ReserveSpace();
    const int64_t place = l % layers_at_once_;
    ForwardLayer& layer = layers[static_cast<size_t>(l)];
    layer.index = l;
    layer.sequences = &sequences;
    layer.tensors = &tensors;
    layer.packed_input_weights = PartOf(workspace.packed_input_weights, place,
                                        PackedElements(gate_width_, WidestInput()).value());
    layer.packed_recurrent = PartOf(workspace.packed_recurrent, place,
                                    directions_ * PackedRecurrentSize(/*transposed=*/false));
    layer.packed_projection = PartOf(workspace.packed_projection, place,
                                     directions_ * PackedProjectionSize(/*transposed=*/false));
    layer.bias = workspace.bias + place * gate_width_;
    layer.input = input;
    layer.output = last ? tensors.output : is_training ? reserve.output : workspace.outputs[l % 2];
    layer.dropped = last ? nullptr : workspace.dropped;
    layer.dropout = {config_.dropout, config_.seed, config_.seed2, dropout_call_index, l + 1};
    layer.keeps_units = is_training && gates_ > 1;
    for (int64_t d = 0; d < directions_; ++d) {
      layer.gates[d] = layer.keeps_units ? reserve.gates[d] : workspace.gates[d];
      layer.units[d] = layer.keeps_units ? reserve.units[d] : workspace.candidates[d];
      layer.unprojected[d] = layer.keeps_units
                                 ? reserve.unprojected[d]
                                 : PartOf(workspace.unprojected[d], place, batch_size_ * units_);
    }
    input = layer.dropped != nullptr ? layer.dropped : layer.output;
  }
  return layers;
}

template <typename T>
void Engine<T>::RunForwardLayer(const ForwardLayer& layer, TeamMember* member) const {
  const StepRange steps = AllSteps(*layer.sequences);
  for (int64_t d = 0; d < directions_; ++d) {
    PrepareInputProducts(layer, d, member);
    ComputeInputProducts(layer, d, steps, member);
  }
  if (is_decode_step_) {
    RunSingleStep(layer, member);
  } else {
    PackStepWeights(layer, member);
    RunForwardSteps(layer, steps, member);
  }
  StoreFinalStates(layer, steps, member);
  DropOutput(layer, steps, member);
}

template <typename T>
int64_t Engine<T>::NumStepBlocks(const PackedSequences& sequences) const {
  return std::min(kBlocksPerLayer * config_.num_layers, sequences.num_steps() / kStepsOfABlock);
}

template <typename T>
typename Engine<T>::StepRange Engine<T>::BlockOf(const PackedSequences& sequences,
                                                 int64_t block) const {
  const int64_t num_blocks = NumStepBlocks(sequences);
  return {sequences.num_steps() * block / num_blocks,
          sequences.num_steps() * (block + 1) / num_blocks};
}

template <typename T>
bool Engine<T>::RunsWavefronts(const PackedSequences& sequences, TeamMember* member) const {
  return layers_at_once_ > 1 && member->team_size() > 1 && !member->Shares(StepCost()) &&
         NumStepBlocks(sequences) > 1;
}

// The layers share the workspace's buffers of N rows; each uses the rows of its own block.
template <typename T>
void Engine<T>::RunForwardSideBySide(const std::vector<ForwardLayer>& layers,
                                     TeamMember* member) const {
  for (const ForwardLayer& layer : layers) {
    PrepareInputProducts(layer, /*direction=*/0, member);
    PackStepWeights(layer, member);
  }
  const PackedSequences& sequences = *layers[0].sequences;
  const auto advance = [&](int64_t position, int64_t block, TeamMember* worker) {
    const ForwardLayer& layer = layers[static_cast<size_t>(position)];
    const StepRange steps = BlockOf(sequences, block);
    ComputeInputProducts(layer, /*direction=*/0, steps, worker);
    RunForwardSteps(layer, steps, worker);
    StoreFinalStates(layer, steps, worker);
    DropOutput(layer, steps, worker);
  };
  ForWavefronts(sequences, advance, member);
}

template <typename T>
void Engine<T>::DropOutput(const ForwardLayer& layer, const StepRange& steps,
                           TeamMember* member) const {
  if (layer.dropped == nullptr) return;
  const PackedSequences& sequences = *layer.sequences;
  ApplyDropoutToRows(layer.dropout, sequences.positions(), sequences.FirstRow(steps.first),
                     sequences.FirstRow(steps.end), output_width_, layer.output, layer.dropped,
                     member);
}

template <typename T>
void Engine<T>::PrepareInputProducts(const ForwardLayer& layer, int64_t direction,
                                     TeamMember* member) const {
  const T* params = layer.tensors->params;
  const T* input_bias = params + layout_.InputBiases(layer.index, direction);
  const T* recurrent_bias = params + layout_.RecurrentBiases(layer.index, direction);
  const int64_t shared_biases = config_.mode == RnnMode::kGru ? 2 * units_ : gate_width_;
  member->Single([&] {
    for (int64_t j = 0; j < gate_width_; ++j) {
      layer.bias[j] = j < shared_biases ? input_bias[j] + recurrent_bias[j] : input_bias[j];
    }
  });
  const int64_t columns = layout_.InputWeightColumns(layer.index);
  if (columns == 0 || !packs_input_weights_) return;
  const T* weights = params + layout_.InputWeights(layer.index, direction);
  PackOperand<T>(kernels_, {weights, 1, columns}, columns, gate_width_, layer.packed_input_weights,
                 member);
}

// Computes gates [N, G * H] = x [N, I] * W^T + biases. The recurrent bias of GRU's n is excluded:
// the cell adds it before the product with r.
template <typename T>
void Engine<T>::ComputeInputProducts(const ForwardLayer& layer, int64_t direction,
                                     const StepRange& steps, TeamMember* member) const {
  const int64_t columns = layout_.InputWeightColumns(layer.index);
  if (columns == 0) {
    AddSkippedInput(layer, direction, steps, member);
    return;
  }
  const int64_t first_row = layer.sequences->FirstRow(steps.first);
  const int64_t num_rows = layer.sequences->FirstRow(steps.end) - first_row;
  const T* input = layer.input + first_row * columns;
  T* gates = layer.gates[direction] + first_row * gate_width_;
  if (!packs_input_weights_) {
    const T* weights = layer.tensors->params + layout_.InputWeights(layer.index, direction);
    MultiplyStep({num_rows, gate_width_, columns, input, columns, weights, columns, gates,
                  gate_width_, /*accumulate=*/false, layer.bias},
                 member);
    return;
  }
  MatrixProduct<T> product;
  product.rows = num_rows;
  product.columns = gate_width_;
  product.depth = columns;
  product.a = {input, columns, 1};
  product.b = layer.packed_input_weights;
  product.c = gates;
  product.c_row_stride = gate_width_;
  product.accumulate = false;
  product.bias = layer.bias;
  product.has_long_sums = false;
  Multiply(kernels_, product, member);
}

// Without W (skip input), adds x to the pre-activation of every gate.
template <typename T>
void Engine<T>::AddSkippedInput(const ForwardLayer& layer, int64_t direction,
                                const StepRange& steps, TeamMember* member) const {
  const int64_t first_row = layer.sequences->FirstRow(steps.first);
  const auto add = [&](int64_t begin, int64_t end) {
    for (int64_t row = first_row + begin; row < first_row + end; ++row) {
      T* target = layer.gates[direction] + row * gate_width_;
      const T* x = layer.input + row * units_;
      for (int64_t g = 0; g < gates_; ++g) {
        for (int64_t j = 0; j < units_; ++j) {
          target[g * units_ + j] = layer.bias[g * units_ + j] + x[j];
        }
      }
    }
  };
  member->ForEach(layer.sequences->FirstRow(steps.end) - first_row, gate_width_ / 2 + 1, add);
}

template <typename T>
void Engine<T>::PackStepWeights(const ForwardLayer& layer, TeamMember* member) const {
  const T* params = layer.tensors->params;
  PackRecurrentWeights(layer.index, /*transposed=*/false, params, layer.packed_recurrent, member);
  PackProjection(layer.index, /*transposed=*/false, params, layer.packed_projection, member);
}

// Without a projection P = H. For gradients all gates are one operand, consecutive in depth.
template <typename T>
int64_t Engine<T>::PackedRecurrentSize(bool transposed) const {
  return (transposed ? PackedElements(output_size_, gate_width_)
                     : PackedElements(units_, output_size_) * gates_)
      .value();
}

template <typename T>
int64_t Engine<T>::PackedProjectionSize(bool transposed) const {
  return (transposed ? PackedElements(units_, output_size_) : PackedElements(output_size_, units_))
      .value();
}

template <typename T>
void Engine<T>::PackRecurrentWeights(int64_t layer, bool transposed, const T* params, T* packed,
                                     TeamMember* member) const {
  for (int64_t d = 0; d < directions_; ++d) {
    const T* weights = params + layout_.RecurrentWeights(layer, d);
    T* target = packed + d * PackedRecurrentSize(transposed);
    if (transposed) {
      PackOperand<T>(kernels_, {weights, output_size_, 1}, gate_width_, output_size_, target,
                     member);
      continue;
    }
    for (int64_t g = 0; g < gates_; ++g) {
      PackOperand<T>(kernels_, {weights + g * units_ * output_size_, 1, output_size_}, output_size_,
                     units_, target + g * recurrent_gate_size_, member);
    }
  }
}

template <typename T>
void Engine<T>::PackProjection(int64_t layer, bool transposed, const T* params, T* packed,
                               TeamMember* member) const {
  if (!config_.has_projection()) return;
  for (int64_t d = 0; d < directions_; ++d) {
    const T* weights = params + layout_.ProjectionWeights(layer, d);
    T* target = packed + d * PackedProjectionSize(transposed);
    if (transposed) {
      PackOperand<T>(kernels_, {weights, units_, 1}, output_size_, units_, target, member);
    } else {
      PackOperand<T>(kernels_, {weights, 1, units_}, units_, output_size_, target, member);
    }
  }
}

template class Engine<float>;
template class Engine<double>;

}  // namespace cudnn_rnn
