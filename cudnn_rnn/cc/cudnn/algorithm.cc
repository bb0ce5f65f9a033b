#include "cudnn_rnn/cc/cudnn/algorithm.h"

#include "cudnn_rnn/cc/cudnn/cudnn_types.h"

namespace cudnn_rnn {
namespace {

struct AlgorithmInfo {
  const char* name;
  int cudnn_algorithm;
};

// In the order of the enumeration.
constexpr AlgorithmInfo kAlgorithms[] = {
    {"auto", kCudnnAlgorithmStandard},
    {"standard", kCudnnAlgorithmStandard},
    {"persist_static", kCudnnAlgorithmPersistStatic},
    {"persist_static_small_h", kCudnnAlgorithmPersistStaticSmallH},
    {"persist_dynamic", kCudnnAlgorithmPersistDynamic},
};

}  // namespace

Status ParseAlgorithm(const std::string& text, Algorithm* algorithm) {
  *algorithm = Algorithm::kStandard;
  if (text.empty()) return Status();
  std::string names;
  int index = 0;
  for (const AlgorithmInfo& known : kAlgorithms) {
    if (text == known.name) {
      *algorithm = static_cast<Algorithm>(index);
      return Status();
    }
    names += Concatenate(names.empty() ? "" : ", ", known.name);
    ++index;
  }
  return InvalidArgument("The algorithm must be one of ", names, ", but is '", text, "'.");
}

const char* Name(Algorithm algorithm) { return kAlgorithms[static_cast<int>(algorithm)].name; }

int CudnnAlgorithmOf(Algorithm algorithm) {
  return kAlgorithms[static_cast<int>(algorithm)].cudnn_algorithm;
}

const char* WhyNotSupported(Algorithm algorithm, const RnnConfig& config, bool is_padded) {
  const int cudnn_algorithm = CudnnAlgorithmOf(algorithm);
  if (cudnn_algorithm == kCudnnAlgorithmStandard) return nullptr;
  if (config.has_projection()) return "does not support projections";
  if (is_padded) return "does not support sequences of different lengths or batch-major data";
  const bool supports_double = cudnn_algorithm == kCudnnAlgorithmPersistDynamic;
  if (config.data_type == DataType::kDouble && !supports_double) return "does not support double";
  return nullptr;
}

}  // namespace cudnn_rnn
