#include <algorithm>
#include <iterator>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine.h"
#include "cudnn_rnn/cc/cpu/engine_layers.h"

namespace cudnn_rnn {

template <typename T>
CheckedSize Engine<T>::BackwardWorkspaceBytes() const {
  Arena arena(nullptr);
  BackwardWorkspace workspace;
  DescribeBackwardWorkspace(&arena, &workspace);
  return arena.used();
}

template <typename T>
void Engine<T>::DescribeBackwardWorkspace(Arena* arena, BackwardWorkspace* workspace) const {
  const CheckedSize rows = CheckedSize(num_steps_) * batch_size_;
  const bool several = config_.num_layers > 1;
  const int64_t widest = std::max(config_.input_size, several ? output_width_ : 0);
  const CheckedSize sizes[] = {PackedElements(widest, gate_width_),  // W
                               PackedElements(widest, rows),         // x
                               PackedElements(units_, rows)};        // h'
  const CheckedSize largest = *std::max_element(std::begin(sizes), std::end(sizes));
  *workspace = BackwardWorkspace();
  workspace->packed_recurrent =
      arena->Take<T>(PackedElements(units_, units_) * (directions_ * gates_));
  workspace->packed = arena->Take<T>(largest);
  for (int64_t d = 0; d < directions_; ++d) {
    workspace->gate_gradients[d] = arena->Take<T>(rows * gate_width_);
    if (config_.mode == RnnMode::kGru) {
      workspace->candidate_gradients[d] = arena->Take<T>(rows * units_);
    }
  }
  if (!several) return;
  workspace->output_gradients[0] = arena->Take<T>(rows * output_width_);
  if (config_.num_layers > 2) {
    workspace->output_gradients[1] = arena->Take<T>(rows * output_width_);
  }
  if (config_.dropout > 0) workspace->dropped = arena->Take<T>(rows * output_width_);
}

template <typename T>
void Engine<T>::Backward(const BackwardTensors<T>& tensors, int64_t dropout_call,
                         ParallelRunner* runner) const {
  // The steps update these in place, from the last state's gradient to the first's.
  CopyStates(tensors.output_h_backprop, tensors.input_h_backprop);
  if (config_.has_cell_state()) CopyStates(tensors.output_c_backprop, tensors.input_c_backprop);
  if (rows_ == 0) {
    std::fill_n(tensors.params_backprop, layout_.size(), T(0));
    return;
  }
  Arena arena(tensors.workspace);
  BackwardWorkspace workspace;
  DescribeBackwardWorkspace(&arena, &workspace);
  // Reserve spaces are described as writable; nothing below writes to this one.
  void* reserve_space = const_cast<void*>(tensors.reserve_space);
  const T* output_gradient = tensors.output_backprop;
  for (int64_t l = config_.num_layers - 1; l >= 0; --l) {
    const DropoutPattern pattern = {config_.dropout, config_.seed, config_.seed2, dropout_call, l};
    const bool drops = l > 0 && workspace.dropped != nullptr;
    BackwardLayer layer = BackwardLayer();
    layer.index = l;
    layer.tensors = &tensors;
    layer.workspace = &workspace;
    layer.reserve = ReserveOf(l, reserve_space);
    layer.input = l == 0 ? tensors.input : ReserveOf(l - 1, reserve_space).output;
    layer.output = layer.reserve.output == nullptr ? tensors.output : layer.reserve.output;
    layer.output_gradient = output_gradient;
    const int64_t turn = (config_.num_layers - 1 - l) % 2;
    layer.input_gradient = l == 0 ? tensors.input_backprop : workspace.output_gradients[turn];
    if (drops) {
      ApplyDropout(pattern, rows_ * output_width_, layer.input, workspace.dropped, runner);
      layer.input = workspace.dropped;
    }
    PackRecurrentWeights(l, /*transposed=*/true, tensors.params, workspace.packed_recurrent,
                         runner);
    RunBackwardSteps(layer, runner);
    for (int64_t d = 0; d < directions_; ++d) {
      ComputeWeightGradients(layer, d, runner);
      ComputeBiasGradients(layer, d, runner);
    }
    ComputeInputGradient(layer, runner);
    if (drops) {
      ApplyDropout(pattern, rows_ * output_width_, layer.input_gradient, layer.input_gradient,
                   runner);
    }
    output_gradient = layer.input_gradient;
  }
}

template <typename T>
StridedMatrix<T> Engine<T>::RecurrentGateGradient(const BackwardLayer& layer, int64_t direction,
                                                  int64_t gate) const {
  if (config_.mode == RnnMode::kGru && gate == 2) {
    return {layer.workspace->candidate_gradients[direction], units_, 1};
  }
  return {layer.workspace->gate_gradients[direction] + gate * units_, gate_width_, 1};
}

// Step -1 has no cell: it carries the gradient on to the initial states.
template <typename T>
void Engine<T>::RunBackwardSteps(const BackwardLayer& layer, ParallelRunner* runner) const {
  int64_t step = num_steps_ - 1;
  const ParallelRunner::Work work = [this, &layer, &step](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item)
      RunBackwardItem(layer, ItemOf(layer.index, step, item));
  };
  for (; step >= -1; --step) runner->Run(NumStepItems(), StepItemCost(), work);
}

