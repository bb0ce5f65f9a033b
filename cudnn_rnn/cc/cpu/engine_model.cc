#include "cudnn_rnn/cc/cpu/engine_model.h"

#include <algorithm>
#include <cmath>

#include "cudnn_rnn/cc/cpu/gemm.h"

namespace cudnn_rnn {
namespace {

template <typename T>
const CellKernels<T>& CellOf(const Kernels<T>& kernels, RnnMode mode) {
  return mode == RnnMode::kLstm   ? kernels.lstm
         : mode == RnnMode::kGru  ? kernels.gru
         : mode == RnnMode::kRelu ? kernels.relu
                                  : kernels.tanh;
}

// Returns the distance between rows of this width in a buffer of ours: whole cache lines, and one
// more if the rows would compete for a few sets of the L1 cache (64 sets, which repeat every 4
// KiB).
template <typename T>
int64_t SpreadRowStride(int64_t width) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t lines = (width + kLine - 1) / kLine;
  return (lines % 16 == 0 ? lines + 1 : lines) * kLine;
}

}  // namespace

template <typename T>
EngineModel<T>::EngineModel(const RnnConfig& config, const ParamLayout& layout,
                            const SequenceShape& shape, const Kernels<T>& kernels)
    : config(config),
      layout(layout),
      shape(shape),
      kernels(kernels),
      cell(CellOf(kernels, config.mode)),
      schedule(MakeSchedule(config, shape, kernels)),
      gate_row_stride(SpreadRowStride<T>(gate_width)) {}

template <typename T>
int64_t EngineModel<T>::WidestInput() const {
  return std::max(config.skips_input_projection() ? 0 : config.input_size,
                  config.num_layers > 1 ? output_width : 0);
}

template <typename T>
void EngineModel<T>::PackWeights(const ParamTensors<T>& params, int64_t offset, int64_t row_stride,
                                 int64_t column_stride, int64_t depth, int64_t columns, T* panels,
                                 TeamMember* member) const {
  if (params.bfloat16_weights != nullptr) {
    const StridedMatrix<uint16_t> weights = {params.bfloat16_weights + offset, row_stride,
                                             column_stride};
    PackPanels(kernels, weights, depth, columns, panels, member);
  } else {
    const StridedMatrix<T> weights = {params.weights + offset, row_stride, column_stride};
    PackPanels(kernels, weights, depth, columns, panels, member);
  }
}

template <typename T>
void EngineModel<T>::PackStepWeights(int64_t layer, bool for_gradients,
                                     const ParamTensors<T>& params, T* const* recurrent,
                                     T* const* projection, TeamMember* member) const {
  for (int64_t d = 0; d < directions; ++d) {
    const int64_t weights = layout.RecurrentWeights(layer, d);
    if (for_gradients) {
      PackWeights(params, weights, output_size, 1, gate_width, output_size, recurrent[d], member);
      continue;
    }
    for (int64_t g = 0; g < gates; ++g) {
      PackWeights(params, weights + g * units * output_size, 1, output_size, output_size, units,
                  recurrent[d] + g * PanelElements(output_size, units).value(), member);
    }
  }
  for (int64_t d = 0; d < directions && config.has_projection(); ++d) {
    const int64_t weights = layout.ProjectionWeights(layer, d);
    if (for_gradients) {
      PackWeights(params, weights, units, 1, output_size, units, projection[d], member);
    } else {
      PackWeights(params, weights, 1, units, units, output_size, projection[d], member);
    }
  }
}

template <typename T>
int64_t EngineModel<T>::UsefulThreads(bool is_backward, int64_t pass_cost,
                                      int64_t cycles_to_wake) const {
  if (cycles_to_wake == 0) return Team::kMaxMembers;
  const bool packs_step_weights = schedule.recurrent_weights.value == Packing::kWhole;
  StepPhase phase = StepPhase();
  phase.columns = packs_step_weights ? units : gate_width;
  phase.lanes = kernels.lanes;
  const int64_t step_items =
      PhaseItems(phase, directions, shape.batch_size, Team::kMaxMembers).count();
  // The input products; a backward pass, twice as long, has those for dx, dW and dR.
  double product_params = 0;
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const int64_t columns = layout.InputWeightColumns(l);
    const double width = static_cast<double>(directions * gate_width);
    product_params +=
        width * static_cast<double>(is_backward ? 2 * columns + output_size : columns);
  }
  const double params = static_cast<double>(layout.size()) * (is_backward ? 2 : 1);
  const double product_cost = static_cast<double>(pass_cost) * product_params / params;
  // The n-th thread saves product_cost / (n - 1) - product_cost / n = product_cost / (n * (n - 1)).
  const int64_t by_products = static_cast<int64_t>(
      0.5 + std::sqrt(0.25 + product_cost / static_cast<double>(cycles_to_wake)));
  return std::max({step_items, schedule.concurrent_layers.value, by_products});
}

template <typename T>
void EngineModel<T>::CopyStates(const T* h, const T* c, T* target_h, T* target_c) const {
  const int64_t rows = FirstState(config.num_layers, 0);
  std::copy_n(h, rows * output_size, target_h);
  if (config.has_cell_state()) std::copy_n(c, rows * units, target_c);
}

template struct EngineModel<float>;
template struct EngineModel<double>;

}  // namespace cudnn_rnn
