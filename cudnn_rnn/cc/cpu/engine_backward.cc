#include <algorithm>
#include <iterator>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine.h"
#include "cudnn_rnn/cc/cpu/engine_layers.h"
#include "cudnn_rnn/cc/cpu/engine_steps.h"

namespace cudnn_rnn {
namespace {

// Maximum rows per product; its result stays in the L1 cache for the cell's arithmetic.
constexpr int64_t kProductRows = 32;
constexpr int64_t kProductColumns = kMaxTileVectors * kMaxLanes;

// Computes target += product.
template <typename T>
void AddProduct(const BackwardTile<T>& cell, T* target, int64_t row_stride) {
  for (int64_t m = 0; m < cell.rows; ++m) {
    const T* product = cell.product + m * cell.product_row_stride;
    for (int64_t j = 0; j < cell.units; ++j) target[m * row_stride + j] += product[j];
  }
}

// Stores the gradient of h in `target`, adding in the order of the cells' kernels, and sets
// h_gradient to 0.
template <typename T>
void SumGradients(const BackwardTile<T>& cell, T* target, int64_t row_stride) {
  for (int64_t m = 0; m < cell.rows; ++m) {
    const T* output_gradient = cell.output_gradient + m * cell.output_gradient_row_stride;
    const T* product = cell.product + m * cell.product_row_stride;
    T* h_gradient = cell.h_gradient + m * cell.h_gradient_row_stride;
    for (int64_t j = 0; j < cell.units; ++j) {
      target[m * row_stride + j] = output_gradient[j] + product[j] + h_gradient[j];
      h_gradient[j] = T(0);
    }
  }
}

}  // namespace

template <typename T>
CheckedSize Engine<T>::BackwardWorkspaceBytes(bool keeps_reserve_space) const {
  Arena arena(nullptr);
  BackwardWorkspace workspace;
  DescribeBackwardWorkspace(keeps_reserve_space, &arena, &workspace);
  return arena.used();
}

template <typename T>
void Engine<T>::DescribeBackwardWorkspace(bool keeps_reserve_space, Arena* arena,
                                          BackwardWorkspace* workspace) const {
  const bool several = config_.num_layers > 1;
  *workspace = BackwardWorkspace();
  const int64_t pseudo_layers = directions_ * layers_at_once_;
  const CheckedSize rows = max_rows_ * layers_at_once_;
  // R shares its memory with the operands of the large products, which begin after the steps.
  const CheckedSize sizes[] = {PackedElements(output_size_, gate_width_) * pseudo_layers,  // R
                               PackedElements(WidestInput(), gate_width_),                 // W
                               PackedElements(WidestInput(), max_rows_),                   // x
                               PackedElements(units_, max_rows_)};  // h' or unprojected h
  workspace->packed = arena->Take<T>(*std::max_element(std::begin(sizes), std::end(sizes)));
  workspace->packed_recurrent = workspace->packed;
  if (config_.has_projection()) {
    workspace->packed_projection =
        arena->Take<T>(PackedElements(units_, output_size_) * pseudo_layers);
  }
  if (layers_at_once_ > 1) {
    workspace->packed_input_weights =
        arena->Take<T>(PackedElements(WidestInput(), gate_width_) * pseudo_layers);
  }
  for (int64_t d = 0; d < directions_; ++d) {
    if (keeps_reserve_space || gates_ == 1) {
      workspace->gate_gradients[d] = arena->Take<T>(rows * gate_width_);
      if (config_.mode == RnnMode::kGru) {
        workspace->candidate_gradients[d] = arena->Take<T>(rows * units_);
      }
    }
    if (config_.has_projection()) {
      workspace->projected_gradients[d] = arena->Take<T>(rows * output_size_);
    }
  }
  if (!several) return;
  workspace->output_gradients[0] = arena->Take<T>(max_rows_ * output_width_);
  if (config_.num_layers > 2) {
    workspace->output_gradients[1] = arena->Take<T>(max_rows_ * output_width_);
  }
  if (config_.dropout > 0) workspace->dropped = arena->Take<T>(max_rows_ * output_width_);
}

template <typename T>
void Engine<T>::Backward(const BackwardTensors<T>& tensors, const PackedSequences& sequences,
                         int64_t dropout_call_index, TeamMember* member) const {
  // The steps turn these in place from the final states' gradients to the initial states'.
  member->Single([&] {
    CopyHiddenStates(tensors.output_h_backprop, tensors.input_h_backprop);
    CopyCellStates(tensors.output_c_backprop, tensors.input_c_backprop);
  });
  if (sequences.num_rows() == 0) {
    member->Single([&] { std::fill_n(tensors.params_backprop, layout_.size(), T(0)); });
    return;
  }
  Arena arena(tensors.workspace);
  BackwardWorkspace workspace;
  DescribeBackwardWorkspace(tensors.keeps_reserve_space, &arena, &workspace);
  const std::vector<BackwardLayer> layers =
      BackwardLayers(tensors, workspace, sequences, dropout_call_index);
  if (RunsWavefronts(sequences, member)) {
    RunBackwardSideBySide(layers, member);
  } else {
    for (const BackwardLayer& layer : layers) RunBackwardLayer(layer, member);
  }
}

// Returns the layers in the order of the pass: from the last to the first.
template <typename T>
std::vector<typename Engine<T>::BackwardLayer> Engine<T>::BackwardLayers(
    const BackwardTensors<T>& tensors, const BackwardWorkspace& workspace,
    const PackedSequences& sequences, int64_t dropout_call_index) const {
  std::vector<BackwardLayer> layers(static_cast<size_t>(config_.num_layers));
  const int64_t max_rows = max_rows_.value();
  const T* output_gradient = tensors.output_backprop;
  for (int64_t l = config_.num_layers - 1; l >= 0; --l) {
    const int64_t position = config_.num_layers - 1 - l, place = l % layers_at_once_;
    BackwardLayer& layer = layers[static_cast<size_t>(position)];
    layer.index = l;
    layer.sequences = &sequences;
    layer.tensors = &tensors;
    layer.workspace = &workspace;
    layer.reserve = ReserveOf(l, tensors.reserve_space);
    layer.packed_recurrent = PartOf(workspace.packed_recurrent, place,
                                    directions_ * PackedRecurrentSize(/*transposed=*/true));
    layer.packed_projection = PartOf(workspace.packed_projection, place,
                                     directions_ * PackedProjectionSize(/*transposed=*/true));
    layer.packed_input_weights =
        workspace.packed_input_weights == nullptr
            ? workspace.packed
            : workspace.packed_input_weights +
                  place * PackedElements(WidestInput(), gate_width_).value();
    for (int64_t d = 0; d < directions_; ++d) {
      // In place is safe: a tile reads all values of its rows before it writes their gradients.
      const bool in_place = workspace.gate_gradients[d] == nullptr;
      layer.gate_gradients[d] =
          in_place ? layer.reserve.gates[d]
                   : PartOf(workspace.gate_gradients[d], place, max_rows * gate_width_);
      layer.candidate_gradients[d] =
          in_place ? layer.reserve.units[d]
                   : PartOf(workspace.candidate_gradients[d], place, max_rows * units_);
      layer.projected_gradients[d] =
          PartOf(workspace.projected_gradients[d], place, max_rows * output_size_);
    }
    layer.input = l == 0 ? tensors.input : ReserveOf(l - 1, tensors.reserve_space).output;
    layer.output = layer.reserve.output == nullptr ? tensors.output : layer.reserve.output;
    layer.output_gradient = output_gradient;
    layer.input_gradient =
        l == 0 ? tensors.input_backprop : workspace.output_gradients[position % 2];
    layer.drops_input = l > 0 && workspace.dropped != nullptr;
    layer.dropout = {config_.dropout, config_.seed, config_.seed2, dropout_call_index, l};
    output_gradient = layer.input_gradient;
  }
  return layers;
}

template <typename T>
void Engine<T>::RunBackwardLayer(const BackwardLayer& layer, TeamMember* member) const {
  const StepRange steps = AllSteps(*layer.sequences);
  PackStepWeights(layer, member);
  RunBackwardSteps(layer, steps, member);
  ComputeParameterGradients(layer, member);
  for (int64_t d = 0; d < directions_; ++d) {
    PackInputWeights(layer, d, member);
    ComputeInputGradient(layer, d, steps, member);
  }
  DropInputGradient(layer, steps, member);
}

// Same as RunForwardSideBySide from the last block to the first, then the parameters' gradients.
template <typename T>
void Engine<T>::RunBackwardSideBySide(const std::vector<BackwardLayer>& layers,
                                      TeamMember* member) const {
  for (const BackwardLayer& layer : layers) {
    PackStepWeights(layer, member);
    PackInputWeights(layer, /*direction=*/0, member);
  }
  const PackedSequences& sequences = *layers[0].sequences;
  const auto advance = [&](int64_t position, int64_t block, TeamMember* worker) {
    const BackwardLayer& layer = layers[static_cast<size_t>(position)];
    const StepRange steps = BlockOf(sequences, NumStepBlocks(sequences) - 1 - block);
    RunBackwardSteps(layer, steps, worker);
    ComputeInputGradient(layer, /*direction=*/0, steps, worker);
    DropInputGradient(layer, steps, worker);
  };
  ForWavefronts(sequences, advance, member);
  for (const BackwardLayer& layer : layers) ComputeParameterGradients(layer, member);
}

template <typename T>
void Engine<T>::PackStepWeights(const BackwardLayer& layer, TeamMember* member) const {
  const T* params = layer.tensors->params;
  PackRecurrentWeights(layer.index, /*transposed=*/true, params, layer.packed_recurrent, member);
  PackProjection(layer.index, /*transposed=*/true, params, layer.packed_projection, member);
}

template <typename T>
void Engine<T>::DropInputGradient(const BackwardLayer& layer, const StepRange& steps,
                                  TeamMember* member) const {
  if (!layer.drops_input) return;
  const PackedSequences& sequences = *layer.sequences;
  ApplyDropoutToRows(layer.dropout, sequences.positions(), sequences.FirstRow(steps.first),
                     sequences.FirstRow(steps.end), output_width_, layer.input_gradient,
                     layer.input_gradient, member);
}

template <typename T>
StridedMatrix<T> Engine<T>::RecurrentGateGradients(const BackwardLayer& layer, int64_t direction,
                                                   int64_t first_gate) const {
  if (first_gate >= SharedGates()) {
    return {layer.candidate_gradients[direction], units_, 1};
  }
  return {layer.gate_gradients[direction] + first_gate * units_, gate_width_, 1};
}

// After a sequence's first step comes one without a cell, which propagates the gradient to the
// initial states. For sequences that start at step 0 it is step -1.
template <typename T>
void Engine<T>::RunBackwardSteps(const BackwardLayer& layer, const StepRange& steps,
                                 TeamMember* member) const {
  const int64_t first = steps.first == 0 ? -1 : steps.first;
  const auto run_step = [&](int64_t i, int64_t first_direction, int64_t end_direction,
                            TeamMember* worker) {
    const int64_t step = steps.end - 1 - i;
    const StepPhase states = {output_size_, kernels_.tile_vectors, gate_width_, step, true};
    ForTiles(
        *layer.sequences, states, layer.index, first_direction, end_direction,
        [&](const StepTile& tile) { RunBackwardTile(layer, tile); }, worker);
    if (!config_.has_projection()) return;
    const StepPhase projections = {units_, kernels_.tile_vectors, output_size_, step, false};
    ForTiles(
        *layer.sequences, projections, layer.index, first_direction, end_direction,
        [&](const StepTile& tile) { RunProjectionBackwardTile(layer, tile); }, worker);
  };
  RunSteps(steps.end - first, gate_width_, run_step, member);
}

// Computes the gradient of h from the output and from the next step's gates. Without a projection
// the cell's backward follows; otherwise the gradient is kept for RunProjectionBackwardTile.
template <typename T>
void Engine<T>::RunBackwardTile(const BackwardLayer& layer, const StepTile& tile) const {
  alignas(64) T values[kProductRows * kProductColumns];
  const DirectionStep& step = *tile.step;
  const int64_t d = tile.direction;
  BackwardTile<T> cell = BackwardTile<T>();
  cell.units = tile.columns;
  cell.product = values;
  cell.product_row_stride = kProductColumns;
  cell.output_gradient_row_stride = output_width_;
  cell.h_gradient_row_stride = output_size_;

  ProductTile<T> product = ProductTile<T>();
  product.columns = tile.columns;
  product.c = values;
  product.c_row_stride = kProductColumns;
  product.factors.a_depth_stride = 1;
  product.factors.b_panel_stride = PanelSize(kernels_, gate_width_);
  const int64_t next_tile = kernels_.tile_vectors * product.factors.b_panel_stride;
  const T* packed = layer.packed_recurrent + d * PackedRecurrentSize(/*transposed=*/true) +
                    tile.panel * product.factors.b_panel_stride;
  for (int64_t row = tile.first_row; row < tile.end_row; row += cell.rows) {
    cell.rows = std::min(
        kProductRows, RowsUpTo(row, tile.end_row, step.previous_rows, step.rows, step.next_rows));
    product.rows = cell.rows;
    const bool has_next = row < step.next_rows;
    if (!has_next) std::fill_n(values, cell.rows * kProductColumns, T(0));
    for (int64_t first = 0, end = SharedGates(); first < gates_ && has_next;
         first = end, end = gates_) {
      const StridedMatrix<T> gradients = RecurrentGateGradients(layer, d, first);
      product.factors.a = gradients.data + (step.next_first + row) * gradients.row_stride;
      product.factors.a_row_stride = gradients.row_stride;
      product.factors.b = packed + PanelSize(kernels_, first * units_);
      product.factors.depth = (end - first) * units_;
      product.factors.next_b = row == tile.first_row && cell.rows >= kPrefetchingRows
                                   ? product.factors.b + next_tile
                                   : nullptr;
      product.accumulate = first > 0;
      kernels_.product(product);
    }
    cell.h_gradient = layer.tensors->input_h_backprop +
                      (tile.pseudo_layer * batch_size_ + row) * output_size_ + tile.column;
    if (row >= step.rows) {
      AddProduct(cell, cell.h_gradient, output_size_);
      continue;
    }
    cell.output_gradient =
        layer.output_gradient + (step.first + row) * output_width_ + d * output_size_ + tile.column;
    if (config_.has_projection()) {
      T* gradients = layer.projected_gradients[d] + (step.first + row) * output_size_;
      SumGradients(cell, gradients + tile.column, output_size_);
    } else {
      PointBackwardCell(layer, tile, row, &cell);
      cell_.backward(cell);
    }
  }
}

// Computes the cell's gradients from the gradient of the projected h.
template <typename T>
void Engine<T>::RunProjectionBackwardTile(const BackwardLayer& layer, const StepTile& tile) const {
  alignas(64) T values[kProductRows * kProductColumns];
  // The unprojected h has no gradient other than through the projection.
  const T output_gradient[kProductColumns] = {};
  T h_gradient[kProductColumns] = {};
  BackwardTile<T> cell = BackwardTile<T>();
  cell.units = tile.columns;
  cell.product = values;
  cell.product_row_stride = kProductColumns;
  cell.output_gradient = output_gradient;
  cell.h_gradient = h_gradient;

  ProductTile<T> product = ProductTile<T>();
  product.columns = tile.columns;
  product.c = values;
  product.c_row_stride = kProductColumns;
  product.factors.depth = output_size_;
  product.factors.a_row_stride = output_size_;
  product.factors.a_depth_stride = 1;
  product.factors.b_panel_stride = PanelSize(kernels_, output_size_);
  product.factors.b = layer.packed_projection +
                      tile.direction * PackedProjectionSize(/*transposed=*/true) +
                      tile.panel * product.factors.b_panel_stride;
  for (int64_t row = tile.first_row; row < tile.end_row; row += cell.rows) {
    cell.rows = std::min(kProductRows, RowsUpTo(row, tile.end_row, tile.step->previous_rows));
    product.rows = cell.rows;
    product.factors.a =
        layer.projected_gradients[tile.direction] + (tile.step->first + row) * output_size_;
    kernels_.product(product);
    PointBackwardCell(layer, tile, row, &cell);
    cell_.backward(cell);
  }
}

// Sets the pointers to the forward pass's results and to the gradients of gates and cell state.
template <typename T>
void Engine<T>::PointBackwardCell(const BackwardLayer& layer, const StepTile& tile, int64_t row,
                                  BackwardTile<T>* cell) const {
  const BackwardTensors<T>& tensors = *layer.tensors;
  const DirectionStep& step = *tile.step;
  const int64_t d = tile.direction;
  const int64_t gates = (step.first + row) * gate_width_ + tile.column;
  const int64_t unit = (step.first + row) * units_ + tile.column;
  const int64_t previous_unit = (step.previous_first + row) * units_ + tile.column;
  const int64_t state = (tile.pseudo_layer * batch_size_ + row) * units_ + tile.column;
  cell->gate_stride = units_;
  cell->gate_row_stride = gate_width_;
  cell->unit_row_stride = units_;
  cell->gate_gradients = layer.gate_gradients[d] + gates;
  if (gates_ == 1) {
    cell->h = layer.output + (step.first + row) * output_width_ + d * units_ + tile.column;
    cell->h_row_stride = output_width_;
    return;
  }
  cell->gates = layer.reserve.gates[d] + gates;
  if (config_.mode == RnnMode::kGru) {
    const StridedMatrix<T> previous = PreviousOutput(tensors.input_h, layer.output, tile, row);
    cell->previous_h = previous.data + tile.column;
    cell->previous_h_row_stride = previous.row_stride;
    cell->candidate_product = layer.reserve.units[d] + unit;
    cell->candidate_gradient = layer.candidate_gradients[d] + unit;
  } else {
    const bool is_first = row >= step.previous_rows;
    cell->c = layer.reserve.units[d] + unit;
    cell->previous_c = is_first ? tensors.input_c + state : layer.reserve.units[d] + previous_unit;
    cell->c_gradient = tensors.input_c_backprop + state;
  }
}

// The rest of the class is instantiated in engine.cc, engine_steps.cc and engine_gradients.cc.
#define INSTANTIATE(T)                                                                          \
  template CheckedSize Engine<T>::BackwardWorkspaceBytes(bool) const;                           \
  template StridedMatrix<T> Engine<T>::RecurrentGateGradients(const BackwardLayer&, int64_t,    \
                                                              int64_t) const;                   \
  template void Engine<T>::Backward(const BackwardTensors<T>&, const PackedSequences&, int64_t, \
                                    TeamMember*) const
INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace cudnn_rnn
