// Forward and backward of a stack of recurrent layers on a CPU, in one real type.
//
// Works on packed sequences: a buffer of N rows has one row per step of each sequence, and states
// have their sequences in packed order (see packed_sequences.h).
//
// Runs on a team (see team.h): every member calls Forward or Backward. The input products of a
// layer, for all steps, are one large matrix product. Each step is then one phase of the team over
// (direction, vector of units): the recurrent product of all gates of these units and, while the
// product is in cache, the cell's arithmetic. A member has the same vectors in every step, so their
// weights stay in its cache. A projection is a second phase, over vectors of the projected width.
// Backward runs the steps in reverse; the gradients of weights and inputs are large products over
// all steps. schedule.h decides when the engine deviates from this: for single steps of few
// sequences, and for layers whose steps are too small to be shared.
//
// The order of every sum is fixed, so results do not depend on the number of threads.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_H_
#define CUDNN_RNN_CC_CPU_ENGINE_H_

#include <cstdint>

#include "cudnn_rnn/cc/cpu/backward_pass.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/forward_pass.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {

template <typename T>
class Engine {
 public:
  // The engine handles any packed sequences of `shape`.
  Engine(const RnnConfig& config, const ParamLayout& layout, const SequenceShape& shape,
         const Kernels<T>& kernels)
      : model_(config, layout, shape, kernels) {}

  // Return sizes in bytes; workspace.h lists the contents.
  CheckedSize ReserveSpaceBytes() const { return cudnn_rnn::ReserveSpaceBytes(model_); }
  CheckedSize ForwardWorkspaceBytes(bool is_training) const {
    return WorkspaceBytes<ForwardWorkspace<T>>(model_,
                                               is_training ? Pass::kTraining : Pass::kInference);
  }
  CheckedSize BackwardWorkspaceBytes(bool keeps_reserve_space) const {
    return WorkspaceBytes<BackwardWorkspace<T>>(
        model_, keeps_reserve_space ? Pass::kBackward : Pass::kBackwardInPlace);
  }

  void Forward(const ForwardTensors<T>& tensors, const PackedSequences& sequences, bool is_training,
               int64_t dropout_call_index, TeamMember* member) const {
    RunForward(model_, tensors, sequences, is_training, dropout_call_index, member);
  }
  void Backward(const BackwardTensors<T>& tensors, const PackedSequences& sequences,
                int64_t dropout_call_index, TeamMember* member) const {
    RunBackward(model_, tensors, sequences, dropout_call_index, member);
  }

 private:
  const EngineModel<T> model_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_H_
