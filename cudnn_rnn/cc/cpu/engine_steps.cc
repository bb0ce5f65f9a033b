// The sequence of steps: code shared by forward and backward, and the forward steps.
#include "cudnn_rnn/cc/cpu/engine_steps.h"

#include <algorithm>

#include "cudnn_rnn/cc/cpu/engine.h"
#include "cudnn_rnn/cc/cpu/engine_layers.h"

namespace cudnn_rnn {
namespace {

// Maximum rows for dot products in float and double. With more, packing one tile's columns at a
// time is faster: see docs/engine.md.
constexpr int64_t kMaxRowsOfDotProducts = 8;

}  // namespace

template <typename T>
typename Engine<T>::DirectionStep Engine<T>::DirectionStepOf(const PackedSequences& sequences,
                                                             int64_t direction, int64_t step) {
  // The backward direction starts at the last step of the longest sequence; shorter sequences join
  // at their own last step.
  const int64_t time = direction == 0 ? step : sequences.num_steps() - 1 - step;
  const int64_t previous_time = direction == 0 ? time - 1 : time + 1;
  const int64_t next_time = direction == 0 ? time + 1 : time - 1;
  DirectionStep result = DirectionStep();
  result.rows = sequences.RowsAt(time);
  result.first = sequences.FirstRow(time);
  result.next_rows = sequences.RowsAt(next_time);
  result.next_first = sequences.FirstRow(next_time);
  if (step <= 0) return result;
  result.previous_rows = std::min(result.rows, sequences.RowsAt(previous_time));
  result.previous_first = sequences.FirstRow(previous_time);
  return result;
}

template <typename T>
StridedMatrix<T> Engine<T>::PreviousOutput(const T* input_h, const T* output, const StepTile& tile,
                                           int64_t row) const {
  if (row >= tile.step->previous_rows) {
    return {input_h + (tile.pseudo_layer * batch_size_ + row) * output_size_, output_size_, 1};
  }
  return {
      output + (tile.step->previous_first + row) * output_width_ + tile.direction * output_size_,
      output_width_, 1};
}

template <typename T>
void Engine<T>::RunForwardSteps(const ForwardLayer& layer, const StepRange& steps,
                                TeamMember* member) const {
  const auto run_step = [&](int64_t i, int64_t first_direction, int64_t end_direction,
                            TeamMember* worker) {
    const int64_t step = steps.first + i;
    const StepPhase cells = {units_, cell_.forward_vectors, gates_ * output_size_, step, false};
    ForTiles(
        *layer.sequences, cells, layer.index, first_direction, end_direction,
        [&](const StepTile& tile) { RunForwardTile(layer, tile); }, worker);
    if (!config_.has_projection()) return;
    const StepPhase projections = {output_size_, kernels_.tile_vectors, units_, step, false};
    ForTiles(
        *layer.sequences, projections, layer.index, first_direction, end_direction,
        [&](const StepTile& tile) { RunProjectionTile(layer, tile); }, worker);
  };
  RunSteps(steps.end - steps.first, gates_ * output_size_, run_step, member);
}

template <typename T>
void Engine<T>::RunForwardTile(const ForwardLayer& layer, const StepTile& tile) const {
  ForwardTile<T> cell = ForwardTile<T>();
  cell.units = tile.columns;
  if (!is_decode_step_) {
    cell.recurrent.b = layer.packed_recurrent + tile.direction * gates_ * recurrent_gate_size_ +
                       tile.panel * recurrent_panel_size_;
    cell.recurrent.b_panel_stride = gates_ == 1 ? recurrent_panel_size_ : recurrent_gate_size_;
    cell.recurrent.depth = output_size_;
    if (tile.end_row - tile.first_row >= kPrefetchingRows) {
      cell.recurrent.next_b = cell.recurrent.b + recurrent_panel_size_;
    }
  }
  cell.recurrent.a_depth_stride = 1;
  cell.gate_stride = units_;
  cell.gate_row_stride = gate_width_;
  cell.unit_row_stride = units_;
  cell.keeps_gates = layer.keeps_units;
  for (int64_t row = tile.first_row; row < tile.end_row; row += cell.rows) {
    cell.rows = RowsUpTo(row, tile.end_row, tile.step->previous_rows);
    PointForwardCell(layer, tile, row, &cell);
    cell_.forward(cell);
  }
}

template <typename T>
void Engine<T>::PointForwardCell(const ForwardLayer& layer, const StepTile& tile, int64_t row,
                                 ForwardTile<T>* cell) const {
  const ForwardTensors<T>& tensors = *layer.tensors;
  const DirectionStep& step = *tile.step;
  const int64_t d = tile.direction;
  const bool is_first = row >= step.previous_rows;
  // Offsets of this and the previous step's values in buffers [N, H] that keep all steps, or [B, H]
  // that keep only the current step.
  const int64_t unit = (layer.keeps_units ? step.first + row : row) * units_ + tile.column;
  const int64_t previous_unit =
      (layer.keeps_units ? step.previous_first + row : row) * units_ + tile.column;
  const int64_t state = (tile.pseudo_layer * batch_size_ + row) * units_ + tile.column;
  const StridedMatrix<T> previous = PreviousOutput(tensors.input_h, layer.output, tile, row);
  cell->recurrent.a = previous.data;
  cell->recurrent.a_row_stride = previous.row_stride;
  cell->gates = layer.gates[d] + (step.first + row) * gate_width_ + tile.column;
  if (config_.has_projection()) {
    cell->h = layer.unprojected[d] + unit;
    cell->h_row_stride = units_;
  } else {
    cell->h = layer.output + (step.first + row) * output_width_ + d * units_ + tile.column;
    cell->h_row_stride = output_width_;
  }
  if (config_.mode == RnnMode::kGru) {
    cell->previous_h = previous.data + tile.column;
    cell->previous_h_row_stride = previous.row_stride;
    cell->candidate_bias =
        tensors.params + layout_.RecurrentBiases(layer.index, d) + 2 * units_ + tile.column;
    cell->candidate_product = layer.units[d] == nullptr ? nullptr : layer.units[d] + unit;
  } else if (config_.has_cell_state()) {
    // Inference keeps only the current cell state, in output_c.
    T* cells = layer.keeps_units ? layer.units[d]
                                 : tensors.output_c + tile.pseudo_layer * batch_size_ * units_;
    cell->c = cells + unit;
    cell->previous_c = is_first ? tensors.input_c + state : cells + previous_unit;
  }
}

// Computes h = W (o * tanh(c)) with the projection W [P, H].
template <typename T>
void Engine<T>::RunProjectionTile(const ForwardLayer& layer, const StepTile& tile) const {
  const int64_t rows = tile.step->first + tile.first_row;
  ProductTile<T> product = ProductTile<T>();
  product.rows = tile.end_row - tile.first_row;
  product.columns = tile.columns;
  product.factors.depth = units_;
  product.factors.a =
      layer.unprojected[tile.direction] + (layer.keeps_units ? rows : tile.first_row) * units_;
  product.factors.a_row_stride = units_;
  product.factors.a_depth_stride = 1;
  product.factors.b_panel_stride = PanelSize(kernels_, units_);
  product.factors.b = layer.packed_projection +
                      tile.direction * PackedProjectionSize(/*transposed=*/false) +
                      tile.panel * product.factors.b_panel_stride;
  product.c = layer.output + rows * output_width_ + tile.direction * output_size_ + tile.column;
  product.c_row_stride = output_width_;
  kernels_.product(product);
}

// Dot products sum in a different order than the other kernels. They are used for single steps
// only, and the choice does not depend on the lengths, so the results do not either.
template <typename T>
void Engine<T>::MultiplyStep(const UnpackedProduct<T>& product, TeamMember* member) const {
  const bool are_few = batch_size_ <= kMaxRowsOfDotProducts || kernels_.packed_terms > 1;
  if (is_decode_step_ && are_few) {
    MultiplyUnpacked(kernels_, product, member);
  } else {
    MultiplyPackingTiles(kernels_, product, member);
  }
}

// Computes gates += h' R^T, but stores GRU's R_n h' separately.
template <typename T>
void Engine<T>::AddRecurrentProducts(const ForwardLayer& layer, int64_t direction,
                                     TeamMember* member) const {
  const int64_t shared = SharedGates() * units_;
  UnpackedProduct<T> product;
  product.rows = layer.sequences->num_rows();
  product.columns = shared;
  product.depth = output_size_;
  product.a =
      layer.tensors->input_h + (layer.index * directions_ + direction) * batch_size_ * output_size_;
  product.a_row_stride = output_size_;
  product.b = layer.tensors->params + layout_.RecurrentWeights(layer.index, direction);
  product.b_row_stride = output_size_;
  product.c = layer.gates[direction];
  product.c_row_stride = gate_width_;
  product.accumulate = true;
  product.bias = nullptr;
  MultiplyStep(product, member);
  if (shared == gate_width_) return;
  product.b += shared * output_size_;
  product.columns = gate_width_ - shared;
  product.c = layer.units[direction];
  product.c_row_stride = units_;
  product.accumulate = false;
  MultiplyStep(product, member);
}

template <typename T>
void Engine<T>::RunSingleStep(const ForwardLayer& layer, TeamMember* member) const {
  for (int64_t d = 0; d < directions_; ++d) AddRecurrentProducts(layer, d, member);
  const StepPhase cells = {units_, cell_.forward_vectors, /*depth=*/0, /*step=*/0, false};
  ForTiles(
      *layer.sequences, cells, layer.index, 0, directions_,
      [&](const StepTile& tile) { RunForwardTile(layer, tile); }, member);
  if (!config_.has_projection()) return;
  for (int64_t d = 0; d < directions_; ++d) {
    const T* weights = layer.tensors->params + layout_.ProjectionWeights(layer.index, d);
    MultiplyStep({layer.sequences->num_rows(), output_size_, units_, layer.unprojected[d], units_,
                  weights, units_, layer.output + d * output_size_, output_width_,
                  /*accumulate=*/false, nullptr},
                 member);
  }
}

// Stores the final states of each sequence whose last step is in `steps`. A sequence of length 0
// keeps its initial states.
template <typename T>
void Engine<T>::StoreFinalStates(const ForwardLayer& layer, const StepRange& steps,
                                 TeamMember* member) const {
  member->Single([&] {
    for (int64_t d = 0; d < directions_; ++d) StoreFinalStatesOf(layer, d, steps);
  });
}

template <typename T>
void Engine<T>::StoreFinalStatesOf(const ForwardLayer& layer, int64_t direction,
                                   const StepRange& steps) const {
  const PackedSequences& sequences = *layer.sequences;
  const ForwardTensors<T>& tensors = *layer.tensors;
  const int64_t first_state = (layer.index * directions_ + direction) * batch_size_;
  for (int64_t i = steps.first; i < steps.end; ++i) {
    const DirectionStep step = DirectionStepOf(sequences, direction, i);
    for (int64_t row = step.next_rows; row < step.rows; ++row) {
      const int64_t state = first_state + row;
      std::copy_n(layer.output + (step.first + row) * output_width_ + direction * output_size_,
                  output_size_, tensors.output_h + state * output_size_);
      if (config_.has_cell_state() && layer.keeps_units) {
        std::copy_n(layer.units[direction] + (step.first + row) * units_, units_,
                    tensors.output_c + state * units_);
      }
    }
  }
  if (steps.first > 0) return;
  for (int64_t row = sequences.RowsAt(0); row < batch_size_; ++row) {
    const int64_t state = first_state + row;
    std::copy_n(tensors.input_h + state * output_size_, output_size_,
                tensors.output_h + state * output_size_);
    if (config_.has_cell_state()) {
      std::copy_n(tensors.input_c + state * units_, units_, tensors.output_c + state * units_);
    }
  }
}

// The rest of the class is instantiated in engine.cc.
#define INSTANTIATE(T)                                                                          \
  template typename Engine<T>::DirectionStep Engine<T>::DirectionStepOf(const PackedSequences&, \
                                                                        int64_t, int64_t);      \
  template StridedMatrix<T> Engine<T>::PreviousOutput(const T*, const T*, const StepTile&,      \
                                                      int64_t) const;                           \
  template void Engine<T>::MultiplyStep(const UnpackedProduct<T>&, TeamMember*) const;          \
  template void Engine<T>::RunForwardSteps(const ForwardLayer&, const StepRange&, TeamMember*)  \
      const;                                                                                    \
  template void Engine<T>::RunSingleStep(const ForwardLayer&, TeamMember*) const;               \
  template void Engine<T>::StoreFinalStates(const ForwardLayer&, const StepRange&, TeamMember*) \
      const
INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace cudnn_rnn
