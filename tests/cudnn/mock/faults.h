// Faults of a cuDNN that reports success.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_FAULTS_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_FAULTS_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"

namespace cudnn_rnn {
namespace mock {

// Changes weights, or their gradient, in the layout of ParamLayout. `fault` is one of mock_cudnn.h.
Status SpoilWeights(const RnnConfig& config, int fault, char* weights);
// Changes a sequence [T, B, width].
void SpoilSequence(const SequenceShape& shape, int fault, int64_t bytes, char* sequence);

}  // namespace mock
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_FAULTS_H_
