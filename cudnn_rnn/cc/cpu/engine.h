// Forward and backward of a stack of recurrent layers on a CPU, in one real type.
//
// Works on packed sequences: a buffer of N rows has a row for each step of each sequence, and the
// states have their sequences in the packed order (see packed_sequences.h).
//
// A layer's input products for all steps are one large matrix product. Each step then is one
// parallel region over (direction, rows of the batch, panel of units): the recurrent product of
// all gates of those units and, while it is in cache, the cell's arithmetic. With a projection a
// second region follows, over panels of its width. Backward steps go the same way in reverse; the
// gradients of weights and inputs are large products over all steps.
//
// Work items never depend on how many threads there are, and every sum has one order, so neither
// does the result.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_H_
#define CUDNN_RNN_CC_CPU_ENGINE_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/arena.h"
#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
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
  const void* reserve_space;
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
  CheckedSize BackwardWorkspaceBytes() const;

  void Forward(const ForwardTensors<T>& tensors, const PackedSequences& sequences, bool is_training,
               int64_t dropout_call, ParallelRunner* runner) const;
  void Backward(const BackwardTensors<T>& tensors, const PackedSequences& sequences,
                int64_t dropout_call, ParallelRunner* runner) const;

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

  // One parallel region of a step: all panels of the first rows of each direction.
  struct Region {
    const PanelShape<T>* panels;
    int64_t depth;  // of the products that an item computes
    DirectionStep steps[2];
    int64_t rows[2];
    int64_t row_blocks[2];  // of kStepRows rows
    int64_t num_panels;
  };
  // A panel of columns, for some rows of the batch and one direction.
  struct StepItem {
    const DirectionStep* step;
    int64_t direction;
    int64_t stack;  // layer * D + direction
    int64_t first_row;
    int64_t end_row;
    int64_t panel;
    int64_t column;   // its first
    int64_t columns;  // how many
  };
  // Of the rows that have the step; with_next: or the one after it.
  void DescribeStep(const PackedSequences& sequences, int64_t step, bool with_next,
                    Region* region) const;
  StepItem ItemOf(const Region& region, int64_t layer, int64_t index) const;
  void Run(const Region& region, const ParallelRunner::Work& work, ParallelRunner* runner) const;

  void DescribeReserveSpace(int64_t layer, Arena* arena, ReserveSpace* reserve) const;
  void DescribeForwardWorkspace(bool is_training, Arena* arena, ForwardWorkspace* workspace) const;
  void DescribeBackwardWorkspace(Arena* arena, BackwardWorkspace* workspace) const;
  ReserveSpace ReserveOf(int64_t layer, void* reserve_space) const;

  // Elements of an operand that is packed for a product.
  CheckedSize PackedElements(int64_t columns, CheckedSize depth) const;

  // Forward, in order: gates = W x + biases; the steps; the final states.
  void ComputeInputProducts(const ForwardLayer& layer, int64_t direction,
                            ParallelRunner* runner) const;
  // R of each direction and gate: R^T for h' R^T, or R itself for gradients.
  void PackRecurrentWeights(int64_t layer, bool transposed, const T* params, T* packed,
                            ParallelRunner* runner) const;
  // Likewise the projection of each direction.
  void PackProjection(int64_t layer, bool transposed, const T* params, T* packed,
                      ParallelRunner* runner) const;
  void RunForwardSteps(const ForwardLayer& layer, ParallelRunner* runner) const;
  void RunForwardItem(const ForwardLayer& layer, const StepItem& item) const;
  void RunProjectionItem(const ForwardLayer& layer, const StepItem& item) const;
  // Sets the cell's pointers for the rows from `row` on.
  void PointForwardCell(const ForwardLayer& layer, const StepItem& item, int64_t row,
                        ForwardCell<T>* cell) const;
  void StoreFinalStates(const ForwardLayer& layer, int64_t direction) const;

  // Backward, in order: the steps; gradients of weights and biases; gradient of the input.
  void RunBackwardSteps(const BackwardLayer& layer, ParallelRunner* runner) const;
  void RunBackwardItem(const BackwardLayer& layer, const StepItem& item) const;
  void RunProjectionBackwardItem(const BackwardLayer& layer, const StepItem& item) const;
  void PointBackwardCell(const BackwardLayer& layer, const StepItem& item, int64_t row,
                         BackwardCell<T>* cell) const;
  void ComputeWeightGradients(const BackwardLayer& layer, int64_t direction,
                              ParallelRunner* runner) const;
  // h' of every row [N, P] as an operand.
  void PackPreviousOutputs(const BackwardLayer& layer, int64_t direction, T* packed,
                           ParallelRunner* runner) const;
  void ComputeBiasGradients(const BackwardLayer& layer, int64_t direction,
                            ParallelRunner* runner) const;
  void ComputeInputGradient(const BackwardLayer& layer, ParallelRunner* runner) const;

  void CopyHiddenStates(const T* source, T* target) const;
  void CopyCellStates(const T* source, T* target) const;

  // Of several packed operands [depth, columns], one after the other.
  static int64_t PackedSize(const PanelShape<T>& panels, int64_t depth) {
    return panels.padded_columns() * depth;
  }
  static const T* PanelOf(const T* packed, const PanelShape<T>& panels, int64_t depth,
                          int64_t operand, int64_t panel) {
    return packed + operand * PackedSize(panels, depth) + panels.Offset(panel, depth);
  }
  // h' of the item's direction, all P columns of it, from this row on; all these rows are on one
  // side of the step's previous_rows.
  StridedMatrix<T> PreviousOutput(const T* input_h, const T* output, const StepItem& item,
                                  int64_t row) const;
  // Where the gradient of the recurrent product of a gate lies: [N, ...] with this row stride.
  StridedMatrix<T> RecurrentGateGradient(const BackwardLayer& layer, int64_t direction,
                                         int64_t gate) const;

  const RnnConfig config_;
  const ParamLayout layout_;
  const Kernels<T>& kernels_;
  const CellKernels<T>& cell_;
  const PanelShape<T> unit_panels_;    // of H columns
  const PanelShape<T> output_panels_;  // of P columns
  const int64_t batch_size_;           // B
  const CheckedSize max_rows_;         // T * B
  const int64_t units_;                // H
  const int64_t outputs_;              // P, which is H without a projection
  const int64_t gates_;                // G
  const int64_t gate_width_;           // G * H
  const int64_t directions_;           // D
  const int64_t output_width_;         // D * P
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_H_
