// One step after the other: what forward and backward steps share, and the forward ones.
#include <algorithm>

#include "cudnn_rnn/cc/cpu/engine.h"
#include "cudnn_rnn/cc/cpu/engine_layers.h"

namespace cudnn_rnn {

template <typename T>
typename Engine<T>::DirectionStep Engine<T>::DirectionStepOf(const PackedSequences& sequences,
                                                             int64_t direction, int64_t step) {
  // The backward direction starts in the last step of the longest sequence; shorter ones join it
  // where they end.
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
void Engine<T>::DescribeStep(const PackedSequences& sequences, int64_t step, bool with_next,
                             Region* region) const {
  region->num_panels = region->panels->num_panels();
  for (int64_t d = 0; d < directions_; ++d) {
    region->steps[d] = DirectionStepOf(sequences, d, step);
    region->rows[d] = region->steps[d].rows;
    if (with_next) region->rows[d] = std::max(region->rows[d], region->steps[d].next_rows);
    region->row_blocks[d] = (region->rows[d] + kStepRows - 1) / kStepRows;
  }
}

template <typename T>
void Engine<T>::Run(const Region& region, const ParallelRunner::Work& work,
                    ParallelRunner* runner) const {
  // Multiply-adds at 16 a cycle, and some 10 cycles for each unit's activations.
  const int64_t rows = std::min(kStepRows, std::max(region.rows[0], region.rows[1]));
  const int64_t item_cost = rows * region.panels->Columns(0) * (region.depth / 16 + 10);
  runner->Run((region.row_blocks[0] + region.row_blocks[1]) * region.num_panels, item_cost, work);
}

template <typename T>
typename Engine<T>::StepItem Engine<T>::ItemOf(const Region& region, int64_t layer,
                                               int64_t index) const {
  const int64_t row_block = index / region.num_panels;
  StepItem item;
  item.direction = row_block < region.row_blocks[0] ? 0 : 1;
  item.step = &region.steps[item.direction];
  item.stack = layer * directions_ + item.direction;
  item.first_row = (row_block - item.direction * region.row_blocks[0]) * kStepRows;
  item.end_row = std::min(item.first_row + kStepRows, region.rows[item.direction]);
  item.panel = index % region.num_panels;
  item.column = item.panel * region.panels->panel_columns;
  item.columns = region.panels->Columns(item.panel);
  return item;
}

template <typename T>
StridedMatrix<T> Engine<T>::PreviousOutput(const T* input_h, const T* output, const StepItem& item,
                                           int64_t row) const {
  if (row >= item.step->previous_rows) {
    return {input_h + (item.stack * batch_size_ + row) * outputs_, outputs_, 1};
  }
  return {output + (item.step->previous_first + row) * output_width_ + item.direction * outputs_,
          output_width_, 1};
}

template <typename T>
void Engine<T>::RunForwardSteps(const ForwardLayer& layer, ParallelRunner* runner) const {
  Region cells = Region(), projections = Region();
  cells.panels = &unit_panels_;
  cells.depth = gates_ * outputs_;
  projections.panels = &output_panels_;
  projections.depth = units_;
  // Made once for all steps, because making one may allocate.
  const ParallelRunner::Work run_cells = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) RunForwardItem(layer, ItemOf(cells, layer.index, i));
  };
  const ParallelRunner::Work run_projections = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      RunProjectionItem(layer, ItemOf(projections, layer.index, i));
    }
  };
  for (int64_t step = 0; step < layer.sequences->num_steps(); ++step) {
    DescribeStep(*layer.sequences, step, /*with_next=*/false, &cells);
    Run(cells, run_cells, runner);
    if (!config_.has_projection()) continue;
    DescribeStep(*layer.sequences, step, /*with_next=*/false, &projections);
    Run(projections, run_projections, runner);
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
  cell.unit_row_stride = units_;

  GemmTile<T> tile;
  tile.columns = item.columns;
  tile.depth = outputs_;
  tile.a_depth_stride = 1;
  tile.c_row_stride = kMaxPanelColumns;
  tile.accumulate = false;

  const T* packed = PanelOf(layer.workspace->packed_recurrent, unit_panels_, outputs_,
                            item.direction * gates_, item.panel);
  const int64_t packed_size = PackedSize(unit_panels_, outputs_);
  for (int64_t row = item.first_row; row < item.end_row; row += cell.rows) {
    cell.rows = TileRows(row, item.end_row, item.step->previous_rows);
    const StridedMatrix<T> previous =
        PreviousOutput(layer.tensors->input_h, layer.output, item, row);
    tile.rows = cell.rows;
    tile.a = previous.data;
    tile.a_row_stride = previous.row_stride;
    for (int64_t g = 0; g < gates_; ++g) {
      tile.b = packed + g * packed_size;
      tile.c = scratch + g * cell.product_gate_stride;
      kernels_.gemm_tile(tile);
    }
    PointForwardCell(layer, item, row, &cell);
    cell_.forward(cell);
  }
}

