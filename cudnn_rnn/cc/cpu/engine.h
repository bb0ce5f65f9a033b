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
// all steps.
//
// For a single step of few sequences, as in a decode loop, the forward pass reads weights in place
// or packs one tile's columns at a time, instead of packing each matrix as a whole.
//
// Layers whose steps are too small to be shared run side by side, as a wavefront.
//
// The order of every sum is fixed, so results do not depend on the number of threads.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_H_
#define CUDNN_RNN_CC_CPU_ENGINE_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/arena.h"
#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/gemm.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"

namespace cudnn_rnn {

// The buffers of rnn_plan.h in the engine's real type, time-major, with N packed rows in place of
// T * B.
template <typename T>
struct ForwardTensors {
  const T* input;
  const T* input_h;
  const T* input_c;
  const T* params;
  T* output;
  T* output_h;
  T* output_c;
  void* reserve_space;
  void* workspace;
};

template <typename T>
struct BackwardTensors {
  const T* input;
  const T* input_h;
  const T* input_c;
  const T* params;
  const T* output;
  const T* output_backprop;
  const T* output_h_backprop;
  const T* output_c_backprop;
  void* reserve_space;  // overwritten with gradients unless keeps_reserve_space
  bool keeps_reserve_space;
  T* input_backprop;
  T* input_h_backprop;
  T* input_c_backprop;
  T* params_backprop;
  void* workspace;
};

template <typename T>
class Engine {
 public:
  // The engine handles any packed sequences of `shape`.
  Engine(const RnnConfig& config, const ParamLayout& layout, const SequenceShape& shape,
         const Kernels<T>& kernels);

  // Return sizes in bytes. The reserve space holds, for each layer but the last, its output
  // [T * B, D * P]. For LSTM and GRU it also holds, for each layer and direction, the gates
  // [T * B, G * H] and LSTM's cell states or GRU's recurrent candidate products [T * B, H]; with a
  // projection, also the unprojected h [T * B, H].
  CheckedSize ReserveSpaceBytes() const;
  CheckedSize ForwardWorkspaceBytes(bool is_training) const;
  CheckedSize BackwardWorkspaceBytes(bool keeps_reserve_space) const;

  void Forward(const ForwardTensors<T>& tensors, const PackedSequences& sequences, bool is_training,
               int64_t dropout_call_index, TeamMember* member) const;
  void Backward(const BackwardTensors<T>& tensors, const PackedSequences& sequences,
                int64_t dropout_call_index, TeamMember* member) const;

 private:
  struct ReserveSpace;
  struct ForwardWorkspace;
  struct BackwardWorkspace;
  struct ForwardLayer;
  struct BackwardLayer;

  // One step of one direction, numbered in the direction's own order; -1 precedes the first step.
  struct DirectionStep {
    int64_t rows;           // sequences that have this step
    int64_t previous_rows;  // of these, sequences that have the previous step as well
    int64_t next_rows;      // sequences that have the next step
    // First rows of this, the previous and the next step in buffers of N rows.
    int64_t first;
    int64_t previous_first;
    int64_t next_first;
  };
  static DirectionStep DirectionStepOf(const PackedSequences& sequences, int64_t direction,
                                       int64_t step);

  // Steps [first, end) of a layer, numbered in a direction's own order.
  struct StepRange {
    int64_t first;
    int64_t end;
  };
  static StepRange AllSteps(const PackedSequences& sequences) { return {0, sequences.num_steps()}; }

  // One phase of a step: all vectors of `columns` columns, in each direction.
  struct StepPhase {
    int64_t columns;
    int64_t tile_vectors;  // adjacent vectors of columns per tile
    int64_t depth;         // multiply-adds per column and row
    int64_t step;
    bool with_next;  // whether rows that have only the next step are included
  };
  // A range of columns and a range of the batch's rows, in one direction.
  struct StepTile {
    const DirectionStep* step;
    int64_t direction;
    int64_t pseudo_layer;  // layer * D + direction
    int64_t first_row;
    int64_t end_row;
    int64_t panel;    // first vector of columns
    int64_t column;   // first column
    int64_t columns;  // number of columns
  };
  int64_t StepCost(int64_t rows, int64_t columns, int64_t depth) const;
  // Returns the cost of a forward step of all units of a direction; backward costs about the same.
  int64_t StepCost() const { return StepCost(batch_size_, units_, gates_ * output_size_); }
  // Calls `compute` for tiles that together cover directions [first_direction, end_direction) of
  // the phase, shared by the team of `member`.
  template <typename Compute>
  void ForTiles(const PackedSequences& sequences, const StepPhase& phase, int64_t layer,
                int64_t first_direction, int64_t end_direction, const Compute& compute,
                TeamMember* member) const;
  // Calls run_step(i, first_direction, end_direction, member) for i < num_steps in order: either
  // all directions on the whole team, or each direction on one member. `depth` as in StepPhase.
  template <typename RunStep>
  void RunSteps(int64_t num_steps, int64_t depth, const RunStep& run_step,
                TeamMember* member) const;

