#include "cudnn_rnn/cc/core/param_layout.h"

#include "cudnn_rnn/cc/core/checked_math.h"

namespace cudnn_rnn {

Status ParamLayout::Create(const RnnConfig& config, ParamLayout* layout) {
  CUDNN_RNN_RETURN_IF_ERROR(Validate(config));
  const CheckedSize units(config.num_units);
  const CheckedSize directions(config.num_directions());
  const CheckedSize gate_rows = units * config.num_gates();
  const CheckedSize first_columns = config.skips_input_projection() ? 0 : config.input_size;
  const CheckedSize recurrent_columns(config.output_size());
  const CheckedSize upper_columns = recurrent_columns * directions;
  const CheckedSize upper_layers(config.num_layers - 1);
  const CheckedSize matrices = gate_rows * (first_columns + recurrent_columns +
                                            upper_layers * (upper_columns + recurrent_columns)) +
                               units * config.num_proj * config.num_layers;
  const CheckedSize weights = directions * matrices;
  const CheckedSize biases = directions * config.num_layers * gate_rows * 2;
  // Checks the size in bytes for 8-byte elements, the largest type.
  const CheckedSize bytes = (weights + biases) * 8;
  if (bytes.overflowed()) {
    return InvalidArgument("The parameter buffer is too large: num_layers ", config.num_layers,
                           ", num_units ", config.num_units, ", input_size ", config.input_size,
                           ", rnn_mode ", Name(config.mode), ", direction ", Name(config.direction),
                           " need more bytes than 64 bits can count.");
  }
  layout->gate_rows_ = gate_rows.value();
  layout->num_units_ = config.num_units;
  layout->recurrent_columns_ = config.output_size();
  layout->projection_rows_ = config.num_proj;
  layout->num_gates_ = config.num_gates();
  layout->num_layers_ = config.num_layers;
  layout->num_directions_ = config.num_directions();
  layout->first_input_columns_ = first_columns.value();
  layout->upper_input_columns_ = upper_columns.value();
  layout->biases_offset_ = weights.value();
  layout->size_ = (weights + biases).value();
  return Status();
}

int64_t ParamLayout::InputWeights(int64_t layer, int64_t direction) const {
  int64_t offset = direction * NumMatrixElements(layer);
  if (layer > 0)
    offset += num_directions_ * (NumMatrixElements(0) + (layer - 1) * NumMatrixElements(layer));
  return offset;
}

int64_t ParamLayout::RecurrentWeights(int64_t layer, int64_t direction) const {
  return InputWeights(layer, direction) + gate_rows_ * InputWeightColumns(layer);
}

int64_t ParamLayout::ProjectionWeights(int64_t layer, int64_t direction) const {
  return RecurrentWeights(layer, direction) + gate_rows_ * recurrent_columns_;
}

int64_t ParamLayout::InputBiases(int64_t layer, int64_t direction) const {
  return biases_offset_ + (layer * num_directions_ + direction) * 2 * gate_rows_;
}

int64_t ParamLayout::RecurrentBiases(int64_t layer, int64_t direction) const {
  return InputBiases(layer, direction) + gate_rows_;
}

ParamRegion ParamLayout::CanonicalWeight(int64_t index) const {
  const int64_t pseudo_layer = index / weights_per_direction();
  const int64_t within = index % weights_per_direction();
  const int64_t layer = pseudo_layer / num_directions_;
  const int64_t direction = pseudo_layer % num_directions_;
  if (within < num_gates_) {
    const int64_t columns = InputWeightColumns(layer);
    return {InputWeights(layer, direction) + within * num_units_ * columns, num_units_, columns};
  }
  if (within < 2 * num_gates_) {
    const int64_t gate = within - num_gates_;
    return {RecurrentWeights(layer, direction) + gate * num_units_ * recurrent_columns_, num_units_,
            recurrent_columns_};
  }
  return {ProjectionWeights(layer, direction), projection_rows_, num_units_};
}

ParamRegion ParamLayout::CanonicalBias(int64_t index) const {
  // The biases of W, then those of R, gate by gate, are contiguous.
  return {biases_offset_ + index * num_units_, num_units_, 1};
}

}  // namespace cudnn_rnn
