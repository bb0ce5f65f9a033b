// The result of an operation that can fail: a code and a text for the user.
#ifndef CUDNN_RNN_CC_CORE_STATUS_H_
#define CUDNN_RNN_CC_CORE_STATUS_H_

#include <sstream>
#include <string>
#include <utility>

namespace cudnn_rnn {

// The numbers are those of TensorFlow's and gRPC's codes.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument = 3,
  kResourceExhausted = 8,   // out of memory
  kFailedPrecondition = 9,  // the installation, or the state of the stream, does not permit it
  kUnimplemented = 12,      // the loaded cuDNN, or this device, cannot do it
  kInternal = 13,           // a library or the device failed
  kUnavailable = 14,        // a library is missing
};

class Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline void AppendTo(std::ostringstream&) {}

template <typename First, typename... Rest>
void AppendTo(std::ostringstream& stream, const First& first, const Rest&... rest) {
  stream << first;
  AppendTo(stream, rest...);
}

// Returns the arguments, streamed into one string.
template <typename... Parts>
std::string Concatenate(const Parts&... parts) {
  std::ostringstream stream;
  stream.exceptions(std::ios::badbit);  // otherwise a failing allocation cuts the text short
  AppendTo(stream, parts...);
  return stream.str();
}

// The message must name the argument, its value, the expected value and what to do.
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return Status(StatusCode::kInvalidArgument, Concatenate(parts...));
}

inline Status FailedPrecondition(const std::string& message) {
  return Status(StatusCode::kFailedPrecondition, message);
}

inline Status Unimplemented(const std::string& message) {
  return Status(StatusCode::kUnimplemented, message);
}

}  // namespace cudnn_rnn

#define CUDNN_RNN_RETURN_IF_ERROR(expression)  \
  do {                                         \
    ::cudnn_rnn::Status status = (expression); \
    if (!status.ok()) return status;           \
  } while (false)

#endif  // CUDNN_RNN_CC_CORE_STATUS_H_
