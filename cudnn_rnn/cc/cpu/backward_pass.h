// The backward pass of a stack of layers; engine_model.h describes the computation.
#ifndef CUDNN_RNN_CC_CPU_BACKWARD_PASS_H_
#define CUDNN_RNN_CC_CPU_BACKWARD_PASS_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"

namespace cudnn_rnn {

// Every member of a team calls this function. Each layer, from the last to the first, computes: the
// steps in reverse; the gradients of weights and biases; the input's gradient.
template <typename T>
void RunBackward(const EngineModel<T>& model, const BackwardTensors<T>& tensors,
                 const PackedSequences& sequences, int64_t dropout_call_index, TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_BACKWARD_PASS_H_
