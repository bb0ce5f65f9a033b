#include "cudnn_rnn/cc/cpu/engine.h"

#include <algorithm>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine_layers.h"

namespace cudnn_rnn {
namespace {

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
Engine<T>::Engine(const RnnConfig& config, const ParamLayout& layout, int64_t num_steps,
                  int64_t batch_size, const Kernels<T>& kernels)
    : config_(config),
      layout_(layout),
      kernels_(kernels),
      cell_(CellOf(kernels, config.mode)),
      unit_panels_(kernels, config.num_units),
      num_steps_(num_steps),
      batch_size_(batch_size),
      units_(config.num_units),
      gates_(config.num_gates()),
      gate_width_(gates_ * units_),
      directions_(config.num_directions()),
      output_width_(directions_ * units_),
      state_size_(batch_size * units_),
      rows_(num_steps * batch_size),
      row_blocks_((batch_size + kStepRows - 1) / kStepRows) {}

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

// All layers but the last have the same size.
template <typename T>
void Engine<T>::DescribeReserveSpace(int64_t layer, Arena* arena, ReserveSpace* reserve) const {
  const CheckedSize rows = CheckedSize(num_steps_) * batch_size_;
  *reserve = ReserveSpace();
  for (int64_t d = 0; d < directions_; ++d) {
    if (gates_ > 1) {
      reserve->gates[d] = arena->Take<T>(rows * gate_width_);
      reserve->units[d] = arena->Take<T>(rows * units_);
    }
  }
  if (layer + 1 < config_.num_layers) reserve->output = arena->Take<T>(rows * output_width_);
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
CheckedSize Engine<T>::PackedElements(int64_t columns, CheckedSize depth) const {
  return depth * PanelShape<T>(kernels_, columns).padded_columns();
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
  const CheckedSize rows = CheckedSize(num_steps_) * batch_size_;
  const bool several = config_.num_layers > 1;
  const int64_t widest = std::max(config_.skips_input_projection() ? 0 : config_.input_size,
                                  several ? output_width_ : 0);
  *workspace = ForwardWorkspace();
  workspace->packed_inputs = arena->Take<T>(PackedElements(gate_width_, widest));
  workspace->packed_recurrent =
      arena->Take<T>(PackedElements(units_, units_) * (directions_ * gates_));
  const bool reserve_has_gates = is_training && gates_ > 1;
  for (int64_t d = 0; d < directions_ && !reserve_has_gates; ++d) {
    workspace->gates[d] = arena->Take<T>(rows * gate_width_);
    workspace->units[d] = arena->Take<T>(CheckedSize(batch_size_) * units_);
  }
  if (several && !is_training) {
    workspace->outputs[0] = arena->Take<T>(rows * output_width_);
    if (config_.num_layers > 2) workspace->outputs[1] = arena->Take<T>(rows * output_width_);
  }
  if (several && is_training && config_.dropout > 0) {
    workspace->dropped = arena->Take<T>(rows * output_width_);
  }
}

template <typename T>
void Engine<T>::CopyStates(const T* source, T* target) const {
  std::copy_n(source, config_.num_layers * directions_ * state_size_, target);
}

template <typename T>
void Engine<T>::Forward(const ForwardTensors<T>& tensors, bool is_training, int64_t dropout_call,
                        ParallelRunner* runner) const {
  if (rows_ == 0) {  // No step or no sequence: the states stay as they are.
    CopyStates(tensors.input_h, tensors.output_h);
    if (config_.has_cell_state()) CopyStates(tensors.input_c, tensors.output_c);
    return;
  }
  Arena arena(tensors.workspace);
  ForwardWorkspace workspace;
  DescribeForwardWorkspace(is_training, &arena, &workspace);
  const T* input = tensors.input;
  for (int64_t l = 0; l < config_.num_layers; ++l) {
    const bool last = l + 1 == config_.num_layers;
    const ReserveSpace reserve = is_training ? ReserveOf(l, tensors.reserve_space) : ReserveSpace();
    ForwardLayer layer = ForwardLayer();
    layer.index = l;
    layer.tensors = &tensors;
    layer.workspace = &workspace;
    layer.input = input;
    layer.output = last ? tensors.output : is_training ? reserve.output : workspace.outputs[l % 2];
    layer.keeps_units = is_training && gates_ > 1;
    for (int64_t d = 0; d < directions_; ++d) {
      layer.gates[d] = layer.keeps_units ? reserve.gates[d] : workspace.gates[d];
      layer.units[d] = layer.keeps_units ? reserve.units[d] : workspace.units[d];
      ComputeInputProducts(layer, d, runner);
    }
    PackRecurrentWeights(l, /*transposed=*/false, tensors.params, workspace.packed_recurrent,
                         runner);
    RunForwardSteps(layer, runner);
    input = layer.output;
    if (workspace.dropped != nullptr && !last) {
      const DropoutPattern pattern = {config_.dropout, config_.seed, config_.seed2, dropout_call,
                                      l + 1};
      ApplyDropout(pattern, rows_ * output_width_, layer.output, workspace.dropped, runner);
      input = workspace.dropped;
    }
  }
}

// gates [T * B, G * H] = x [T * B, I] * W^T + biases. The recurrent bias of GRU's n stays outside:
// the cell adds it within the product with r.
template <typename T>
void Engine<T>::ComputeInputProducts(const ForwardLayer& layer, int64_t direction,
                                     ParallelRunner* runner) const {
  const T* params = layer.tensors->params;
  const T* input_bias = params + layout_.InputBiases(layer.index, direction);
  const T* recurrent_bias = params + layout_.RecurrentBiases(layer.index, direction);
  T* gates = layer.gates[direction];
  const int64_t shared_biases = config_.mode == RnnMode::kGru ? 2 * units_ : gate_width_;
  const int64_t width = config_.LayerInputSize(layer.index);
  const int64_t columns = layout_.InputWeightColumns(layer.index);
  runner->Run(rows_, gate_width_ / 2 + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* target = gates + row * gate_width_;
      for (int64_t j = 0; j < shared_biases; ++j) target[j] = input_bias[j] + recurrent_bias[j];
      for (int64_t j = shared_biases; j < gate_width_; ++j) target[j] = input_bias[j];
      if (columns > 0) continue;
      for (int64_t g = 0; g < gates_; ++g) {  // Skipped projection: x goes to every gate.
        const T* x = layer.input + row * width;
        for (int64_t j = 0; j < units_; ++j) target[g * units_ + j] += x[j];
      }
    }
  });
  if (columns == 0) return;
  const T* weights = params + layout_.InputWeights(layer.index, direction);
  T* packed = layer.workspace->packed_inputs;
  PackOperand<T>(kernels_, {weights, 1, columns}, 0, columns, columns, gate_width_, packed, runner);
  MatrixProduct<T>(kernels_, {layer.input, width, 1}, packed, rows_, gate_width_, columns, gates,
                   gate_width_, /*accumulate=*/true, runner);
}

// For each direction and gate one operand [H, H]: R^T for h' R^T, or R itself for gradients.
template <typename T>
void Engine<T>::PackRecurrentWeights(int64_t layer, bool transposed, const T* params, T* packed,
                                     ParallelRunner* runner) const {
  for (int64_t d = 0; d < directions_; ++d) {
    for (int64_t g = 0; g < gates_; ++g) {
      const T* weights = params + layout_.RecurrentWeights(layer, d) + g * units_ * units_;
      const StridedMatrix<T> source =
          transposed ? StridedMatrix<T>{weights, units_, 1} : StridedMatrix<T>{weights, 1, units_};
      PackOperand<T>(kernels_, source, 0, units_, units_, units_,
                     packed + (d * gates_ + g) * packed_gate_size(), runner);
    }
  }
}

template <typename T>
typename Engine<T>::StepItem Engine<T>::ItemOf(int64_t layer, int64_t step, int64_t index) const {
  const int64_t panels = unit_panels_.num_panels();
  StepItem item;
  item.panel = index % panels;
  item.column = item.panel * unit_panels_.panel_columns;
  item.columns = unit_panels_.Columns(item.panel);
  item.first_row = index / panels % row_blocks_ * kStepRows;
  item.end_row = std::min(item.first_row + kStepRows, batch_size_);
  item.direction = index / panels / row_blocks_;
  item.state = (layer * directions_ + item.direction) * state_size_;
  item.step = step;
  item.time = TimeOf(item.direction, step);
  item.previous_time = TimeOf(item.direction, step - 1);
  item.next_time = TimeOf(item.direction, step + 1);
  return item;
}

template <typename T>
const T* Engine<T>::PackedGate(const T* packed, const StepItem& item, int64_t gate) const {
  return packed + (item.direction * gates_ + gate) * packed_gate_size() +
         unit_panels_.Offset(item.panel, units_);
}

template <typename T>
int64_t Engine<T>::NumStepItems() const {
  return directions_ * row_blocks_ * unit_panels_.num_panels();
}

template <typename T>
int64_t Engine<T>::StepItemCost() const {
  // Multiply-adds at 16 a cycle, and some 10 cycles for each unit's activations.
  const int64_t rows = std::min(kStepRows, batch_size_);
  return rows * unit_panels_.Columns(0) * (gate_width_ / 16 + 10);
}

template <typename T>
void Engine<T>::RunForwardSteps(const ForwardLayer& layer, ParallelRunner* runner) const {
  int64_t step = 0;
  // Made once for all steps, because making one may allocate.
  const ParallelRunner::Work work = [this, &layer, &step](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item)
      RunForwardItem(layer, ItemOf(layer.index, step, item));
  };
  for (; step < num_steps_; ++step) runner->Run(NumStepItems(), StepItemCost(), work);
  for (int64_t d = 0; d < directions_; ++d) {
    const int64_t state = (layer.index * directions_ + d) * state_size_;
    const int64_t last = TimeOf(d, num_steps_ - 1);
    for (int64_t b = 0; b < batch_size_; ++b) {
      std::copy_n(layer.output + (last * batch_size_ + b) * output_width_ + d * units_, units_,
                  layer.tensors->output_h + state + b * units_);
    }
    if (config_.has_cell_state() && layer.keeps_units) {
      std::copy_n(layer.units[d] + last * state_size_, state_size_,
                  layer.tensors->output_c + state);
    }
  }
}

