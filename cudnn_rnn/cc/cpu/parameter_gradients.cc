#include "cudnn_rnn/cc/cpu/parameter_gradients.h"

#include <algorithm>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/gemm.h"
#include "cudnn_rnn/cc/cpu/steps.h"

namespace cudnn_rnn {
namespace {

// Rows gathered per call of `pack_panel`; even, so that no bfloat16 pair is split.
constexpr int64_t kGatheredRows = 64;

template <typename T>
struct ParameterGradients {
  const EngineModel<T>& model;
  const BackwardTensors<T>& tensors;
  const PackedSequences& sequences;
  const BackwardLayer<T>& layer;
  const BackwardWorkspace<T>& workspace;
  TeamMember* const member;

  // Computes dW [G * H, I] = dgates^T x; dR [H, P] of each gate = dgate^T h'; and for a projection
  // [P, H] dh^T (o * tanh(c)).
  void ComputeWeightGradients(int64_t direction, const T* input) const {
    const int64_t num_rows = sequences.num_rows();
    T* gradients = tensors.params_backprop;
    // Both factors have N rows.
    MatrixProduct<T> product;
    product.depth = num_rows;
    product.b = workspace.operand;
    product.has_long_sums = true;
    const auto multiply = [&](const StridedMatrix<T>& left, int64_t rows, int64_t columns,
                              T* target) {
      product.a = {left.data, 1, left.row_stride};
      product.rows = rows;
      product.columns = columns;
      product.c = target;
      product.c_row_stride = columns;
      Multiply(model.kernels, product, member);
    };
    const int64_t columns = model.layout.InputWeightColumns(layer.index);
    if (columns > 0) {
      PackPanels<T, T>(model.kernels, {input, columns, 1}, num_rows, columns, workspace.operand,
                       member);
      multiply({layer.gate_gradients[direction], model.gate_row_stride, 1}, model.gate_width,
               columns, gradients + model.layout.InputWeights(layer.index, direction));
    }
    PackPreviousOutputs(direction);
    T* target = gradients + model.layout.RecurrentWeights(layer.index, direction);
    for (int64_t first = 0, end = model.shared_gates(); first < model.gates;
         first = end, end = model.gates) {
      multiply(layer.RecurrentGateGradients(model, direction, first), (end - first) * model.units,
               model.output_size, target + first * model.units * model.output_size);
    }
    if (!model.config.has_projection()) return;
    PackPanels<T, T>(model.kernels, {layer.reserve.unprojected[direction], model.units, 1},
                     num_rows, model.units, workspace.operand, member);
    multiply({layer.projected_gradients[direction], model.output_size, 1}, model.output_size,
             model.units, gradients + model.layout.ProjectionWeights(layer.index, direction));
  }

  // Sums the gates' gradients over all N rows, in double.
  void ComputeBiasGradients(int64_t direction) const {
    T* input_bias = tensors.params_backprop + model.layout.InputBiases(layer.index, direction);
    T* recurrent_bias =
        tensors.params_backprop + model.layout.RecurrentBiases(layer.index, direction);
    const int64_t num_rows = sequences.num_rows();
    constexpr int64_t kItemColumns = 32;
    const auto sum_rows = [&](const StridedMatrix<T>& matrix, int64_t columns, T* sums) {
      const int64_t num_items = (columns + kItemColumns - 1) / kItemColumns;
      member->ForEach(num_items, num_rows * kItemColumns / 4 + 1, [&](int64_t begin, int64_t end) {
        const int64_t column = begin * kItemColumns;
        const int64_t end_column = std::min(end * kItemColumns, columns);
        model.kernels.sum_rows(matrix.data + column, matrix.row_stride, num_rows,
                               end_column - column, sums + column);
      });
    };
    sum_rows({layer.gate_gradients[direction], model.gate_row_stride, 1}, model.gate_width,
             input_bias);
    const int64_t shared = model.shared_gates() * model.units;
    if (shared < model.gate_width) {
      sum_rows(layer.RecurrentGateGradients(model, direction, model.shared_gates()),
               model.gate_width - shared, recurrent_bias + shared);
    }
    member->Single([&] { std::copy_n(input_bias, shared, recurrent_bias); });
  }

  // Packs each panel step by step in the order of time. Rows are gathered first, because the two
  // rows of a bfloat16 pair may come from different buffers.
  void PackPreviousOutputs(int64_t direction) const {
    const int64_t lanes = model.kernels.lanes;
    const T* states =
        tensors.input_h + model.FirstState(layer.index, direction) * model.output_size;
    const T* outputs = layer.output + direction * model.output_size;
    const auto pack_panel = [&](int64_t panel) {
      alignas(64) T gathered[kGatheredRows * kMaxLanes];
      const int64_t column = panel * lanes;
      const int64_t columns = std::min(lanes, model.output_size - column);
      T* target = workspace.operand + panel * PanelSize(model.kernels, sequences.num_rows());
      int64_t num_rows = 0;
      const auto flush = [&] {
        model.kernels.pack_panel({gathered, lanes, 1}, num_rows, columns, target);
        target += PanelSize(model.kernels, num_rows);
        num_rows = 0;
      };
      const auto add = [&](const T* data, int64_t row_stride, int64_t rows) {
        for (; rows > 0; --rows, data += row_stride) {
          std::copy_n(data, columns, gathered + num_rows * lanes);
          if (++num_rows == kGatheredRows) flush();
        }
      };
      const int64_t num_steps = sequences.num_steps();
      for (int64_t time = 0; time < num_steps; ++time) {
        const DirectionStep step =
            DirectionStepOf(sequences, direction, direction == 0 ? time : num_steps - 1 - time);
        add(outputs + step.previous_first * model.output_width + column, model.output_width,
            step.previous_rows);
        add(states + step.previous_rows * model.output_size + column, model.output_size,
            step.rows - step.previous_rows);
      }
      flush();
    };
    member->ForEach(NumPanels(model.kernels, model.output_size),
                    sequences.num_rows() * lanes / 4 + 1, [&](int64_t begin, int64_t end) {
                      for (int64_t panel = begin; panel < end; ++panel) pack_panel(panel);
                    });
  }
};

}  // namespace

template <typename T>
void ComputeParameterGradients(const EngineModel<T>& model, const BackwardTensors<T>& tensors,
                               const PackedSequences& sequences, const BackwardLayer<T>& layer,
                               const BackwardWorkspace<T>& workspace, TeamMember* member) {
  const T* input = layer.input;
  if (layer.drops_input) {
    ApplyDropoutToRows(layer.dropout, sequences.positions(), 0, sequences.num_rows(),
                       model.output_width, input, workspace.dropped, member);
    input = workspace.dropped;
  }
  const ParameterGradients<T> gradients = {model, tensors, sequences, layer, workspace, member};
  for (int64_t d = 0; d < model.directions; ++d) {
    gradients.ComputeWeightGradients(d, input);
    gradients.ComputeBiasGradients(d);
  }
}

template void ComputeParameterGradients(const EngineModel<float>&, const BackwardTensors<float>&,
                                        const PackedSequences&, const BackwardLayer<float>&,
                                        const BackwardWorkspace<float>&, TeamMember*);
template void ComputeParameterGradients(const EngineModel<double>&, const BackwardTensors<double>&,
                                        const PackedSequences&, const BackwardLayer<double>&,
                                        const BackwardWorkspace<double>&, TeamMember*);

}  // namespace cudnn_rnn