template <typename T>
void Engine<T>::PointForwardCell(const ForwardLayer& layer, const StepItem& item, int64_t row,
                                 ForwardCell<T>* cell) const {
  const ForwardTensors<T>& tensors = *layer.tensors;
  const DirectionStep& step = *item.step;
  const int64_t d = item.direction;
  const bool is_first = row >= step.previous_rows;
  // Where this step's values and those of the one before stand in what is kept for all steps, or
  // only for the current one.
  const int64_t unit = (layer.keeps_units ? step.first + row : row) * units_ + item.column;
  const int64_t previous_unit =
      (layer.keeps_units ? step.previous_first + row : row) * units_ + item.column;
  const int64_t state = (item.stack * batch_size_ + row) * units_ + item.column;
  cell->gates = layer.gates[d] + (step.first + row) * gate_width_ + item.column;
  if (config_.has_projection()) {
    cell->h = layer.unprojected[d] + unit;
    cell->h_row_stride = units_;
  } else {
    cell->h = layer.output + (step.first + row) * output_width_ + d * units_ + item.column;
    cell->h_row_stride = output_width_;
  }
  if (config_.mode == RnnMode::kGru) {
    const StridedMatrix<T> previous = PreviousOutput(tensors.input_h, layer.output, item, row);
    cell->previous_h = previous.data + item.column;
    cell->previous_h_row_stride = previous.row_stride;
    cell->candidate_bias =
        tensors.params + layout_.RecurrentBiases(layer.index, d) + 2 * units_ + item.column;
    cell->candidate_product = layer.units[d] + unit;
  } else if (config_.has_cell_state()) {
    // Inference keeps only the current cell state, in output_c.
    T* cells =
        layer.keeps_units ? layer.units[d] : tensors.output_c + item.stack * batch_size_ * units_;
    cell->c = cells + unit;
    cell->previous_c = is_first ? tensors.input_c + state : cells + previous_unit;
  }
}

// h = W (o * tanh(c)) with the projection W [P, H].
template <typename T>
void Engine<T>::RunProjectionItem(const ForwardLayer& layer, const StepItem& item) const {
  const int64_t rows = item.step->first + item.first_row;
  GemmTile<T> tile;
  tile.rows = item.end_row - item.first_row;
  tile.columns = item.columns;
  tile.depth = units_;
  tile.a = layer.unprojected[item.direction] + (layer.keeps_units ? rows : item.first_row) * units_;
  tile.a_row_stride = units_;
  tile.a_depth_stride = 1;
  tile.b = PanelOf(layer.workspace->packed_projection, output_panels_, units_, item.direction,
                   item.panel);
  tile.c = layer.output + rows * output_width_ + item.direction * outputs_ + item.column;
  tile.c_row_stride = output_width_;
  tile.accumulate = false;
  kernels_.gemm_tile(tile);
}

// Of each sequence, where its last step is; the initial ones of a sequence without a step.
template <typename T>
void Engine<T>::StoreFinalStates(const ForwardLayer& layer, int64_t direction) const {
  const PackedSequences& sequences = *layer.sequences;
  const ForwardTensors<T>& tensors = *layer.tensors;
  const int64_t first_state = (layer.index * directions_ + direction) * batch_size_;
  for (int64_t i = 0; i < sequences.num_steps(); ++i) {
    const DirectionStep step = DirectionStepOf(sequences, direction, i);
    for (int64_t row = step.next_rows; row < step.rows; ++row) {
      const int64_t state = first_state + row;
      std::copy_n(layer.output + (step.first + row) * output_width_ + direction * outputs_,
                  outputs_, tensors.output_h + state * outputs_);
      if (config_.has_cell_state() && layer.keeps_units) {
        std::copy_n(layer.units[direction] + (step.first + row) * units_, units_,
                    tensors.output_c + state * units_);
      }
    }
  }
  for (int64_t row = sequences.RowsAt(0); row < batch_size_; ++row) {
    const int64_t state = first_state + row;
    std::copy_n(tensors.input_h + state * outputs_, outputs_, tensors.output_h + state * outputs_);
    if (config_.has_cell_state()) {
      std::copy_n(tensors.input_c + state * units_, units_, tensors.output_c + state * units_);
    }
  }
}

// The rest of the class is instantiated in engine.cc.
#define INSTANTIATE(T)                                                                             \
  template typename Engine<T>::DirectionStep Engine<T>::DirectionStepOf(const PackedSequences&,    \
                                                                        int64_t, int64_t);         \
  template void Engine<T>::DescribeStep(const PackedSequences&, int64_t, bool, Region*) const;     \
  template void Engine<T>::Run(const Region&, const ParallelRunner::Work&, ParallelRunner*) const; \
  template typename Engine<T>::StepItem Engine<T>::ItemOf(const Region&, int64_t, int64_t) const;  \
  template StridedMatrix<T> Engine<T>::PreviousOutput(const T*, const T*, const StepItem&,         \
                                                      int64_t) const;                              \
  template void Engine<T>::RunForwardSteps(const ForwardLayer&, ParallelRunner*) const;            \
  template void Engine<T>::StoreFinalStates(const ForwardLayer&, int64_t) const
INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace cudnn_rnn
