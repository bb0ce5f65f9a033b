// Converts between the C structures of engine.h and the types of core, for both sides of the
// interface.
#ifndef CUDNN_RNN_CC_ENGINE_CONVERSIONS_H_
#define CUDNN_RNN_CC_ENGINE_CONVERSIONS_H_

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/engine/engine.h"

namespace cudnn_rnn {

inline cudnn_rnn_config ToC(const RnnConfig& config) {
  cudnn_rnn_config converted;
  converted.rnn_mode = static_cast<int32_t>(config.mode);
  converted.input_mode = static_cast<int32_t>(config.input_mode);
  converted.direction = static_cast<int32_t>(config.direction);
  converted.data_type = static_cast<int32_t>(config.data_type);
  converted.num_layers = config.num_layers;
  converted.num_units = config.num_units;
  converted.input_size = config.input_size;
  converted.num_proj = config.num_proj;
  converted.seed = config.seed;
  converted.seed2 = config.seed2;
  converted.dropout = config.dropout;
  converted.precision = static_cast<int32_t>(config.precision);
  return converted;
}

// Converts `number` to an enumerator; fails unless 0 <= number <= last.
template <typename Enumeration>
Status FromC(const char* name, int32_t number, Enumeration last, Enumeration* value) {
  if (number < 0 || number > static_cast<int32_t>(last)) {
    return InvalidArgument(name, " must be between 0 and ", static_cast<int32_t>(last), ", but is ",
                           number, ".");
  }
  *value = static_cast<Enumeration>(number);
  return Status();
}

// Fails for numbers that are no enumerators; the config's other fields are not checked.
inline Status FromC(const cudnn_rnn_config& source, RnnConfig* config) {
  CUDNN_RNN_RETURN_IF_ERROR(FromC("rnn_mode", source.rnn_mode, RnnMode::kGru, &config->mode));
  CUDNN_RNN_RETURN_IF_ERROR(
      FromC("input_mode", source.input_mode, InputMode::kAuto, &config->input_mode));
  CUDNN_RNN_RETURN_IF_ERROR(
      FromC("direction", source.direction, Direction::kBidirectional, &config->direction));
  CUDNN_RNN_RETURN_IF_ERROR(
      FromC("data_type", source.data_type, DataType::kDouble, &config->data_type));
  CUDNN_RNN_RETURN_IF_ERROR(
      FromC("precision", source.precision, Precision::kMedium, &config->precision));
  config->num_layers = source.num_layers;
  config->num_units = source.num_units;
  config->input_size = source.input_size;
  config->num_proj = source.num_proj;
  config->seed = source.seed;
  config->seed2 = source.seed2;
  config->dropout = source.dropout;
  return Status();
}

inline cudnn_rnn_forward_choice ToC(const ForwardChoice& choice) {
  return {choice.algorithm, choice.allow_tf32, choice.uses_dropout};
}

inline ForwardChoice FromC(const cudnn_rnn_forward_choice& choice) {
  ForwardChoice converted;
  converted.algorithm = choice.algorithm;
  converted.allow_tf32 = choice.allow_tf32 != 0;
  converted.uses_dropout = choice.uses_dropout != 0;
  return converted;
}

inline ForwardBuffers FromC(const cudnn_rnn_forward_buffers& buffers) {
  ForwardBuffers converted;
  converted.input = buffers.input;
  converted.input_h = buffers.input_h;
  converted.input_c = buffers.input_c;
  converted.params = buffers.params;
  converted.output = buffers.output;
  converted.output_h = buffers.output_h;
  converted.output_c = buffers.output_c;
  converted.reserve_space = buffers.reserve_space;
  converted.packed_weights = buffers.packed_weights;
  converted.packed_weights_are_ready = buffers.packed_weights_are_ready != 0;
  converted.workspace = buffers.workspace;
  return converted;
}

inline BackwardBuffers FromC(const cudnn_rnn_backward_buffers& buffers) {
  BackwardBuffers converted;
  converted.input = buffers.input;
  converted.input_h = buffers.input_h;
  converted.input_c = buffers.input_c;
  converted.params = buffers.params;
  converted.output = buffers.output;
  converted.output_h = buffers.output_h;
  converted.output_backprop = buffers.output_backprop;
  converted.output_h_backprop = buffers.output_h_backprop;
  converted.output_c_backprop = buffers.output_c_backprop;
  converted.reserve_space = buffers.reserve_space;
  converted.reserve_space_bytes = buffers.reserve_space_bytes;
  converted.input_backprop = buffers.input_backprop;
  converted.input_h_backprop = buffers.input_h_backprop;
  converted.input_c_backprop = buffers.input_c_backprop;
  converted.params_backprop = buffers.params_backprop;
  converted.workspace = buffers.workspace;
  return converted;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_ENGINE_CONVERSIONS_H_
