// The CPU kernels that stand in for cuDNN's arithmetic, and that its results are compared with.
#ifndef CUDNN_RNN_TESTS_CUDNN_STAND_IN_CPU_ARITHMETIC_H_
#define CUDNN_RNN_TESTS_CUDNN_STAND_IN_CPU_ARITHMETIC_H_

#include "cudnn_rnn/cc/core/rnn_config.h"

namespace cudnn_rnn {

// For bfloat16 those that do not round the factors of products, whatever the processor has: where a
// plan computes bfloat16 models in float, they are not rounded either, and of ReLU that may change
// gradients by more than any rounding.
inline const char* StandInInstructionSet(DataType data_type) {
  return data_type == DataType::kBfloat16 ? "portable" : "";
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_STAND_IN_CPU_ARITHMETIC_H_
