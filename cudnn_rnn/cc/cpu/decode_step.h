// One time step of few sequences, as in a decode loop that carries the states itself.
//
// Each weight is used once, so packing all of them would not pay. A layer is one phase of the team:
// each member computes the gates W x + R h' + biases of its own units, then the cells and the final
// states of these units. Two cases need one more phase. Products that pack tiles of columns come
// before the cells, because packing is faster if a member's columns are adjacent; a projection
// comes after the cells.
#ifndef CUDNN_RNN_CC_CPU_DECODE_STEP_H_
#define CUDNN_RNN_CC_CPU_DECODE_STEP_H_

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/forward_layer.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"

namespace cudnn_rnn {

// Runs a layer's only step of few sequences: input products, cells and final states, but not
// dropout. Weights are packed as a whole only into the caller's packed weights. `keeps_steps` says
// whether the gates, c and R_n h' are kept for the gradient.
template <typename T>
void RunDecodeStep(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
                   const PackedSequences& sequences, const ForwardLayer<T>& layer, bool keeps_steps,
                   TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_DECODE_STEP_H_