template <typename T>
void Engine<T>::RunForwardItem(const ForwardLayer& layer, const StepItem& item) const {
  alignas(64) T scratch[kMaxGates * kTileRows * kMaxPanelColumns];
  ForwardCell<T> cell = ForwardCell<T>();
  cell.columns = item.columns;
  cell.product = scratch;
  cell.product_gate_stride = kTileRows * kMaxPanelColumns;
  cell.product_row_stride = kMaxPanelColumns;
  cell.gate_stride = units_;
  cell.gate_row_stride = gate_width_;
  cell.previous_h_row_stride = item.step == 0 ? units_ : output_width_;
  cell.h_row_stride = output_width_;
  cell.unit_row_stride = units_;

  GemmTile<T> tile;
  tile.columns = item.columns;
  tile.depth = units_;
  tile.a_row_stride = cell.previous_h_row_stride;
  tile.a_depth_stride = 1;
  tile.c_row_stride = kMaxPanelColumns;
  tile.accumulate = false;

  for (int64_t row = item.first_row; row < item.end_row; row += kTileRows) {
    cell.rows = std::min(kTileRows, item.end_row - row);
    PointForwardCell(layer, item, row, &cell);
    tile.rows = cell.rows;
    tile.a = cell.previous_h - item.column;  // all units of the previous state
    for (int64_t g = 0; g < gates_; ++g) {
      tile.b = PackedGate(layer.workspace->packed_recurrent, item, g);
      tile.c = scratch + g * cell.product_gate_stride;
      kernels_.gemm_tile(tile);
    }
    cell_.forward(cell);
  }
}

