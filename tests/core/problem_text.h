// The text form of a problem: a model and the shape of its data in one word, which failures print
// and which programs take on the command line.
//
//   MODE-LAYERSxUNITS[-iINPUT][-pPROJECTION][-skip|-auto][-bi]-bBATCH-tSTEPS
//       [-half|-lengths:N,N,...][-batch_major][-dropout:RATE][-seed:N][-seed2:N]
//       [-float16|-bfloat16|-double] [-highest|-high|-medium]
//
//   lstm-2x650-b20-t35                 2 layers, 650 units, 20 sequences of 35 steps
//   lstm-2x24-i10-bi-b4-t8-half        input_size 10, bidirectional, half the steps on average
//   gru-1x21-skip-b3-t4-lengths:4,0,2-float16
//
// Without -i the input is as wide as the units. `Configuration.name` in
// benchmarks/configurations.py has the same form, and -half the same lengths. The type half is
// therefore -float16 here.
#ifndef CUDNN_RNN_TESTS_CORE_PROBLEM_TEXT_H_
#define CUDNN_RNN_TESTS_CORE_PROBLEM_TEXT_H_

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

namespace problem_text {

// The parts of what is not the default.
struct InputModePart {
  const char* name;
  InputMode input_mode;
};
constexpr InputModePart kInputModeParts[] = {{"skip", InputMode::kSkip},
                                             {"auto", InputMode::kAuto}};
struct DataTypePart {
  const char* name;
  DataType data_type;
};
constexpr DataTypePart kDataTypeParts[] = {
    {"float16", DataType::kHalf}, {"bfloat16", DataType::kBfloat16}, {"double", DataType::kDouble}};
constexpr Precision kPrecisions[] = {Precision::kHighest, Precision::kHigh, Precision::kMedium};

}  // namespace problem_text

// Returns unsorted lengths from 1 to the number of steps, on average half of that.
inline std::vector<int32_t> HalfLengths(const SequenceShape& shape) {
  std::vector<int64_t> order(static_cast<size_t>(shape.batch_size));
  std::iota(order.begin(), order.end(), 0);
  // Ties keep their order. (std::stable_sort allocates its buffer with another operator new.)
  const auto key = [](int64_t b) { return std::make_pair((b * 7919 + 31) % 101, b); };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  std::vector<int32_t> lengths;
  for (int64_t b : order) {
    const double share = (static_cast<double>(b) + 0.5) / static_cast<double>(shape.batch_size);
    const double length = share * static_cast<double>(shape.num_steps) + 0.5;
    lengths.push_back(std::max(1, static_cast<int32_t>(length)));
  }
  return lengths;
}

// Returns the text of a problem. Empty `lengths` are all full.
inline std::string ProblemText(const RnnConfig& config, const SequenceShape& shape,
                               const std::vector<int32_t>& lengths) {
  std::string text = Concatenate(Name(config.mode), "-", config.num_layers, "x", config.num_units);
  if (config.input_size != config.num_units) text += Concatenate("-i", config.input_size);
  if (config.has_projection()) text += Concatenate("-p", config.num_proj);
  for (const problem_text::InputModePart& part : problem_text::kInputModeParts) {
    if (config.input_mode == part.input_mode) text += Concatenate("-", part.name);
  }
  if (config.num_directions() == 2) text += "-bi";
  text += Concatenate("-b", shape.batch_size, "-t", shape.num_steps);
  const bool has_all_lengths = static_cast<int64_t>(lengths.size()) == shape.batch_size;
  if (has_all_lengths && !lengths.empty() && lengths == HalfLengths(shape)) {
    text += "-half";
  } else {
    for (size_t b = 0; b < lengths.size(); ++b) {
      text += Concatenate(b == 0 ? "-lengths:" : ",", lengths[b]);
    }
  }
  if (!shape.time_major) text += "-batch_major";
  if (config.dropout != 0) text += Concatenate("-dropout:", config.dropout);
  if (config.seed != 0) text += Concatenate("-seed:", config.seed);
  if (config.seed2 != 0) text += Concatenate("-seed2:", config.seed2);
  for (const problem_text::DataTypePart& part : problem_text::kDataTypeParts) {
    if (config.data_type == part.data_type) text += Concatenate("-", part.name);
  }
  if (config.precision != Precision::kDefault) text += Concatenate("-", Name(config.precision));
  return text;
}

