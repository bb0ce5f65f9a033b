#include "cudnn_rnn/cc/engine/precision.h"

#include <atomic>

#include "cudnn_rnn/cc/core/environment.h"

namespace cudnn_rnn {
namespace {

constexpr char kPrecisionVariable[] = "CUDNN_RNN_FLOAT32_MATMUL_PRECISION";
// TensorFlow's switch for the products that oneDNN computes; BF16 is its only value.
constexpr char kTensorFlowVariable[] = "TF_SET_ONEDNN_FPMATH_MODE";

std::atomic<Precision> set_precision{Precision::kDefault};

Status ReadFromEnvironment(PrecisionChoice* choice) {
  const std::string text = ReadEnvironment(kPrecisionVariable);
  if (!text.empty()) {
    const Status status = ParsePrecision(text, &choice->precision);
    choice->reason = Concatenate("the environment variable ", kPrecisionVariable, " says so");
    if (status.ok()) return status;
    return InvalidArgument("The environment variable ", kPrecisionVariable,
                           " is invalid: ", status.message());
  }
  const std::string mode = ReadEnvironment(kTensorFlowVariable);
  if (mode == "BF16" || mode == "bf16") {
    *choice = {Precision::kMedium,
               Concatenate("the environment variable ", kTensorFlowVariable, " is ", mode)};
  } else {
    *choice = {Precision::kDefault, "the default"};
  }
  return Status();
}

}  // namespace

Status ChoosePrecision(PrecisionChoice* choice) {
  const Precision precision = set_precision.load(std::memory_order_relaxed);
  if (precision != Precision::kDefault) {
    *choice = {precision, "cudnn_rnn.set_float32_matmul_precision set it"};
    return Status();
  }
  static PrecisionChoice from_environment;
  static const Status status = ReadFromEnvironment(&from_environment);
  if (status.ok()) *choice = from_environment;
  return status;
}

void SetPrecision(Precision precision) {
  set_precision.store(precision, std::memory_order_relaxed);
}

}  // namespace cudnn_rnn
