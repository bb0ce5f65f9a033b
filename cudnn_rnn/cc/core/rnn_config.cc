#include "cudnn_rnn/cc/core/rnn_config.h"

#include "cudnn_rnn/cc/core/param_layout.h"

namespace cudnn_rnn {
namespace {

Status CheckPositive(const char* name, int64_t value) {
  if (value >= 1) return Status();
  return InvalidArgument(name, " must be at least 1, but is ", value, ".");
}

}  // namespace

int64_t RnnConfig::num_gates() const {
  switch (mode) {
    case RnnMode::kLstm:
      return kNumLstmGates;
    case RnnMode::kGru:
      return kNumGruGates;
    case RnnMode::kRelu:
    case RnnMode::kTanh:
      break;
  }
  return 1;
}

bool RnnConfig::skips_input_projection() const {
  return input_mode == InputMode::kSkip ||
         (input_mode == InputMode::kAuto && input_size == num_units);
}

Status ParseRnnMode(const std::string& text, RnnMode* mode) {
  if (text == "lstm") {
    *mode = RnnMode::kLstm;
  } else if (text == "gru") {
    *mode = RnnMode::kGru;
  } else if (text == "rnn_relu") {
    *mode = RnnMode::kRelu;
  } else if (text == "rnn_tanh") {
    *mode = RnnMode::kTanh;
  } else {
    return InvalidArgument("rnn_mode must be one of lstm, gru, rnn_relu, rnn_tanh, but is '", text,
                           "'.");
  }
  return Status();
}

Status ParseInputMode(const std::string& text, InputMode* input_mode) {
  if (text == "linear_input") {
    *input_mode = InputMode::kLinear;
  } else if (text == "skip_input") {
    *input_mode = InputMode::kSkip;
  } else if (text == "auto_select") {
    *input_mode = InputMode::kAuto;
  } else {
    return InvalidArgument(
        "input_mode must be one of linear_input, skip_input, auto_select, but is '", text, "'.");
  }
  return Status();
}

Status ParseDirection(const std::string& text, Direction* direction) {
  if (text == "unidirectional") {
    *direction = Direction::kUnidirectional;
  } else if (text == "bidirectional") {
    *direction = Direction::kBidirectional;
  } else {
    return InvalidArgument("direction must be unidirectional or bidirectional, but is '", text,
                           "'.");
  }
  return Status();
}

const char* Name(RnnMode mode) {
  switch (mode) {
    case RnnMode::kLstm:
      return "lstm";
    case RnnMode::kGru:
      return "gru";
    case RnnMode::kRelu:
      return "rnn_relu";
    case RnnMode::kTanh:
      return "rnn_tanh";
  }
  return "unknown";
}

const char* Name(Direction direction) {
  return direction == Direction::kBidirectional ? "bidirectional" : "unidirectional";
}

const char* Name(DataType data_type) {
  switch (data_type) {
    case DataType::kHalf:
      return "half";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kFloat:
      return "float";
    case DataType::kDouble:
      return "double";
  }
  return "unknown";
}

std::string Describe(const RnnConfig& config) {
  std::string text = Concatenate(Name(config.mode), ", ", Name(config.direction), ", ",
                                 config.num_layers, " layers, ", config.num_units, " units, input ",
                                 config.input_size, ", ", Name(config.data_type));
  if (config.skips_input_projection()) text += ", skip_input";
  if (config.has_projection()) text += Concatenate(", projection ", config.num_proj);
  if (config.dropout > 0) text += Concatenate(", dropout ", config.dropout);
  return text;
}

int64_t SizeOf(DataType data_type) {
  switch (data_type) {
    case DataType::kHalf:
    case DataType::kBfloat16:
      return 2;
    case DataType::kFloat:
      return 4;
    case DataType::kDouble:
      return 8;
  }
  return 0;
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
  if (config.num_proj < 0 || config.num_proj >= config.num_units) {
    if (config.num_proj != 0) {
      return InvalidArgument("num_proj must be 0 (no projection) or below num_units, but is ",
                             config.num_proj, " with num_units ", config.num_units, ".");
    }
  }
  if (config.has_projection() && config.mode != RnnMode::kLstm) {
    return InvalidArgument("num_proj must be 0 for rnn_mode ", Name(config.mode), ", but is ",
                           config.num_proj, "; only lstm has a projection.");
  }
  return Status();
}

}  // namespace cudnn_rnn