template <typename T>
void Engine<T>::PointForwardCell(const ForwardLayer& layer, const StepItem& item, int64_t row,
                                 ForwardCell<T>* cell) const {
  const ForwardTensors<T>& tensors = *layer.tensors;
  const int64_t d = item.direction;
  const int64_t unit = row * units_ + item.column;
  // Rows of h are H apart in the initial state, D * H apart in the output.
  T* outputs = layer.output + row * output_width_ + d * units_ + item.column;
  const int64_t output_step = batch_size_ * output_width_;
  cell->h = outputs + item.time * output_step;
  cell->previous_h = item.step == 0 ? tensors.input_h + item.state + unit
                                    : outputs + item.previous_time * output_step;
  cell->gates = layer.gates[d] + (item.time * batch_size_ + row) * gate_width_ + item.column;
  if (config_.mode == RnnMode::kGru) {
    cell->candidate_bias =
        tensors.params + layout_.RecurrentBiases(layer.index, d) + 2 * units_ + item.column;
    cell->candidate_product =
        layer.units[d] + (layer.keeps_units ? item.time * state_size_ : 0) + unit;
  } else if (config_.has_cell_state()) {
    // Inference keeps only the current cell state, in output_c.
    T* cells = layer.keeps_units ? layer.units[d] + unit : tensors.output_c + item.state + unit;
    const int64_t cell_step = layer.keeps_units ? state_size_ : 0;
    cell->c = cells + item.time * cell_step;
    cell->previous_c = item.step == 0 ? tensors.input_c + item.state + unit
                                      : cells + item.previous_time * cell_step;
  }
}

template class Engine<float>;
template class Engine<double>;

}  // namespace cudnn_rnn
