#include "cudnn_rnn/cc/engine/precision.h"

#include <atomic>
#include <string>

#include "cudnn_rnn/cc/core/environment.h"

namespace cudnn_rnn {
namespace {

constexpr char kPrecisionVariable[] = "CUDNN_RNN_FLOAT32_MATMUL_PRECISION";
// TensorFlow's switch for the products that oneDNN computes; BF16 is its only value.
constexpr char kTensorFlowVariable[] = "TF_SET_ONEDNN_FPMATH_MODE";

std::atomic<Precision> set_precision{Precision::kDefault};

// Sets what an environment variable chooses, the reason, and whether it is for a CPU alone.
Status ReadFromEnvironment(Precision* precision, std::string* reason, bool* is_for_cpu) {
  const std::string text = ReadEnvironment(kPrecisionVariable);
  if (!text.empty()) {
    *reason = Concatenate("the environment variable ", kPrecisionVariable, " says so");
    const Status status = ParsePrecision(text, precision);
    if (status.ok()) return status;
    return InvalidArgument("The environment variable ", kPrecisionVariable,
                           " is invalid: ", status.message());
  }
  const std::string mode = ReadEnvironment(kTensorFlowVariable);
  if (mode == "BF16" || mode == "bf16") {
    *precision = Precision::kMedium;
    *is_for_cpu = true;
    *reason = Concatenate("the environment variable ", kTensorFlowVariable, " is ", mode);
  } else {
    *reason = "the default";
  }
  return Status();
}

}  // namespace

Status ChoosePrecision(PrecisionChoice* choice) {
  const Precision precision = set_precision.load(std::memory_order_relaxed);
  if (precision != Precision::kDefault) {
    *choice = {precision, "cudnn_rnn.set_float32_matmul_precision set it", false};
    return Status();
  }
  static Precision from_environment = Precision::kDefault;
  static std::string reason;
  static bool is_for_cpu = false;
  static const Status status = ReadFromEnvironment(&from_environment, &reason, &is_for_cpu);
  if (status.ok()) *choice = {from_environment, reason.c_str(), is_for_cpu};
  return status;
}

void SetPrecision(Precision precision) {
  set_precision.store(precision, std::memory_order_relaxed);
}

}  // namespace cudnn_rnn