  // Whether to run layers as a wavefront, which pays off if a step is not worth sharing: while one
  // layer works on a block of steps, the layer that reads its results works on the previous block.
  // Unidirectional models only.
  bool RunsWavefronts(const PackedSequences& sequences, TeamMember* member) const;
  int64_t NumStepBlocks(const PackedSequences& sequences) const;
  // Calls advance(position, block, member) for each layer and block. `position` is the layer's
  // place in the order of the pass. A call runs after those for (position, block - 1) and
  // (position - 1, block).
  template <typename Advance>
  void ForWavefronts(const PackedSequences& sequences, const Advance& advance,
                     TeamMember* member) const;
  // Returns the steps of block number `block`.
  StepRange BlockOf(const PackedSequences& sequences, int64_t block) const;

  void DescribeReserveSpace(int64_t layer, Arena* arena, ReserveSpace* reserve) const;
  void DescribeForwardWorkspace(bool is_training, Arena* arena, ForwardWorkspace* workspace) const;
  void DescribeBackwardWorkspace(bool keeps_reserve_space, Arena* arena,
                                 BackwardWorkspace* workspace) const;
  ReserveSpace ReserveOf(int64_t layer, void* reserve_space) const;

  // Returns the elements of a packed right-hand operand [depth, columns].
  CheckedSize PackedElements(int64_t columns, CheckedSize depth) const {
    return PanelSize(kernels_, depth) * NumPanels(kernels_, columns);
  }
  // Returns the largest number of columns of W in any layer.
  int64_t WidestInput() const;
  // Return the elements of one direction's packed weights. For forward (not `transposed`) operands
  // are R^T of each gate and the projection's transpose; for gradients R and the projection itself.
  int64_t PackedRecurrentSize(bool transposed) const;
  int64_t PackedProjectionSize(bool transposed) const;

  // Forward, in order: gates = x W^T + biases; the steps; the final states; dropout.
  std::vector<ForwardLayer> ForwardLayers(const ForwardTensors<T>& tensors,
                                          const ForwardWorkspace& workspace,
                                          const PackedSequences& sequences, bool is_training,
                                          int64_t dropout_call_index) const;
  void RunForwardLayer(const ForwardLayer& layer, TeamMember* member) const;
  void RunForwardSideBySide(const std::vector<ForwardLayer>& layers, TeamMember* member) const;
  // Prepares ComputeInputProducts: sums the biases and, if packs_input_weights_, packs W.
  void PrepareInputProducts(const ForwardLayer& layer, int64_t direction, TeamMember* member) const;
  void ComputeInputProducts(const ForwardLayer& layer, int64_t direction, const StepRange& steps,
                            TeamMember* member) const;
  void AddSkippedInput(const ForwardLayer& layer, int64_t direction, const StepRange& steps,
                       TeamMember* member) const;
  void PackStepWeights(const ForwardLayer& layer, TeamMember* member) const;
  void PackRecurrentWeights(int64_t layer, bool transposed, const T* params, T* packed,
                            TeamMember* member) const;
  void PackProjection(int64_t layer, bool transposed, const T* params, T* packed,
                      TeamMember* member) const;
  void RunForwardSteps(const ForwardLayer& layer, const StepRange& steps, TeamMember* member) const;
  void RunForwardTile(const ForwardLayer& layer, const StepTile& tile) const;
  void RunProjectionTile(const ForwardLayer& layer, const StepTile& tile) const;
  // Sets the cell's pointers for the rows starting at `row`.
  void PointForwardCell(const ForwardLayer& layer, const StepTile& tile, int64_t row,
                        ForwardTile<T>* cell) const;
  // Replaces PackStepWeights and RunForwardSteps if is_decode_step_.
  void RunSingleStep(const ForwardLayer& layer, TeamMember* member) const;
  void AddRecurrentProducts(const ForwardLayer& layer, int64_t direction, TeamMember* member) const;
  // Multiplies by weights that are not packed as a whole.
  void MultiplyStep(const UnpackedProduct<T>& product, TeamMember* member) const;
  void StoreFinalStates(const ForwardLayer& layer, const StepRange& steps,
                        TeamMember* member) const;
  void StoreFinalStatesOf(const ForwardLayer& layer, int64_t direction,
                          const StepRange& steps) const;
  void DropOutput(const ForwardLayer& layer, const StepRange& steps, TeamMember* member) const;

