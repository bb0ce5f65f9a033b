#include "cudnn_rnn/cc/core/param_layout.h"

#include "cudnn_rnn/cc/core/checked_math.h"

namespace cudnn_rnn {

struct ParamLayout::CanonicalIndex {
  int64_t layer;
  int64_t direction;
  int64_t gate;
  bool recurrent;
};

Status ParamLayout::Create(const RnnConfig& config, ParamLayout* layout) {
  CUDNN_RNN_RETURN_IF_ERROR(Validate(config));
  const CheckedSize units(config.num_units);
  const CheckedSize directions(config.num_directions());
  const CheckedSize gate_rows = units * config.num_gates();
  const CheckedSize first_columns = config.skips_input_projection() ? 0 : config.input_size;
  const CheckedSize upper_columns = units * directions;
  const CheckedSize upper_layers(config.num_layers - 1);
  const CheckedSize weights =
      directions * gate_rows * (first_columns + units + upper_layers * (upper_columns + units));
  const CheckedSize biases = directions * config.num_layers * gate_rows * 2;
  // The largest use of the size is in bytes of 8-byte elements.
  const CheckedSize bytes = (weights + biases) * 8;
  if (bytes.overflowed()) {
    return InvalidArgument("The parameter buffer is too large: num_layers ", config.num_layers,
                           ", num_units ", config.num_units, ", input_size ", config.input_size,
                           ", rnn_mode ", Name(config.mode), ", direction ", Name(config.direction),
                           " need more bytes than 64 bits can count.");
  }
  layout->gate_rows_ = gate_rows.value();
  layout->num_units_ = config.num_units;
  layout->num_gates_ = config.num_gates();
  layout->num_layers_ = config.num_layers;
  layout->num_directions_ = config.num_directions();
  layout->first_input_columns_ = first_columns.value();
  layout->upper_input_columns_ = upper_columns.value();
  layout->biases_ = weights.value();
  layout->size_ = (weights + biases).value();
  return Status();
}

int64_t ParamLayout::InputWeightColumns(int64_t layer) const {
  return layer == 0 ? first_input_columns_ : upper_input_columns_;
}

int64_t ParamLayout::InputWeights(int64_t layer, int64_t direction) const {
  const int64_t columns = InputWeightColumns(layer) + num_units_;
  int64_t offset = direction * gate_rows_ * columns;
  if (layer > 0) {
    const int64_t first = num_directions_ * gate_rows_ * (first_input_columns_ + num_units_);
    offset += first + (layer - 1) * num_directions_ * gate_rows_ * columns;
  }
  return offset;
}

int64_t ParamLayout::RecurrentWeights(int64_t layer, int64_t direction) const {
  return InputWeights(layer, direction) + gate_rows_ * InputWeightColumns(layer);
}

int64_t ParamLayout::InputBiases(int64_t layer, int64_t direction) const {
  return biases_ + (layer * num_directions_ + direction) * 2 * gate_rows_;
}

int64_t ParamLayout::RecurrentBiases(int64_t layer, int64_t direction) const {
  return InputBiases(layer, direction) + gate_rows_;
}

int64_t ParamLayout::num_canonical() const {
  return num_layers_ * num_directions_ * 2 * num_gates_;
}

ParamLayout::CanonicalIndex ParamLayout::Locate(int64_t index) const {
  const int64_t per_direction = 2 * num_gates_;
  const int64_t within = index % per_direction;
  const int64_t stack = index / per_direction;
  return {stack / num_directions_, stack % num_directions_, within % num_gates_,
          within >= num_gates_};
}

ParamRegion ParamLayout::CanonicalWeight(int64_t index) const {
  const CanonicalIndex at = Locate(index);
  const int64_t columns = at.recurrent ? num_units_ : InputWeightColumns(at.layer);
  const int64_t first = at.recurrent ? RecurrentWeights(at.layer, at.direction)
                                     : InputWeights(at.layer, at.direction);
  return {first + at.gate * num_units_ * columns, num_units_, columns};
}

ParamRegion ParamLayout::CanonicalBias(int64_t index) const {
  const CanonicalIndex at = Locate(index);
  const int64_t first =
      at.recurrent ? RecurrentBiases(at.layer, at.direction) : InputBiases(at.layer, at.direction);
  return {first + at.gate * num_units_, num_units_, 1};
}

}  // namespace cudnn_rnn
