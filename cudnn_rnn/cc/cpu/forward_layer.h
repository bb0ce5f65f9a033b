// The buffers of one layer in a forward pass, of many steps (forward_pass.h) or of a single one
// (decode_step.h); and input products that the steps compute themselves.
#ifndef CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_
#define CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_

#include <algorithm>
#include <cstdint>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/cpu/steps.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {

// workspace.h has the shapes that are missing here.
template <typename T>
struct ForwardLayer {
  int64_t index;
  LayerPanels<T> panels;  // null if weights are not packed as a whole
  T* bias[2];
  T* unprojected[2];  // [N, H] if all steps are kept, otherwise [B, H]
  T* gates[2];
  int64_t first_gate_row[2];            // the packed row that `gates` begin with
  T* cell_states[2];                    // null unless all steps are kept
  T* candidate_products[2];             // of all steps, of a single step, or null
  RoundedMatrix rounded_outputs[2][2];  // h of even and of odd steps, of each direction
  RoundedMatrix rounded_unprojected[2];
  RoundedMatrix rounded_input;  // x of all steps, or null
  const T* input;               // [N, LayerInputSize]
  T* output;                    // [N, D * P]
  T* dropped;                   // [N, D * P] `output` after dropout, or null
  DropoutPattern dropout;

  const RoundedMatrix& RoundedOutputs(const StepTile& tile, int64_t step) const {
    return rounded_outputs[tile.direction][step & 1];
  }
};

// Computes columns [begin, end) of the biases that are added to x W^T. GRU's bias of R_n is left
// out: the cell adds it before the product with r.
template <typename T>
void SumBiases(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
               const ForwardLayer<T>& layer, int64_t direction, int64_t begin, int64_t end) {
  const T* input = model.InputBiases(tensors.params, layer.index, direction);
  const T* recurrent = input + model.gate_width;
  const int64_t shared = model.shared_gates() * model.units;
  for (int64_t j = begin; j < end; ++j) {
    layer.bias[direction][j] = j < shared ? input[j] + recurrent[j] : input[j];
  }
}

// Sets all pointers and strides of a cell except those of R's panels, for a tile's rows from `row`
// on. The rows must not cross the step's previous_rows. If keeps_steps, the buffers of c, R_n h'
// and the unprojected h hold all steps [N, H]; otherwise they hold the current step [B, H].
template <typename T>
void PointCell(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
               const ForwardLayer<T>& layer, const StepTile& tile, int64_t row, bool keeps_steps,
               ForwardTile<T>* cell) {
  const int64_t units = model.units;
  const DirectionStep& step = *tile.step;
  const int64_t d = tile.direction;
  const int64_t unit = (keeps_steps ? step.first + row : row) * units + tile.column;
  const int64_t first_state = model.FirstState(layer.index, d) * units;
  const StridedMatrix<T> previous =
      model.PreviousOutput(tensors.input_h, layer.output, layer.index, tile, row);
  cell->units = tile.columns;
  cell->gate_stride = units;
  cell->gate_row_stride = model.gate_row_stride;
  cell->unit_row_stride = units;
  cell->keeps_gates = keeps_steps;
  cell->recurrent.a = previous.data;
  cell->recurrent.a_row_stride = previous.row_stride;
  cell->recurrent.rounded_a = layer.RoundedOutputs(tile, step.index - 1).At(row, 0);
  if (layer.gates[d] != nullptr) {
    const int64_t gate_row = step.first + row - layer.first_gate_row[d];
    cell->gates = layer.gates[d] + gate_row * model.gate_row_stride + tile.column;
  }
  if (model.config.has_projection()) {
    cell->h = layer.unprojected[d] + unit;
    cell->h_row_stride = units;
    cell->rounded_h = layer.rounded_unprojected[d].At(row, tile.column);
  } else {
    cell->h = layer.output + (step.first + row) * model.output_width + d * units + tile.column;
    cell->h_row_stride = model.output_width;
    cell->rounded_h = layer.RoundedOutputs(tile, step.index).At(row, tile.column);
  }
  if (model.config.mode == RnnMode::kGru) {
    cell->previous_h = previous.data + tile.column;
    cell->previous_h_row_stride = previous.row_stride;
    cell->candidate_bias = model.InputBiases(tensors.params, layer.index, d) + model.gate_width +
                           kGruCandidate * units + tile.column;
    T* const products = layer.candidate_products[d];
    cell->candidate_product = products == nullptr ? nullptr : products + unit;
  } else if (model.config.has_cell_state()) {
    // Inference keeps only the current cell state, in output_c.
    T* cells = keeps_steps ? layer.cell_states[d] : tensors.output_c + first_state;
    const int64_t previous_row = keeps_steps ? step.previous_first + row : row;
    cell->c = cells + unit;
    cell->previous_c = row >= step.previous_rows
                           ? tensors.input_c + first_state + row * units + tile.column
                           : cells + previous_row * units + tile.column;
  }
}

// Input products in steps: the maximum rows per product, and the row stride of its result, which
// stays in the L1 cache.
constexpr int64_t kMaxRowsInStep = 64;
constexpr int64_t kInputProductStride = kMaxTileVectors * kMaxLanes;

// Rounds x of all steps, if the layer has memory for the rounded x.
template <typename T>
void RoundInput(const EngineModel<T>& model, int64_t num_rows, const ForwardLayer<T>& layer,
                TeamMember* member) {
  if (layer.rounded_input.data == nullptr) return;
  const Kernels<T>& kernels = model.kernels;
  const int64_t width = model.layout.InputWeightColumns(layer.index);
  member->ForEach(num_rows, width, [&](int64_t begin, int64_t end) {
    kernels.round_rows({layer.input + begin * width, width, 1}, end - begin, width,
                       PaddedDepth(kernels, width), layer.rounded_input.At(begin, 0));
  });
}

// Computes the input products of a tile's rows from `row` on, [kMaxRowsInStep,
// kInputProductStride], and points the cell to them.
template <typename T>
void MultiplyInput(const EngineModel<T>& model, const ForwardLayer<T>& layer, const StepTile& tile,
                   int64_t row, T* products, ForwardTile<T>* cell) {
  const Kernels<T>& kernels = model.kernels;
  const int64_t gates = model.gates, d = tile.direction;
  const int64_t columns = model.layout.InputWeightColumns(layer.index);
  const int64_t panel_size = PanelSize(kernels, columns);
  ProductTile<T> product = ProductTile<T>();
  product.rows = cell->rows;
  product.columns = gates == 1 ? tile.columns : gates * kernels.lanes;
  product.factors.rounded_a = layer.rounded_input.At(tile.step->first + row, 0);
  product.factors.depth = columns;
  product.factors.b = layer.panels.input_weights[d] + tile.panel * panel_size;
  product.factors.b_panel_stride =
      gates == 1 ? panel_size : model.units / kernels.lanes * panel_size;
  alignas(64) T bias[kInputProductStride];  // [gates, lanes]
  for (int64_t g = 0; g < gates; ++g) {
    std::copy_n(layer.bias[d] + g * model.units + tile.column, tile.columns,
                bias + g * kernels.lanes);
  }
  product.bias = bias;
  product.c = products;
  product.c_row_stride = kInputProductStride;
  kernels.product(product);
  cell->gates = products;
  cell->gate_stride = kernels.lanes;
  cell->gate_row_stride = kInputProductStride;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_
