// The description of a model, from which everything else derives.
#ifndef CUDNN_RNN_CC_CORE_RNN_CONFIG_H_
#define CUDNN_RNN_CC_CORE_RNN_CONFIG_H_

#include <array>
#include <cstdint>
#include <string>

#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

enum class RnnMode { kRelu, kTanh, kLstm, kGru };
enum class InputMode { kLinear, kSkip, kAuto };
enum class Direction { kUnidirectional, kBidirectional };
// The type of inputs, states, parameters and outputs. The 16-bit types are computed in float.
enum class DataType { kHalf, kBfloat16, kFloat, kDouble };
// The number of significant bits that a float model's matrix products keep of their factors: 24, 16
// (the sum of two bfloat16 numbers) or 8 (bfloat16). A plan may keep more if fewer are not faster.
// Sums, cells, states and all tensors are float in each precision.
enum class Precision { kDefault, kHighest, kHigh, kMedium };  // kDefault: kHighest on a CPU

struct RnnConfig {
  RnnMode mode = RnnMode::kLstm;
  InputMode input_mode = InputMode::kLinear;
  Direction direction = Direction::kUnidirectional;
  DataType data_type = DataType::kFloat;
  int64_t num_layers = 1;
  int64_t num_units = 1;
  int64_t input_size = 1;
  // LSTM only: the width to which h is projected, below num_units. 0 means no projection.
  int64_t num_proj = 0;
  // The fraction of a layer's inputs that training sets to zero, for every layer but the first.
  float dropout = 0.0f;
  int64_t seed = 0;
  int64_t seed2 = 0;
  Precision precision = Precision::kDefault;

  int64_t num_directions() const { return direction == Direction::kBidirectional ? 2 : 1; }
  // LstmGate and GruGate (param_layout.h) list the gates; a simple RNN has one.
  int64_t num_gates() const;
  bool has_cell_state() const { return mode == RnnMode::kLstm; }
  // Returns whether the first layer adds its input to every gate directly, without input weights.
  bool skips_input_projection() const;
  bool has_projection() const { return num_proj > 0; }
  // Width of h and of one direction's output.
  int64_t output_size() const { return has_projection() ? num_proj : num_units; }
  // Width of a layer's input: input_size for layer 0, all directions' outputs for later layers.
  int64_t LayerInputSize(int64_t layer) const {
    return layer == 0 ? input_size : num_directions() * output_size();
  }
};

// All that a model depends on: caches have it in their keys.
using ConfigKey = std::array<int64_t, 12>;

// Returns equal keys for configs of equal models. `skip_input` and what `auto_select` chooses are
// equal, as are precisions of models that are not float.
ConfigKey KeyOf(const RnnConfig& config);
// Returns the config without what only dropout patterns depend on.
RnnConfig WithoutDropout(RnnConfig config);

Status ParseRnnMode(const std::string& text, RnnMode* mode);
Status ParseInputMode(const std::string& text, InputMode* input_mode);
Status ParseDirection(const std::string& text, Direction* direction);
Status ParsePrecision(const std::string& text, Precision* precision);

const char* Name(RnnMode mode);
const char* Name(Direction direction);
const char* Name(DataType data_type);
const char* Name(Precision precision);
// Returns "lstm, bidirectional, 2 layers, 650 units, input 650, float" and any non-default options.
std::string Describe(const RnnConfig& config);

int64_t SizeOf(DataType data_type);

// Fails unless every field is valid and the fields are consistent.
Status Validate(const RnnConfig& config);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_RNN_CONFIG_H_
