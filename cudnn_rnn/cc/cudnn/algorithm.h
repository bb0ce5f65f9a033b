// Which of cuDNN's algorithms runs a model, and how exact and repeatable it must be.
#ifndef CUDNN_RNN_CC_CUDNN_ALGORITHM_H_
#define CUDNN_RNN_CC_CUDNN_ALGORITHM_H_

#include <string>

#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

enum class Algorithm {
  kAuto,
  kStandard,
  kPersistStatic,
  kPersistStaticSmallH,
  kPersistDynamic,
};

constexpr char kAlgorithmVariable[] = "CUDNN_RNN_ALGO";

// auto, standard, persist_static, persist_static_small_h or persist_dynamic; empty is auto.
Status ParseAlgorithm(const std::string& text, Algorithm* algorithm);
const char* Name(Algorithm algorithm);
// cuDNN's number of it; not of kAuto.
int CudnnNumber(Algorithm algorithm);

struct CudnnOptions {
  Algorithm algorithm = Algorithm::kAuto;
  // Repeats results bit for bit: kAuto is then kStandard, and nothing is chosen by time.
  bool deterministic = false;
  // Lets float be computed with TF32's 10-bit mantissa.
  bool allow_tf32 = false;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_ALGORITHM_H_
