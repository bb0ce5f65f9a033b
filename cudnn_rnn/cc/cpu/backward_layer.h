// The buffers of one layer in a backward pass, for its steps (backward_pass.h) and for the
// gradients of its parameters (parameter_gradients.h).
#ifndef CUDNN_RNN_CC_CPU_BACKWARD_LAYER_H_
#define CUDNN_RNN_CC_CPU_BACKWARD_LAYER_H_

#include <cstdint>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {

// workspace.h has the shapes that are missing here.
template <typename T>
struct BackwardLayer {
  // Returns the gradients of the recurrent products R h', starting at gate `first_gate`. GRU's last
  // gate has a buffer of its own [N, H]; the others share gate_gradients [N, G * H].
  StridedMatrix<T> RecurrentGateGradients(const EngineModel<T>& model, int64_t direction,
                                          int64_t first_gate) const {
    if (first_gate >= model.shared_gates()) {
      return {candidate_gradients[direction], model.units, 1};
    }
    return {gate_gradients[direction] + first_gate * model.units, model.gate_row_stride, 1};
  }

  int64_t index;
  ReserveSpace<T> reserve;
  T* input_weight_panels;
  T* recurrent_panels[2];
  T* projection_panels[2];
  T* projected_gradients[2];
  T* gate_gradients[2];                        // in the workspace or over the reserve space's gates
  T* candidate_gradients[2];                   // likewise
  RoundedMatrix rounded_gate_gradients[2][2];  // of even and of odd steps, of each direction
  RoundedMatrix rounded_projected_gradients[2];
  const T* input;            // [N, LayerInputSize], before dropout
  const T* output;           // [N, D * P]
  const T* output_gradient;  // [N, D * P]
  T* input_gradient;         // [N, LayerInputSize]
  bool drops_input;
  DropoutPattern dropout;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_BACKWARD_LAYER_H_
