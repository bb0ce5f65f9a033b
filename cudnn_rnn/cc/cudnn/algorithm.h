// Choice of cuDNN's RNN algorithm, and the options for determinism and TF32.
#ifndef CUDNN_RNN_CC_CUDNN_ALGORITHM_H_
#define CUDNN_RNN_CC_CUDNN_ALGORITHM_H_

#include <string>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

enum class Algorithm {
  kAuto,  // no algorithm of cuDNN: the fastest of those that work
  kStandard,
  kPersistStatic,
  kPersistStaticSmallH,
  kPersistDynamic,
};

// Parses "auto", "standard", "persist_static", "persist_static_small_h" or "persist_dynamic"; empty
// text means kStandard.
Status ParseAlgorithm(const std::string& text, Algorithm* algorithm);
const char* Name(Algorithm algorithm);
// Returns cuDNN's number of the algorithm, which must not be kAuto.
int CudnnAlgorithmOf(Algorithm algorithm);
// Returns what of the model and its data cuDNN refuses for the algorithm, in every version ("does
// not support double"), or null. `is_padded`: sequences of different lengths or batch-major data,
// which only cudnnRNNForward refuses. cuDNN may still refuse the call, depending on shape and
// device.
const char* WhyNotSupported(Algorithm algorithm, const RnnConfig& config, bool is_padded);

struct CudnnOptions {
  Algorithm algorithm = Algorithm::kStandard;
  // Makes results repeatable bit for bit: kAuto then means kStandard, and no algorithm is timed.
  bool deterministic = false;
  // Allows TF32, with its 10-bit mantissa, in float computations.
  bool allow_tf32 = false;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_ALGORITHM_H_