template <typename T>
void Engine<T>::RunBackwardItem(const BackwardLayer& layer, const StepItem& item) const {
  alignas(64) T scratch[kTileRows * kMaxPanelColumns];
  BackwardCell<T> cell = BackwardCell<T>();
  cell.columns = item.columns;
  cell.product = scratch;
  cell.product_row_stride = kMaxPanelColumns;
  cell.output_gradient_row_stride = output_width_;
  cell.gate_stride = units_;
  cell.gate_row_stride = gate_width_;
  cell.h_row_stride = output_width_;
  cell.previous_h_row_stride = item.step == 0 ? units_ : output_width_;
  cell.unit_row_stride = units_;

  GemmTile<T> tile;
  tile.columns = item.columns;
  tile.depth = units_;
  tile.a_depth_stride = 1;
  tile.c = scratch;
  tile.c_row_stride = kMaxPanelColumns;

  const bool is_last = item.step == num_steps_ - 1;
  for (int64_t row = item.first_row; row < item.end_row; row += kTileRows) {
    cell.rows = std::min(kTileRows, item.end_row - row);
    tile.rows = cell.rows;
    if (is_last) std::fill_n(scratch, kTileRows * kMaxPanelColumns, T(0));
    for (int64_t g = 0; g < gates_ && !is_last; ++g) {
      const StridedMatrix<T> gradient = RecurrentGateGradient(layer, item.direction, g);
      tile.a = gradient.data + (item.next_time * batch_size_ + row) * gradient.row_stride;
      tile.a_row_stride = gradient.row_stride;
      tile.b = PackedGate(layer.workspace->packed_recurrent, item, g);
      tile.accumulate = g > 0;
      kernels_.gemm_tile(tile);
    }
    cell.h_gradient = layer.tensors->input_h_backprop + item.state + row * units_ + item.column;
    if (item.step >= 0) {
      PointBackwardCell(layer, item, row, &cell);
      cell_.backward(cell);
      continue;
    }
    for (int64_t m = 0; m < cell.rows; ++m) {
      T* h_gradient = cell.h_gradient + m * units_;
      for (int64_t j = 0; j < item.columns; ++j) h_gradient[j] += scratch[m * kMaxPanelColumns + j];
    }
  }
}

template <typename T>
void Engine<T>::PointBackwardCell(const BackwardLayer& layer, const StepItem& item, int64_t row,
                                  BackwardCell<T>* cell) const {
  const BackwardTensors<T>& tensors = *layer.tensors;
  const int64_t d = item.direction;
  const int64_t unit = row * units_ + item.column;
  const int64_t output_step = batch_size_ * output_width_;
  const int64_t output = row * output_width_ + d * units_ + item.column;
  cell->output_gradient = layer.output_gradient + item.time * output_step + output;
  cell->h = layer.output + item.time * output_step + output;
  cell->previous_h = item.step == 0 ? tensors.input_h + item.state + unit
                                    : layer.output + item.previous_time * output_step + output;
  const int64_t gates = (item.time * batch_size_ + row) * gate_width_ + item.column;
  cell->gate_gradients = layer.workspace->gate_gradients[d] + gates;
  if (gates_ == 1) return;
  cell->gates = layer.reserve.gates[d] + gates;
  const T* kept = layer.reserve.units[d] + unit;
  if (config_.mode == RnnMode::kGru) {
    cell->candidate_product = kept + item.time * state_size_;
    cell->candidate_gradient =
        layer.workspace->candidate_gradients[d] + item.time * state_size_ + unit;
  } else {
    cell->c = kept + item.time * state_size_;
    cell->previous_c = item.step == 0 ? tensors.input_c + item.state + unit
                                      : kept + item.previous_time * state_size_;
    cell->c_gradient = tensors.input_c_backprop + item.state + unit;
  }
}

