// Gradients of parameters and inputs from the gates' gradients, as large products and sums.
#include <algorithm>

#include "cudnn_rnn/cc/cpu/engine.h"
#include "cudnn_rnn/cc/cpu/engine_layers.h"

namespace cudnn_rnn {
namespace {

// Rows gathered per call of `pack`; even, so that no bfloat16 pair is split.
constexpr int64_t kGatheredRows = 64;

}  // namespace

template <typename T>
void Engine<T>::ComputeParameterGradients(const BackwardLayer& layer, TeamMember* member) const {
  const PackedSequences& sequences = *layer.sequences;
  const T* input = layer.input;
  if (layer.drops_input) {
    ApplyDropoutToRows(layer.dropout, sequences.positions(), 0, sequences.num_rows(), output_width_,
                       input, layer.workspace->dropped, member);
    input = layer.workspace->dropped;
  }
  for (int64_t d = 0; d < directions_; ++d) {
    ComputeWeightGradients(layer, d, input, member);
    ComputeBiasGradients(layer, d, member);
  }
}

// Computes dW [G * H, I] = dgates^T x; dR [H, P] of each gate = dgate^T h'; and for a projection
// [P, H] dh^T (o * tanh(c)).
template <typename T>
void Engine<T>::ComputeWeightGradients(const BackwardLayer& layer, int64_t direction,
                                       const T* input, TeamMember* member) const {
  const int64_t num_rows = layer.sequences->num_rows();
  T* gradients = layer.tensors->params_backprop;
  T* packed = layer.workspace->packed;
  // Both factors have N rows.
  MatrixProduct<T> product;
  product.depth = num_rows;
  product.b = packed;
  product.accumulate = false;
  product.bias = nullptr;
  product.has_long_sums = true;
  const auto multiply = [&](const StridedMatrix<T>& left, int64_t rows, int64_t columns,
                            T* target) {
    product.a = {left.data, 1, left.row_stride};
    product.rows = rows;
    product.columns = columns;
    product.c = target;
    product.c_row_stride = columns;
    Multiply(kernels_, product, member);
  };
  const int64_t columns = layout_.InputWeightColumns(layer.index);
  if (columns > 0) {
    PackOperand<T>(kernels_, {input, columns, 1}, num_rows, columns, packed, member);
    multiply({layer.gate_gradients[direction], gate_width_, 1}, gate_width_, columns,
             gradients + layout_.InputWeights(layer.index, direction));
  }
  PackPreviousOutputs(layer, direction, packed, member);
  T* target = gradients + layout_.RecurrentWeights(layer.index, direction);
  for (int64_t first = 0, end = SharedGates(); first < gates_; first = end, end = gates_) {
    multiply(RecurrentGateGradients(layer, direction, first), (end - first) * units_, output_size_,
             target + first * units_ * output_size_);
  }
  if (!config_.has_projection()) return;
  PackOperand<T>(kernels_, {layer.reserve.unprojected[direction], units_, 1}, num_rows, units_,
                 packed, member);
  multiply({layer.projected_gradients[direction], output_size_, 1}, output_size_, units_,
           gradients + layout_.ProjectionWeights(layer.index, direction));
}

// Packs each panel step by step in the order of time. Rows are gathered first, because the two rows
// of a bfloat16 pair may come from different buffers.
template <typename T>
void Engine<T>::PackPreviousOutputs(const BackwardLayer& layer, int64_t direction, T* packed,
                                    TeamMember* member) const {
  const PackedSequences& sequences = *layer.sequences;
  const int64_t lanes = kernels_.lanes;
  const T* states =
      layer.tensors->input_h + (layer.index * directions_ + direction) * batch_size_ * output_size_;
  const T* outputs = layer.output + direction * output_size_;
  const auto pack_panel = [&](int64_t panel) {
    alignas(64) T gathered[kGatheredRows * kMaxLanes];
    const int64_t column = panel * lanes;
    const int64_t columns = std::min(lanes, output_size_ - column);
    T* target = packed + panel * PanelSize(kernels_, sequences.num_rows());
    int64_t num_rows = 0;
    const auto flush = [&] {
      kernels_.pack({gathered, lanes, 1}, num_rows, columns, target);
      target += PanelSize(kernels_, num_rows);
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
      add(outputs + step.previous_first * output_width_ + column, output_width_,
          step.previous_rows);
      add(states + step.previous_rows * output_size_ + column, output_size_,
          step.rows - step.previous_rows);
    }
    flush();
  };
  member->ForEach(NumPanels(kernels_, output_size_), sequences.num_rows() * lanes / 4 + 1,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t panel = begin; panel < end; ++panel) pack_panel(panel);
                  });
}

