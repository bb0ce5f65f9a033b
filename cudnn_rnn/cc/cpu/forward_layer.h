// The buffers of one layer in a forward pass, of many steps (forward_pass.h) or of a single one
// (decode_step.h).
#ifndef CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_
#define CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_

#include <cstdint>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/cpu/steps.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {

// workspace.h has the shapes that are missing here.
template <typename T>
struct ForwardLayer {
  int64_t index;
  LayerPanels<T> panels;  // null if weights are not packed as a whole
  T* bias[2];             // see ForwardWorkspace
  T* unprojected[2];      // [N, H] if all steps are kept, otherwise [B, H]
  T* gates[2];
  int64_t first_gate_row[2];            // the packed row that `gates` begin with
  T* cell_states[2];                    // null unless all steps are kept
  T* candidate_products[2];             // of all steps, of a single step, or null
  RoundedMatrix rounded_outputs[2][2];  // h of even and of odd steps, of each direction
  RoundedMatrix rounded_unprojected[2];
  RoundedMatrix rounded_input;  // if the steps compute their input products
  const T* input;               // [N, LayerInputSize]
  T* output;                    // [N, D * P]
  T* dropped;                   // [N, D * P] `output` after dropout, or null
  DropoutPattern dropout;

  const RoundedMatrix& RoundedOutputs(const StepTile& tile, int64_t step) const {
    return rounded_outputs[tile.direction][step & 1];
  }
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_FORWARD_LAYER_H_