namespace problem_text {

// Read the whole of `text`. Return whether it is a number.
inline bool ReadNumber(const std::string& text, int64_t* value) {
  if (text.empty() || text.find_first_not_of("-0123456789") != std::string::npos) return false;
  char* end;
  errno = 0;
  *value = std::strtoll(text.c_str(), &end, 10);
  return *end == '\0' && errno == 0;
}
inline bool ReadSize(const std::string& text, int64_t* value) {
  constexpr int64_t kMost = 1000000000;
  return ReadNumber(text, value) && 0 <= *value && *value <= kMost;
}
inline bool ReadRate(const std::string& text, float* value) {
  char* end;
  *value = std::strtof(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

// Splits at each separator, unless it follows a colon: it is then the sign of a number.
inline std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == separator && (i == 0 || text[i - 1] != ':')) {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  return parts;
}

inline bool ReadLengths(const std::string& text, std::vector<int32_t>* lengths) {
  for (const std::string& part : Split(text, ',')) {
    int64_t length;
    if (!ReadSize(part, &length)) return false;
    lengths->push_back(static_cast<int32_t>(length));
  }
  return true;
}

struct Parsed {
  RnnConfig config;
  SequenceShape shape = {-1, -1, true};  // unknown
  std::vector<int32_t> lengths;
  bool has_half_lengths = false;
};

// Reads a part without a value. Returns whether there is such a part.
inline bool ReadWord(const std::string& part, Parsed* parsed) {
  for (const InputModePart& known : kInputModeParts) {
    if (part != known.name) continue;
    parsed->config.input_mode = known.input_mode;
    return true;
  }
  for (const DataTypePart& known : kDataTypeParts) {
    if (part != known.name) continue;
    parsed->config.data_type = known.data_type;
    return true;
  }
  for (Precision known : kPrecisions) {
    if (part != Name(known)) continue;
    parsed->config.precision = known;
    return true;
  }
  if (part == "bi") parsed->config.direction = Direction::kBidirectional;
  if (part == "half") parsed->has_half_lengths = true;
  if (part == "batch_major") parsed->shape.time_major = false;
  return part == "bi" || part == "half" || part == "batch_major";
}

// Reads a part with a value. Returns whether there is such a part and its value is valid.
inline bool ReadValue(const std::string& part, Parsed* parsed) {
  RnnConfig& config = parsed->config;
  const size_t colon = part.find(':');
  if (colon != std::string::npos) {
    const std::string name = part.substr(0, colon), value = part.substr(colon + 1);
    if (name == "lengths") return ReadLengths(value, &parsed->lengths);
    if (name == "dropout") return ReadRate(value, &config.dropout);
    if (name == "seed") return ReadNumber(value, &config.seed);
    return name == "seed2" && ReadNumber(value, &config.seed2);
  }
  if (part.empty()) return false;
  const std::string value = part.substr(1);
  switch (part[0]) {
    case 'i':
      return ReadSize(value, &config.input_size);
    case 'p':
      return ReadSize(value, &config.num_proj);
    case 'b':
      return ReadSize(value, &parsed->shape.batch_size);
    case 't':
      return ReadSize(value, &parsed->shape.num_steps);
    default:
      return false;
  }
}

// Reads LAYERSxUNITS. Returns whether `part` is that.
inline bool ReadModelSize(const std::string& part, RnnConfig* config) {
  const std::vector<std::string> sizes = Split(part, 'x');
  if (sizes.size() != 2 || !ReadSize(sizes[0], &config->num_layers)) return false;
  if (!ReadSize(sizes[1], &config->num_units)) return false;
  config->input_size = config->num_units;
  return true;
}

// Returns an error whose message continues "The model is '...'", or none.
inline Status Parse(const std::string& text, Parsed* parsed) {
  const std::vector<std::string> parts = Split(text, '-');
  CUDNN_RNN_RETURN_IF_ERROR(ParseRnnMode(parts[0], &parsed->config.mode));
  if (parts.size() < 2 || !ReadModelSize(parts[1], &parsed->config)) {
    return InvalidArgument("LAYERSxUNITS must follow the mode.");
  }
  for (size_t i = 2; i < parts.size(); ++i) {
    if (parts[i] == "decode") {
      return InvalidArgument("only the Python benchmark knows -decode; a single step is -t1.");
    }
    if (!ReadWord(parts[i], parsed) && !ReadValue(parts[i], parsed)) {
      return InvalidArgument("the part '", parts[i], "' is unknown or has a wrong value.");
    }
  }
  if (parsed->shape.batch_size < 0) return InvalidArgument("-bBATCH is missing.");
  if (parsed->shape.num_steps < 0) return InvalidArgument("-tSTEPS is missing.");
  if (parsed->has_half_lengths) parsed->lengths = HalfLengths(parsed->shape);
  CUDNN_RNN_RETURN_IF_ERROR(Validate(parsed->config));
  return CheckSequenceLengths(parsed->lengths, parsed->shape);
}

}  // namespace problem_text

// Parses the text of a problem. The parts after LAYERSxUNITS may have any order.
inline Status ParseProblemText(const std::string& text, RnnConfig* config, SequenceShape* shape,
                               std::vector<int32_t>* lengths) {
  problem_text::Parsed parsed;
  const Status status = problem_text::Parse(text, &parsed);
  if (!status.ok()) {
    return InvalidArgument("The model '", text, "' cannot be read: ", status.message(),
                           " Expected MODE-LAYERSxUNITS-bBATCH-tSTEPS, such as lstm-2x650-b20-t35;"
                           " tests/core/problem_text.h lists the other parts.");
  }
  *config = parsed.config;
  *shape = parsed.shape;
  *lengths = parsed.lengths;
  return Status();
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_PROBLEM_TEXT_H_
