// One layer of a forward pass, as many steps (forward_pass.cc) and a single step (decode_step.cc)
// see it.
#ifndef CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_
#define CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_

#include <cstdint>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {

// The buffers of one layer; workspace.h has the shapes of those without one here.
template <typename T>
struct ForwardLayer {
  int64_t index;
  LayerPanels<T> panels;  // null if weights are not packed as a whole
  T* bias[2];
  T* unprojected[2];  // [N, H] if all steps are kept, otherwise [B, H]
  T* gates[2];
  int64_t first_gate_row[2];            // the packed row that `gates` begin with
  T* cell_states[2];                    // null unless all steps are kept
  T* candidate_products[2];             // of all steps, of a single step, or null
  RoundedMatrix rounded_outputs[2][2];  // h of even and of odd steps, of each direction
  RoundedMatrix rounded_unprojected[2];
  const T* input;  // [N, LayerInputSize]
  T* output;       // [N, D * P]
  T* dropped;      // [N, D * P] `output` after dropout, or null
  DropoutPattern dropout;

  const RoundedMatrix& RoundedOutputs(const StepTile& tile, int64_t step) const {
    return rounded_outputs[tile.direction][step & 1];
  }
};

// Runs a layer's only step of few sequences: input products, cells and final states, but not
// dropout. Weights are packed as a whole only into the caller's packed weights. `keeps_steps` says
// whether the gates, c and R_n h' are kept for the gradient.
template <typename T>
void RunDecodeStep(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
                   const PackedSequences& sequences, const ForwardLayer<T>& layer, bool keeps_steps,
                   TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_