// Sums the gates' gradients over all N rows, in double.
template <typename T>
void Engine<T>::ComputeBiasGradients(const BackwardLayer& layer, int64_t direction,
                                     TeamMember* member) const {
  T* input_bias = layer.tensors->params_backprop + layout_.InputBiases(layer.index, direction);
  T* recurrent_bias =
      layer.tensors->params_backprop + layout_.RecurrentBiases(layer.index, direction);
  const int64_t num_rows = layer.sequences->num_rows();
  constexpr int64_t kItemColumns = 32;
  const auto sum_rows = [&](const StridedMatrix<T>& matrix, int64_t columns, T* sums) {
    const int64_t num_items = (columns + kItemColumns - 1) / kItemColumns;
    member->ForEach(num_items, num_rows * kItemColumns / 4 + 1, [&](int64_t begin, int64_t end) {
      const int64_t column = begin * kItemColumns;
      const int64_t end_column = std::min(end * kItemColumns, columns);
      kernels_.sum_rows(matrix.data + column, matrix.row_stride, num_rows, end_column - column,
                        sums + column);
    });
  };
  sum_rows({layer.gate_gradients[direction], gate_width_, 1}, gate_width_, input_bias);
  const int64_t shared = SharedGates() * units_;
  if (shared < gate_width_) {
    sum_rows(RecurrentGateGradients(layer, direction, SharedGates()), gate_width_ - shared,
             recurrent_bias + shared);
  }
  member->Single([&] { std::copy_n(input_bias, shared, recurrent_bias); });
}

template <typename T>
void Engine<T>::PackInputWeights(const BackwardLayer& layer, int64_t direction,
                                 TeamMember* member) const {
  const int64_t columns = layout_.InputWeightColumns(layer.index);
  if (columns == 0) return;
  const T* weights = layer.tensors->params + layout_.InputWeights(layer.index, direction);
  PackOperand<T>(kernels_, {weights, columns, 1}, gate_width_, columns, layer.packed_input_weights,
                 member);
}

// Computes dx [N, I] = sum over directions of dgates W.
template <typename T>
void Engine<T>::ComputeInputGradient(const BackwardLayer& layer, int64_t direction,
                                     const StepRange& steps, TeamMember* member) const {
  const int64_t columns = layout_.InputWeightColumns(layer.index);
  const int64_t first_row = layer.sequences->FirstRow(steps.first);
  const int64_t num_rows = layer.sequences->FirstRow(steps.end) - first_row;
  const T* gradients = layer.gate_gradients[direction] + first_row * gate_width_;
  if (columns > 0) {
    MatrixProduct<T> product;
    product.rows = num_rows;
    product.columns = columns;
    product.depth = gate_width_;
    product.a = {gradients, gate_width_, 1};
    product.b = layer.packed_input_weights;
    product.c = layer.input_gradient + first_row * columns;
    product.c_row_stride = columns;
    product.accumulate = direction > 0;
    product.bias = nullptr;
    product.has_long_sums = false;
    Multiply(kernels_, product, member);
    return;
  }
  member->ForEach(num_rows, gate_width_ + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* target = layer.input_gradient + (first_row + row) * units_;
      if (direction == 0) std::fill_n(target, units_, T(0));
      for (int64_t g = 0; g < gates_; ++g) {
        const T* source = gradients + row * gate_width_ + g * units_;
        for (int64_t j = 0; j < units_; ++j) target[j] += source[j];
      }
    }
  });
}

// The rest of the class is instantiated in engine.cc, engine_steps.cc and engine_backward.cc.
#define INSTANTIATE(T)                                                                           \
  template void Engine<T>::ComputeParameterGradients(const BackwardLayer&, TeamMember*) const;   \
  template void Engine<T>::PackInputWeights(const BackwardLayer&, int64_t, TeamMember*) const;   \
  template void Engine<T>::ComputeInputGradient(const BackwardLayer&, int64_t, const StepRange&, \
                                                TeamMember*) const
INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace cudnn_rnn
