// Forward and backward of a stack of recurrent layers on a CPU, in one real type.
//
// Works on packed sequences: a buffer of N rows has a row for each step of each sequence, and the
// states have their sequences in the packed order (see packed_sequences.h).
//
// Runs on a team (see team.h): every member calls Forward or Backward. A layer's input products for
// all steps are one large matrix product. Each step then is one phase of the team over (direction,
// vector of units), and each member has the same vectors in every step, so their weights stay in
// its cache: the recurrent product of all gates of those units and, while it is in cache, the
// cell's arithmetic. With a projection a second phase follows, over vectors of its width. Backward
// steps go the same way in reverse; the gradients of weights and inputs are large products over
// all steps.
//
// Where the shape is a single step of few sequences, as in a decode loop, the forward pass reads
// weights where they are, or packs a tile's columns at a time, instead of packing them as a whole.
//
// Layers whose steps are too small to be shared run side by side, as a wavefront.
//
// Every sum has one order, whatever is computed where, so results do not depend on the number of
// threads.
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

// The buffers of rnn_plan.h in the engine's type: time-major, and with N packed rows where shapes
// there have T * B.
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
  // For any packed sequences of that shape.
  Engine(const RnnConfig& config, const ParamLayout& layout, const SequenceShape& shape,
         const Kernels<T>& kernels);

  // In bytes. The reserve space holds, for each layer but the last, its output [T * B, D * P], and
  // for each layer and direction the gates [T * B, G * H] and, of T * B * H elements, LSTM's cell
  // states or GRU's recurrent candidate products, and what a projection projects; nothing but the
  // outputs for simple RNNs.
  CheckedSize ReserveSpaceBytes() const;
  CheckedSize ForwardWorkspaceBytes(bool is_training) const;
  CheckedSize BackwardWorkspaceBytes(bool keeps_reserve_space) const;

  void Forward(const ForwardTensors<T>& tensors, const PackedSequences& sequences, bool is_training,
               int64_t dropout_call, TeamMember* member) const;
  void Backward(const BackwardTensors<T>& tensors, const PackedSequences& sequences,
                int64_t dropout_call, TeamMember* member) const;

 private:
  struct ReserveSpace;
  struct ForwardWorkspace;
  struct BackwardWorkspace;
  struct ForwardLayer;
  struct BackwardLayer;

  // One direction at one step, counted in the direction's own order; -1 is before the first.
  struct DirectionStep {
    int64_t rows;           // sequences that have it
    int64_t previous_rows;  // those of them that have one before it; for the others it is the first
    int64_t next_rows;      // sequences that have the one after it
    // Where the rows of the three begin in buffers of N rows.
    int64_t first;
    int64_t previous_first;
    int64_t next_first;
  };
  static DirectionStep DirectionStepOf(const PackedSequences& sequences, int64_t direction,
                                       int64_t step);

  // Steps of a layer, in the order of a direction.
  struct StepRange {
    int64_t first;
    int64_t end;
  };
  static StepRange AllSteps(const PackedSequences& sequences) { return {0, sequences.num_steps()}; }

  // One phase of a step: all vectors of `columns` of each direction.
  struct StepPhase {
    int64_t columns;
    int64_t tile_vectors;  // neighbouring vectors of columns that are computed together
    int64_t depth;         // multiply-adds for each column and row
    int64_t step;
    bool with_next;  // of the rows that have the step or the one after it
  };
  // Some columns, for some rows of the batch and one direction.
  struct StepTile {
    const DirectionStep* step;
    int64_t direction;
    int64_t stack;  // layer * D + direction
    int64_t first_row;
    int64_t end_row;
    int64_t panel;    // its first vector
    int64_t column;   // its first
    int64_t columns;  // how many
  };
  int64_t StepCost(int64_t rows, int64_t columns, int64_t depth) const;
  // Of all units of a direction, forward; backward is about the same.
  int64_t StepCost() const { return StepCost(batch_size_, units_, gates_ * outputs_); }
  // Calls `compute` for tiles that together are the phase, on all members or alone on this one, and
  // only of directions [first_direction, end_direction).
  template <typename Compute>
  void ForTiles(const PackedSequences& sequences, const StepPhase& phase, int64_t layer,
                int64_t first_direction, int64_t end_direction, const Compute& compute,
                TeamMember* member) const;
  // Calls run_step(i, first_direction, end_direction, member) for i < num_steps in order: with all
  // directions on the whole team, or one direction on this member alone. `depth` as in StepPhase.
  template <typename RunStep>
  void RunSteps(int64_t num_steps, int64_t depth, const RunStep& run_step,
                TeamMember* member) const;

  // Layers side by side, where a step is not worth sharing: while a layer works on a block of
  // steps, the one that reads its results works on the block before. Only of one direction.
  bool RunsLayersSideBySide(const PackedSequences& sequences, TeamMember* member) const;
  int64_t NumStepBlocks(const PackedSequences& sequences) const;
  // Calls advance(position, block, member) for each layer, by its position in the order of the
  // pass, and each block, after it was called for the block before and for the position before.
  template <typename Advance>
  void ForDiagonals(const PackedSequences& sequences, const Advance& advance,
                    TeamMember* member) const;
  // Block number `block` of a layer's steps.
  StepRange BlockOf(const PackedSequences& sequences, int64_t block) const;

  void DescribeReserveSpace(int64_t layer, Arena* arena, ReserveSpace* reserve) const;
  void DescribeForwardWorkspace(bool is_training, Arena* arena, ForwardWorkspace* workspace) const;
  void DescribeBackwardWorkspace(bool keeps_reserve_space, Arena* arena,
                                 BackwardWorkspace* workspace) const;
  ReserveSpace ReserveOf(int64_t layer, void* reserve_space) const;

  // Elements of an operand that is packed for a product.
  CheckedSize PackedElements(int64_t columns, CheckedSize depth) const {
    return PanelSize(kernels_, depth) * NumPanels(kernels_, columns);
  }
  // Columns of any layer's W.
  int64_t WidestInput() const;
  // Of one direction: R^T for h' R^T, of each gate; R itself for gradients; the projection.
  int64_t PackedRecurrentSize(bool transposed) const;
  int64_t PackedProjectionSize(bool transposed) const;

  // Forward, in order: gates = W x + biases; the steps; the final states; dropout.
  std::vector<ForwardLayer> ForwardLayers(const ForwardTensors<T>& tensors,
                                          const ForwardWorkspace& workspace,
                                          const PackedSequences& sequences, bool is_training,
                                          int64_t dropout_call) const;
  void RunForwardLayer(const ForwardLayer& layer, TeamMember* member) const;
  void RunForwardSideBySide(const std::vector<ForwardLayer>& layers, TeamMember* member) const;
  // What ComputeInputProducts needs: the biases, and W packed if it is packed as a whole.
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
  // Sets the cell's pointers for the rows from `row` on.
  void PointForwardCell(const ForwardLayer& layer, const StepTile& tile, int64_t row,
                        ForwardTile<T>* cell) const;
  // In place of PackStepWeights and RunForwardSteps.
  void RunSingleStep(const ForwardLayer& layer, TeamMember* member) const;
  void AddRecurrentProducts(const ForwardLayer& layer, int64_t direction, TeamMember* member) const;
  // By weights that are not packed as a whole.
  void MultiplyInPlace(const UnpackedProduct<T>& product, TeamMember* member) const;
  void StoreFinalStates(const ForwardLayer& layer, const StepRange& steps,
                        TeamMember* member) const;
  void StoreFinalStatesOf(const ForwardLayer& layer, int64_t direction,
                          const StepRange& steps) const;
  void DropOutput(const ForwardLayer& layer, const StepRange& steps, TeamMember* member) const;

  // Backward, in order: the steps; gradients of weights and biases; gradient of the input.
  std::vector<BackwardLayer> BackwardLayers(const BackwardTensors<T>& tensors,
                                            const BackwardWorkspace& workspace,
                                            const PackedSequences& sequences,
                                            int64_t dropout_call) const;
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
  // `input` after dropout.
  void ComputeWeightGradients(const BackwardLayer& layer, int64_t direction, const T* input,
                              TeamMember* member) const;
  // h' of every row [N, P] as an operand.
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

  // h' of the tile's direction, all P columns of it, from this row on; all these rows are on one
  // side of the step's previous_rows.
  StridedMatrix<T> PreviousOutput(const T* input_h, const T* output, const StepTile& tile,
                                  int64_t row) const;
  // Gradients of the recurrent products of gates [first, end): [N, (end - first) * H]. GRU's last
  // gate has its own.
  StridedMatrix<T> RecurrentGateGradients(const BackwardLayer& layer, int64_t direction,
                                          int64_t first_gate) const;
  // How many gates, from the first on, have theirs where those of the inputs' products are.
  int64_t SharedGates() const { return config_.mode == RnnMode::kGru ? 2 : gates_; }

  const RnnConfig config_;
  const ParamLayout layout_;
  const Kernels<T>& kernels_;
  const CellKernels<T>& cell_;
  const bool reads_weights_in_place_;
  const int64_t batch_size_;    // B
  const CheckedSize max_rows_;  // T * B
  const int64_t units_;         // H
  const int64_t outputs_;       // P, which is H without a projection
  const int64_t gates_;         // G
  const int64_t gate_width_;    // G * H
  const int64_t directions_;    // D
  const int64_t output_width_;  // D * P
  // Of R packed for forward steps: from a vector of units to the next one, and from a gate to the
  // next one.
  const int64_t recurrent_panel_size_;
  const int64_t recurrent_gate_size_;
  // L where layers may run side by side, else 1.
  const int64_t layers_at_once_;
  // Whether W is packed as a whole; not for few rows.
  const bool keeps_packed_inputs_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_H_
