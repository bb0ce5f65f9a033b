// The forward pass of the engine. Every member of a team makes one and calls Run.
//
// Each layer computes, in order: gates = x W^T + biases; the steps; the final states; dropout.
#ifndef CUDNN_RNN_CC_CPU_FORWARD_PASS_H_
#define CUDNN_RNN_CC_CPU_FORWARD_PASS_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "cudnn_rnn/cc/cpu/steps.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {

template <typename T>
class ForwardPass {
 public:
  // The arguments must outlive the pass.
  ForwardPass(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
              const PackedSequences& sequences, bool is_training, int64_t dropout_call_index,
              TeamMember* member);

  void Run();

 private:
  // The buffers of one layer; workspace.h has the shapes of those without one here.
  struct Layer {
    int64_t index;
    T* input_weight_panels;
    T* bias;
    T* recurrent_panels[2];
    T* projection_panels[2];
    T* unprojected[2];  // [N, H] if all steps are kept, otherwise [B, H]
    T* gates[2];
    T* cell_states[2];         // null unless all steps are kept
    T* candidate_products[2];  // of all steps, of a single step, or null
    const T* input;            // [N, LayerInputSize]
    T* output;                 // [N, D * P]
    T* dropped;                // [N, D * P] `output` after dropout, or null
    DropoutPattern dropout;
  };

  std::vector<Layer> MakeLayers() const;
  void RunLayer(const Layer& layer);
  void RunWavefront(const std::vector<Layer>& layers);
  int64_t FirstRow(int64_t step) const { return sequences_.FirstRow(step); }

  // Sums the biases and, if W is packed as a whole, packs it.
  void PrepareInputProducts(const Layer& layer, int64_t direction);
  void ComputeInputProducts(const Layer& layer, int64_t direction, const StepRange& steps,
                            TeamMember* member) const;
  void AddSkippedInput(const Layer& layer, int64_t direction, const StepRange& steps,
                       TeamMember* member) const;
  void PackStepWeights(const Layer& layer);
  void RunLayerSteps(const Layer& layer, const StepRange& steps, TeamMember* member) const;
  void RunTile(const Layer& layer, const StepTile& tile) const;
  void RunProjectionTile(const Layer& layer, const StepTile& tile) const;
  // Sets the cell's pointers for the rows starting at `row`.
  void PointCell(const Layer& layer, const StepTile& tile, int64_t row, ForwardTile<T>* cell) const;
  // Replaces PackStepWeights and RunLayerSteps for a single step whose weights are not packed as a
  // whole.
  void RunSingleStep(const Layer& layer);
  void AddRecurrentProducts(const Layer& layer, int64_t direction);
  // Multiplies by row-major weights, which `packing` does not pack as a whole.
  void MultiplyRowMajor(Packing packing, const RowMajorProduct<T>& product,
                        TeamMember* member) const;
  void StoreFinalStates(const Layer& layer, int64_t direction, const StepRange& steps) const;
  // Runs what follows a block of steps: the final states and dropout.
  void FinishSteps(const Layer& layer, const StepRange& steps, TeamMember* member) const;

  const EngineModel<T>& model_;
  const ForwardTensors<T>& tensors_;
  const PackedSequences& sequences_;
  const bool is_training_;
  const int64_t dropout_call_index_;
  TeamMember* const member_;
  const PassSchedule schedule_;
  const bool keeps_steps_;         // whether gates, c and R_n h' of all steps are kept
  const bool packs_step_weights_;  // whether R and the projection are packed as a whole
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_FORWARD_PASS_H_
