// The choice of CPU kernels for the mock's arithmetic, and for the results it is compared with.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_CPU_ARITHMETIC_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_CPU_ARITHMETIC_H_

#include "cudnn_rnn/cc/core/rnn_config.h"

namespace cudnn_rnn {

// Returns the instruction set of the CPU plan. For bfloat16, "portable" does not round the factors
// of products to bfloat16, on any processor. A cuDNN plan that computes bfloat16 models in float
// does not round them either. With ReLU, rounding the factors may change gradients by more than any
// rounding error.
inline const char* MockInstructionSet(DataType data_type) {
  return data_type == DataType::kBfloat16 ? "portable" : "";
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_CPU_ARITHMETIC_H_
