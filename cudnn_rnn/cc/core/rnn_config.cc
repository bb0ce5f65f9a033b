#include "cudnn_rnn/cc/core/rnn_config.h"

#include <cstring>

#include "cudnn_rnn/cc/core/param_layout.h"

namespace cudnn_rnn {
namespace {

template <typename Value>
struct Named {
  const char* name;
  Value value;
};
constexpr Named<RnnMode> kRnnModes[] = {{"lstm", RnnMode::kLstm},
                                        {"gru", RnnMode::kGru},
                                        {"rnn_relu", RnnMode::kRelu},
                                        {"rnn_tanh", RnnMode::kTanh}};
constexpr Named<InputMode> kInputModes[] = {{"linear_input", InputMode::kLinear},
                                            {"skip_input", InputMode::kSkip},
                                            {"auto_select", InputMode::kAuto}};
constexpr Named<Direction> kDirections[] = {{"unidirectional", Direction::kUnidirectional},
                                            {"bidirectional", Direction::kBidirectional}};
constexpr Named<DataType> kDataTypes[] = {{"half", DataType::kHalf},
                                          {"bfloat16", DataType::kBfloat16},
                                          {"float", DataType::kFloat},
                                          {"double", DataType::kDouble}};
constexpr Named<Precision> kPrecisions[] = {
    {"highest", Precision::kHighest}, {"high", Precision::kHigh}, {"medium", Precision::kMedium}};

template <typename Value, size_t size>
Status Parse(const char* attribute, const std::string& text, const Named<Value> (&choices)[size],
             Value* value) {
  std::string names;
  for (const Named<Value>& choice : choices) {
    if (text == choice.name) {
      *value = choice.value;
      return Status();
    }
    names += Concatenate(names.empty() ? "" : ", ", choice.name);
  }
  return InvalidArgument(attribute, " must be one of ", names, ", but is '", text, "'.");
}

template <typename Value, size_t size>
const char* NameOf(const Named<Value> (&choices)[size], Value value) {
  for (const Named<Value>& choice : choices) {
    if (choice.value == value) return choice.name;
  }
  return "unknown";
}

Status CheckPositive(const char* name, int64_t value) {
  if (value >= 1) return Status();
  return InvalidArgument(name, " must be at least 1, but is ", value, ".");
}

}  // namespace

ConfigKey KeyOf(const RnnConfig& config) {
  static_assert(sizeof(RnnConfig) == 4 * sizeof(int32_t) + 4 * sizeof(int64_t) + sizeof(int64_t) +
                                         3 * sizeof(int64_t),
                "a new field belongs into the key");
  uint32_t dropout_bits;
  std::memcpy(&dropout_bits, &config.dropout, sizeof(dropout_bits));
  const bool has_precision =
      config.data_type == DataType::kFloat && config.precision != Precision::kDefault;
  return {{static_cast<int64_t>(config.mode), config.skips_input_projection() ? 1 : 0,
           static_cast<int64_t>(config.direction), static_cast<int64_t>(config.data_type),
           config.num_layers, config.num_units, config.input_size, config.num_proj,
           static_cast<int64_t>(dropout_bits), config.seed, config.seed2,
           has_precision ? static_cast<int64_t>(config.precision) : 0}};
}

RnnConfig WithoutDropout(RnnConfig config) {
  config.dropout = 0;
  config.seed = config.seed2 = 0;
  return config;
}

int64_t RnnConfig::num_gates() const {
  if (mode == RnnMode::kLstm) return kNumLstmGates;
  return mode == RnnMode::kGru ? kNumGruGates : 1;
}

bool RnnConfig::skips_input_projection() const {
  return input_mode == InputMode::kSkip ||
         (input_mode == InputMode::kAuto && input_size == num_units);
}

Status ParseRnnMode(const std::string& text, RnnMode* mode) {
  return Parse("rnn_mode", text, kRnnModes, mode);
}
Status ParseInputMode(const std::string& text, InputMode* input_mode) {
  return Parse("input_mode", text, kInputModes, input_mode);
}
Status ParseDirection(const std::string& text, Direction* direction) {
  return Parse("direction", text, kDirections, direction);
}
Status ParsePrecision(const std::string& text, Precision* precision) {
  return Parse("float32_matmul_precision", text, kPrecisions, precision);
}

const char* Name(RnnMode mode) { return NameOf(kRnnModes, mode); }
const char* Name(Direction direction) { return NameOf(kDirections, direction); }
const char* Name(DataType data_type) { return NameOf(kDataTypes, data_type); }
const char* Name(Precision precision) {
  return precision == Precision::kDefault ? "default" : NameOf(kPrecisions, precision);
}

std::string Describe(const RnnConfig& config) {
  std::string text = Concatenate(Name(config.mode), ", ", Name(config.direction), ", ",
                                 config.num_layers, " layers, ", config.num_units, " units, input ",
                                 config.input_size, ", ", Name(config.data_type));
  if (config.skips_input_projection()) text += ", skip_input";
  if (config.has_projection()) text += Concatenate(", projection ", config.num_proj);
  if (config.dropout > 0) text += Concatenate(", dropout ", config.dropout);
  if (config.precision != Precision::kDefault) {
    text += Concatenate(", precision ", Name(config.precision));
  }
  return text;
}

int64_t SizeOf(DataType data_type) {
  if (data_type == DataType::kDouble) return 8;
  return data_type == DataType::kFloat ? 4 : 2;
}

Status Validate(const RnnConfig& config) {
  CUDNN_RNN_RETURN_IF_ERROR(CheckPositive("num_layers", config.num_layers));
  CUDNN_RNN_RETURN_IF_ERROR(CheckPositive("num_units", config.num_units));
  CUDNN_RNN_RETURN_IF_ERROR(CheckPositive("input_size", config.input_size));
  // Written so that NaN fails too.
  if (!(config.dropout >= 0.0f && config.dropout <= 1.0f)) {
    return InvalidArgument("dropout must be between 0 and 1, but is ", config.dropout,
                           "; it is the share of a layer's inputs that training sets to zero.");
  }
  if (config.input_mode == InputMode::kSkip && config.input_size != config.num_units) {
    return InvalidArgument(
        "input_mode skip_input needs input_size == num_units, but input_size is ",
        config.input_size, " and num_units is ", config.num_units,
        "; use linear_input, or auto_select, which chooses by the sizes.");
  }
  if (config.num_proj < 0 || (config.num_proj > 0 && config.num_proj >= config.num_units)) {
    return InvalidArgument("num_proj must be 0 (no projection) or below num_units, but is ",
                           config.num_proj, " with num_units ", config.num_units, ".");
  }
  if (config.has_projection() && config.mode != RnnMode::kLstm) {
    return InvalidArgument("num_proj must be 0 for rnn_mode ", Name(config.mode), ", but is ",
                           config.num_proj, "; only lstm has a projection.");
  }
  return Status();
}

}  // namespace cudnn_rnn
