// The forward pass of a stack of layers; engine_model.h describes the computation.
#ifndef CUDNN_RNN_CC_CPU_FORWARD_PASS_H_
#define CUDNN_RNN_CC_CPU_FORWARD_PASS_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"

namespace cudnn_rnn {

// Every member of a team calls this function. Each layer computes, in order: gates = x W^T +
// biases; the steps; the final states; dropout.
template <typename T>
void RunForward(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
                const PackedSequences& sequences, bool is_training, int64_t dropout_call_index,
                TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_FORWARD_PASS_H_