// dW [G * H, I] = dgates^T x;  dR [H, H] of each gate = dgate^T h'.
template <typename T>
void Engine<T>::ComputeWeightGradients(const BackwardLayer& layer, int64_t direction,
                                       ParallelRunner* runner) const {
  const BackwardTensors<T>& tensors = *layer.tensors;
  T* packed = layer.workspace->packed;
  const int64_t columns = layout_.InputWeightColumns(layer.index);
  if (columns > 0) {
    PackOperand<T>(kernels_, {layer.input, columns, 1}, 0, rows_, rows_, columns, packed, runner);
    MatrixProduct<T>(kernels_, {layer.workspace->gate_gradients[direction], 1, gate_width_}, packed,
                     gate_width_, columns, rows_,
                     tensors.params_backprop + layout_.InputWeights(layer.index, direction),
                     columns, /*accumulate=*/false, runner);
  }
  // h' of all rows in the order of time: the initial state stands before the first step, which for
  // the backward direction is the last in time.
  const int64_t state = (layer.index * directions_ + direction) * state_size_;
  const int64_t initial_row = direction == 0 ? 0 : rows_ - batch_size_;
  const int64_t others_row = direction == 0 ? batch_size_ : 0;
  const T* others =
      layer.output + direction * units_ + (direction == 0 ? 0 : batch_size_ * output_width_);
  PackOperand<T>(kernels_, {tensors.input_h + state, units_, 1}, initial_row, batch_size_, rows_,
                 units_, packed, runner);
  PackOperand<T>(kernels_, {others, output_width_, 1}, others_row, rows_ - batch_size_, rows_,
                 units_, packed, runner);
  T* target = tensors.params_backprop + layout_.RecurrentWeights(layer.index, direction);
  for (int64_t g = 0; g < gates_; ++g) {
    const StridedMatrix<T> gradient = RecurrentGateGradient(layer, direction, g);
    MatrixProduct<T>(kernels_, {gradient.data, 1, gradient.row_stride}, packed, units_, units_,
                     rows_, target + g * units_ * units_, units_, /*accumulate=*/false, runner);
  }
}

// Sums over all rows, in double.
template <typename T>
void Engine<T>::ComputeBiasGradients(const BackwardLayer& layer, int64_t direction,
                                     ParallelRunner* runner) const {
  T* input_bias = layer.tensors->params_backprop + layout_.InputBiases(layer.index, direction);
  T* recurrent_bias =
      layer.tensors->params_backprop + layout_.RecurrentBiases(layer.index, direction);
  constexpr int64_t kItemColumns = 32;
  const auto sum_columns = [&](const T* matrix, int64_t row_stride, int64_t columns, T* first,
                               T* second) {
    const int64_t num_items = (columns + kItemColumns - 1) / kItemColumns;
    runner->Run(num_items, rows_ * kItemColumns / 2, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t column = item * kItemColumns;
        const int64_t count = std::min(kItemColumns, columns - column);
        double sums[kItemColumns] = {};
        for (int64_t row = 0; row < rows_; ++row) {
          const T* source = matrix + row * row_stride + column;
          for (int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(source[j]);
        }
        for (int64_t j = 0; j < count; ++j) {
          first[column + j] = static_cast<T>(sums[j]);
          if (second != nullptr) second[column + j] = static_cast<T>(sums[j]);
        }
      }
    });
  };
  const T* gradients = layer.workspace->gate_gradients[direction];
  sum_columns(gradients, gate_width_, gate_width_, input_bias, recurrent_bias);
  if (config_.mode == RnnMode::kGru) {
    sum_columns(layer.workspace->candidate_gradients[direction], units_, units_,
                recurrent_bias + 2 * units_, nullptr);
  }
}

// dx [T * B, I] = sum over directions of dgates W.
template <typename T>
void Engine<T>::ComputeInputGradient(const BackwardLayer& layer, ParallelRunner* runner) const {
  const int64_t columns = layout_.InputWeightColumns(layer.index);
  for (int64_t d = 0; d < directions_; ++d) {
    const T* gradients = layer.workspace->gate_gradients[d];
    if (columns > 0) {
      const T* weights = layer.tensors->params + layout_.InputWeights(layer.index, d);
      T* packed = layer.workspace->packed;
      PackOperand<T>(kernels_, {weights, columns, 1}, 0, gate_width_, gate_width_, columns, packed,
                     runner);
      MatrixProduct<T>(kernels_, {gradients, gate_width_, 1}, packed, rows_, columns, gate_width_,
                       layer.input_gradient, columns, /*accumulate=*/d > 0, runner);
      continue;
    }
    runner->Run(rows_, gate_width_ + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* target = layer.input_gradient + row * units_;
        if (d == 0) std::fill_n(target, units_, T(0));
        for (int64_t g = 0; g < gates_; ++g) {
          const T* source = gradients + row * gate_width_ + g * units_;
          for (int64_t j = 0; j < units_; ++j) target[j] += source[j];
        }
      }
    });
  }
}

// The forward half is instantiated in engine.cc.
#define INSTANTIATE(T)                                            \
  template CheckedSize Engine<T>::BackwardWorkspaceBytes() const; \
  template void Engine<T>::Backward(const BackwardTensors<T>&, int64_t, ParallelRunner*) const
INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace cudnn_rnn