  // Backward, in order: the steps; the gradients of weights and biases; the input's gradient.
  std::vector<BackwardLayer> BackwardLayers(const BackwardTensors<T>& tensors,
                                            const BackwardWorkspace& workspace,
                                            const PackedSequences& sequences,
                                            int64_t dropout_call_index) const;
  void RunBackwardLayer(const BackwardLayer& layer, TeamMember* member) const;
  void RunBackwardSideBySide(const std::vector<BackwardLayer>& layers, TeamMember* member) const;
  void PackStepWeights(const BackwardLayer& layer, TeamMember* member) const;
  void RunBackwardSteps(const BackwardLayer& layer, const StepRange& steps,
                        TeamMember* member) const;
  void RunBackwardTile(const BackwardLayer& layer, const StepTile& tile) const;
  void RunProjectionBackwardTile(const BackwardLayer& layer, const StepTile& tile) const;
  void PointBackwardCell(const BackwardLayer& layer, const StepTile& tile, int64_t row,
                         BackwardTile<T>* cell) const;
  void ComputeParameterGradients(const BackwardLayer& layer, TeamMember* member) const;
  // `input` is the layer's input after dropout.
  void ComputeWeightGradients(const BackwardLayer& layer, int64_t direction, const T* input,
                              TeamMember* member) const;
  // Packs h' of all rows as a right-hand operand [N, P].
  void PackPreviousOutputs(const BackwardLayer& layer, int64_t direction, T* packed,
                           TeamMember* member) const;
  void ComputeBiasGradients(const BackwardLayer& layer, int64_t direction,
                            TeamMember* member) const;
  void PackInputWeights(const BackwardLayer& layer, int64_t direction, TeamMember* member) const;
  void ComputeInputGradient(const BackwardLayer& layer, int64_t direction, const StepRange& steps,
                            TeamMember* member) const;
  void DropInputGradient(const BackwardLayer& layer, const StepRange& steps,
                         TeamMember* member) const;

  void CopyHiddenStates(const T* source, T* target) const;
  void CopyCellStates(const T* source, T* target) const;

  // Returns h' [rows, P] of the tile's direction, starting at `row`. The view is valid only for
  // rows on the same side of the step's previous_rows as `row`.
  StridedMatrix<T> PreviousOutput(const T* input_h, const T* output, const StepTile& tile,
                                  int64_t row) const;
  // Returns the gradients of the recurrent products R h', starting at gate `first_gate`. GRU's last
  // gate has a buffer of its own [N, H]; the others share the layer's gate_gradients [N, G * H].
  StridedMatrix<T> RecurrentGateGradients(const BackwardLayer& layer, int64_t direction,
                                          int64_t first_gate) const;
  // Returns the number of leading gates whose recurrent and input products have the same gradients.
  int64_t SharedGates() const { return config_.mode == RnnMode::kGru ? 2 : gates_; }

  const RnnConfig config_;
  const ParamLayout layout_;
  const Kernels<T>& kernels_;
  const CellKernels<T>& cell_;
  const bool is_decode_step_;
  const int64_t batch_size_;    // B
  const CheckedSize max_rows_;  // T * B
  const int64_t units_;         // H
  const int64_t output_size_;   // P, which is H without a projection
  const int64_t gates_;         // G
  const int64_t gate_width_;    // G * H
  const int64_t directions_;    // D
  const int64_t output_width_;  // D * P
  // Strides in R packed for forward steps: between vectors of units, and between gates.
  const int64_t recurrent_panel_size_;
  const int64_t recurrent_gate_size_;
  // The number of layers if they may run side by side, otherwise 1.
  const int64_t layers_at_once_;
  // Whether W is packed as a whole; false for few rows.
  const bool packs_input_weights_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_H_
