// Gradients of a layer's parameters from the gates' gradients, as large products and sums.
#ifndef CUDNN_RNN_CC_CPU_PARAMETER_GRADIENTS_H_
#define CUDNN_RNN_CC_CPU_PARAMETER_GRADIENTS_H_

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/backward_layer.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {

// Computes the gradients of a layer's parameters, after its steps.
template <typename T>
void ComputeParameterGradients(const EngineModel<T>& model, const BackwardTensors<T>& tensors,
                               const PackedSequences& sequences, const BackwardLayer<T>& layer,
                               const BackwardWorkspace<T>& workspace, TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_PARAMETER_GRADIENTS_H_
