// The backward pass of the engine. Every member of a team makes one and calls Run.
//
// Each layer, from the last to the first, computes: the steps in reverse; the gradients of weights
// and biases; the input's gradient.
#ifndef CUDNN_RNN_CC_CPU_BACKWARD_PASS_H_
#define CUDNN_RNN_CC_CPU_BACKWARD_PASS_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "cudnn_rnn/cc/cpu/steps.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {

// The buffers of one layer; workspace.h has the shapes of those without one here.
template <typename T>
struct BackwardLayer {
  // Returns the gradients of the recurrent products R h', starting at gate `first_gate`. GRU's last
  // gate has a buffer of its own [N, H]; the others share gate_gradients [N, G * H].
  StridedMatrix<T> RecurrentGateGradients(const EngineModel<T>& model, int64_t direction,
                                          int64_t first_gate) const {
    if (first_gate >= model.shared_gates()) {
      return {candidate_gradients[direction], model.units, 1};
    }
    return {gate_gradients[direction] + first_gate * model.units, model.gate_width, 1};
  }

  int64_t index;
  ReserveSpace<T> reserve;
  T* input_weight_panels;
  T* recurrent_panels[2];
  T* projection_panels[2];
  T* projected_gradients[2];
  T* gate_gradients[2];       // in the workspace or over the reserve space's gates
  T* candidate_gradients[2];  // likewise
  const T* input;             // [N, LayerInputSize], before dropout
  const T* output;            // [N, D * P]
  const T* output_gradient;   // [N, D * P]
  T* input_gradient;          // [N, LayerInputSize]
  bool drops_input;
  DropoutPattern dropout;
};

template <typename T>
class BackwardPass {
 public:
  // The arguments must outlive the pass.
  BackwardPass(const EngineModel<T>& model, const BackwardTensors<T>& tensors,
               const PackedSequences& sequences, int64_t dropout_call_index, TeamMember* member);

  void Run();

 private:
  using Layer = BackwardLayer<T>;

  // Returns the layers in the order of the pass: from the last to the first.
  std::vector<Layer> MakeLayers(const BackwardWorkspace<T>& workspace) const;
  void RunLayer(const Layer& layer, const BackwardWorkspace<T>& workspace);
  void RunWavefront(const std::vector<Layer>& layers, const BackwardWorkspace<T>& workspace);
  int64_t FirstRow(int64_t step) const { return sequences_.FirstRow(step); }

  void PackStepWeights(const Layer& layer);
  void RunLayerSteps(const Layer& layer, const StepRange& steps, TeamMember* member) const;
  // Computes the gradient of h, and without a projection the cell's gradients.
  void RunTile(const Layer& layer, const StepTile& tile) const;
  // Computes the cell's gradients from the gradient of the projected h.
  void RunProjectionTile(const Layer& layer, const StepTile& tile) const;
  // Multiplies the gates' gradients of the next step by R, for a range of the tile's rows.
  void MultiplyGateGradients(const Layer& layer, const StepTile& tile, int64_t row,
                             ProductTile<T>* product) const;
  // Sets the pointers to the forward pass's results and to the gradients of gates and cell state.
  void PointCell(const Layer& layer, const StepTile& tile, int64_t row,
                 BackwardTile<T>* cell) const;
  void PackInputWeights(const Layer& layer, int64_t direction);
  // Computes dx [N, I] = sum over directions of dgates W.
  void ComputeInputGradient(const Layer& layer, int64_t direction, const StepRange& steps,
                            TeamMember* member) const;
  void AddSkippedInputGradient(const Layer& layer, int64_t direction, const StepRange& steps,
                               TeamMember* member) const;
  void DropInputGradient(const Layer& layer, const StepRange& steps, TeamMember* member) const;

  const EngineModel<T>& model_;
  const BackwardTensors<T>& tensors_;
  const PackedSequences& sequences_;
  const int64_t dropout_call_index_;
  TeamMember* const member_;
  const Pass pass_;
  const PassSchedule schedule_;
};

// Computes the gradients of a layer's parameters, after its steps (parameter_gradients.cc).
template <typename T>
void ComputeParameterGradients(const EngineModel<T>& model, const BackwardTensors<T>& tensors,
                               const PackedSequences& sequences, const BackwardLayer<T>& layer,
                               const BackwardWorkspace<T>& workspace, TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_BACKWARD_PASS_H_
