#include "cudnn_rnn/cc/cpu/workspace.h"

#include <algorithm>

#include "cudnn_rnn/cc/cpu/gemm.h"

namespace cudnn_rnn {
namespace {

template <typename T>
Parts<T> TakeParts(Arena* arena, CheckedSize count, CheckedSize size) {
  return {arena->Take<T>(count * size), size.value()};
}

// Takes matrices [rows, columns], if the kernels round.
template <typename T>
RoundedParts TakeRounded(Arena* arena, const EngineModel<T>& model, int64_t count, CheckedSize rows,
                         int64_t columns) {
  if (!model.kernels.rounds()) return RoundedParts();
  const CheckedSize row_stride = RoundedRowStride(CheckedSize(columns));
  const CheckedSize plane = rows * row_stride;
  const int64_t planes = model.kernels.planes;
  return {TakeParts<uint16_t>(arena, count, plane * planes), row_stride.value(),
          planes > 1 ? plane.value() : 0};
}

}  // namespace

// All layers but the last take the same size.
template <typename T>
ReserveSpace<T>::ReserveSpace(const EngineModel<T>& model, int64_t layer, Arena* arena) {
  for (int64_t d = 0; d < model.directions; ++d) {
    if (GateStorage(model.config, Pass::kTraining).value == Storage::kReserveSpace) {
      gates[d] = arena->Take<T>(model.max_rows * model.gate_row_stride);
      T*& of_units = model.config.has_cell_state() ? cell_states[d] : candidate_products[d];
      of_units = arena->Take<T>(model.max_rows * model.units);
    }
    if (model.config.has_projection()) {
      unprojected[d] = arena->Take<T>(model.max_rows * model.units);
    }
  }
  if (layer + 1 < model.config.num_layers) {
    output = arena->Take<T>(model.max_rows * model.output_width);
  }
}

template <typename T>
std::vector<KeptMatrix<T>> ReserveSpace<T>::Matrices(const EngineModel<T>& model) const {
  std::vector<KeptMatrix<T>> matrices;
  const int64_t max_rows = model.max_rows.value();
  const auto add = [&](T* data, int64_t width, int64_t row_stride) {
    if (data == nullptr) return;
    Arena arena(nullptr);
    arena.Take<T>(max_rows * row_stride);
    const int64_t taken = arena.used().value() / static_cast<int64_t>(sizeof(T));
    matrices.push_back({data, width, row_stride, taken - max_rows * row_stride});
  };
  for (int64_t d = 0; d < model.directions; ++d) {
    add(gates[d], model.gate_width, model.gate_row_stride);
    add(cell_states[d], model.units, model.units);
    add(candidate_products[d], model.units, model.units);
    add(unprojected[d], model.units, model.units);
  }
  add(output, model.output_width, model.output_width);
  return matrices;
}

template <typename T>
CheckedSize ReserveSpaceBytes(const EngineModel<T>& model) {
  Arena inner(nullptr), last(nullptr);
  ReserveSpace<T>(model, 0, &inner);
  ReserveSpace<T>(model, model.config.num_layers - 1, &last);
  return inner.used() * (model.config.num_layers - 1) + last.used();
}

template <typename T>
ReserveSpace<T> ReserveSpaceOf(const EngineModel<T>& model, int64_t layer, void* reserve_space) {
  Arena inner(nullptr);
  ReserveSpace<T>(model, 0, &inner);
  Arena arena(static_cast<char*>(reserve_space) + layer * inner.used().value());
  return ReserveSpace<T>(model, layer, &arena);
}

template <typename T>
ForwardWorkspace<T>::ForwardWorkspace(const EngineModel<T>& model, Pass pass, Arena* arena) {
  const RnnConfig& config = model.config;
  const Schedule& schedule = model.schedule;
  const int64_t layers = schedule.concurrent_layers.value;
  const int64_t pseudo_layers = layers * model.directions;
  const bool is_training = pass == Pass::kTraining;
  const bool keeps_gates = GateStorage(config, pass).value == Storage::kReserveSpace;
  const bool in_steps = schedule.HasProductsInSteps(pass);
  const CheckedSize batch = model.shape.batch_size;
  if (schedule.recurrent_weights.value == Packing::kWhole) {
    const bool packs_input_weights = schedule.input_weights.value == Packing::kWhole;
    const CheckedSize inputs =
        model.PanelElements(packs_input_weights ? model.WidestInput() : 0, model.gate_width);
    const CheckedSize recurrent = model.RecurrentPanelElements(/*for_gradients=*/false);
    input_weight_panels = TakeParts<T>(arena, pseudo_layers, inputs);
    recurrent_panels = TakeParts<T>(arena, pseudo_layers, recurrent);
    if (config.has_projection()) {
      projection_panels = TakeParts<T>(arena, pseudo_layers,
                                       model.ProjectionPanelElements(/*for_gradients=*/false));
      rounded_unprojected = TakeRounded(arena, model, pseudo_layers, batch, model.units);
    }
    rounded_outputs = TakeRounded(arena, model, 2 * pseudo_layers, batch, model.output_size);
    // The layers of a wavefront do not have x of all steps at once.
    const bool rounds_once = layers == 1 && model.kernels.row_multiple > 1 &&
                             NumPanels(model.kernels, model.gate_width) > 2 * kItemPanels;
    if (in_steps || rounds_once) {
      rounded_input = TakeRounded(arena, model, 1, model.max_rows, model.WidestInput());
    }
  }
  bias = TakeParts<T>(arena, pseudo_layers, model.gate_width);
  const CheckedSize state_elements = batch * model.units;
  if (!keeps_gates) {
    const CheckedSize gate_rows = batch * schedule.steps_per_block.value;
    for (int64_t d = 0; d < model.directions; ++d) {
      if (!in_steps) gates[d] = arena->Take<T>(gate_rows * model.gate_row_stride);
      if (schedule.recurrent_weights.value != Packing::kWhole && config.mode == RnnMode::kGru) {
        candidate_products[d] = arena->Take<T>(state_elements);
      }
    }
    if (config.has_projection()) {
      unprojected = TakeParts<T>(arena, pseudo_layers, state_elements);
    }
  }
  if (config.num_layers == 1) return;
  if (!is_training) {
    outputs[0] = arena->Take<T>(model.max_rows * model.output_width);
    if (config.num_layers > 2) outputs[1] = arena->Take<T>(model.max_rows * model.output_width);
  } else if (config.dropout > 0) {
    dropped = arena->Take<T>(model.max_rows * model.output_width);
  }
}

template <typename T>
PackedWeights<T>::PackedWeights(const EngineModel<T>& model, Pass, Arena* arena) {
  const RnnConfig& config = model.config;
  layers.resize(static_cast<size_t>(config.num_layers));
  const Packing packing = model.schedule.recurrent_weights.value;
  if (packing == Packing::kNone) return;
  for (int64_t l = 0; l < config.num_layers; ++l) {
    LayerPanels<T>& layer = layers[static_cast<size_t>(l)];
    const int64_t columns = model.layout.InputWeightColumns(l);
    for (int64_t d = 0; d < model.directions; ++d) {
      if (columns > 0) {
        layer.input_weights[d] = arena->Take<T>(
            packing == Packing::kWhole ? model.PanelElements(columns, model.gate_width)
                                       : model.PanelElements(columns, model.units) * model.gates);
      }
      layer.recurrent[d] = arena->Take<T>(model.RecurrentPanelElements(/*for_gradients=*/false));
      if (config.has_projection()) {
        layer.projection[d] =
            arena->Take<T>(model.ProjectionPanelElements(/*for_gradients=*/false));
      }
    }
  }
}

template <typename T>
BackwardWorkspace<T>::BackwardWorkspace(const EngineModel<T>& model, Pass pass, Arena* arena) {
  const RnnConfig& config = model.config;
  const int64_t layers = model.schedule.concurrent_layers.value;
  const int64_t pseudo_layers = layers * model.directions;
  const CheckedSize batch = model.shape.batch_size;
  const CheckedSize recurrent = model.RecurrentPanelElements(/*for_gradients=*/true);
  const CheckedSize input_weights = model.PanelElements(model.gate_width, model.WidestInput());
  // R shares its memory with the operands of the large products, which begin after the steps.
  operand = arena->Take<T>(
      std::max({recurrent * pseudo_layers, input_weights,
                model.PanelElements(model.max_rows, model.WidestInput()),  // x
                model.PanelElements(model.max_rows, model.units)}));       // h' or unprojected h
  recurrent_panels = {operand, recurrent.value()};
  if (layers > 1) {
    input_weight_panels = TakeParts<T>(arena, layers, input_weights);
  } else {
    input_weight_panels = {operand, input_weights.value()};
  }
  if (GateStorage(config, pass).value == Storage::kWorkspace) {
    gate_gradients = TakeParts<T>(arena, pseudo_layers, model.max_rows * model.gate_row_stride);
    if (config.mode == RnnMode::kGru) {
      candidate_gradients = TakeParts<T>(arena, pseudo_layers, model.max_rows * model.units);
    }
  }
  if (config.has_projection()) {
    projection_panels =
        TakeParts<T>(arena, pseudo_layers, model.ProjectionPanelElements(/*for_gradients=*/true));
    projected_gradients = TakeParts<T>(arena, pseudo_layers, model.max_rows * model.output_size);
    rounded_projected_gradients =
        TakeRounded(arena, model, pseudo_layers, batch, model.output_size);
  }
  rounded_gate_gradients = TakeRounded(arena, model, 2 * pseudo_layers, batch, model.gate_width);
  if (config.num_layers == 1) return;
  output_gradients[0] = arena->Take<T>(model.max_rows * model.output_width);
  if (config.num_layers > 2) {
    output_gradients[1] = arena->Take<T>(model.max_rows * model.output_width);
  }
  if (config.dropout > 0) dropped = arena->Take<T>(model.max_rows * model.output_width);
}

template struct ReserveSpace<float>;
template struct ReserveSpace<double>;
template struct ForwardWorkspace<float>;
template struct ForwardWorkspace<double>;
template struct PackedWeights<float>;
template struct PackedWeights<double>;
template struct BackwardWorkspace<float>;
template struct BackwardWorkspace<double>;
template CheckedSize ReserveSpaceBytes(const EngineModel<float>&);
template CheckedSize ReserveSpaceBytes(const EngineModel<double>&);
template ReserveSpace<float> ReserveSpaceOf(const EngineModel<float>&, int64_t, void*);
template ReserveSpace<double> ReserveSpaceOf(const EngineModel<double>&, int64_t, void*);

}  // namespace cudnn_rnn
