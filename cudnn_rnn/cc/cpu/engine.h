// Forward and backward of a stack of recurrent layers on a CPU, in one real type.
//
// A layer's input products for all steps are one large matrix product. Each step then is one
// parallel region over (direction, rows of the batch, panel of units): the recurrent product of
// all gates of those units and, while it is in cache, the cell's arithmetic. Backward steps go
// the same way in reverse; the gradients of weights and inputs are large products over all steps.
//
// Work items never depend on how many threads there are, and every sum has one order, so neither
// does the result.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_H_
#define CUDNN_RNN_CC_CPU_ENGINE_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/cpu/gemm.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

// Takes aligned pieces off one block of memory. Without memory it only adds up their sizes.
class Arena {
 public:
  explicit Arena(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <typename T>
  T* Take(CheckedSize num_elements) {
    constexpr int64_t kAlignment = 64;
    char* piece = memory_ == nullptr ? nullptr : memory_ + used_.value();
    const CheckedSize bytes = num_elements * static_cast<int64_t>(sizeof(T)) + (kAlignment - 1);
    used_ = used_ + (bytes.overflowed() ? bytes : bytes.value() / kAlignment * kAlignment);
    return reinterpret_cast<T*>(piece);
  }

  CheckedSize used() const { return used_; }

 private:
  char* memory_;
  CheckedSize used_ = 0;
};

// The buffers of rnn_plan.h in the engine's type; shapes are given there.
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
  Engine(const RnnConfig& config, const ParamLayout& layout, int64_t num_steps, int64_t batch_size,
         const Kernels<T>& kernels);

  // In bytes. The reserve space holds, for each layer but the last, its output [T, B, D * H], and
  // for each layer and direction the gates [T, B, G * H] and, of T * B * H elements, LSTM's cell
  // states or GRU's recurrent candidate products; nothing but the outputs for simple RNNs.
  CheckedSize ReserveSpaceBytes() const;
  CheckedSize ForwardWorkspaceBytes(bool is_training) const;
  CheckedSize BackwardWorkspaceBytes() const;

  void Forward(const ForwardTensors<T>& tensors, bool is_training, int64_t dropout_call,
               ParallelRunner* runner) const;
  void Backward(const BackwardTensors<T>& tensors, int64_t dropout_call,
                ParallelRunner* runner) const;

 private:
  struct ReserveSpace;
  struct ForwardWorkspace;
  struct BackwardWorkspace;
  struct ForwardLayer;
  struct BackwardLayer;

  // A panel of units, for some rows of the batch and one direction, at one step.
  struct StepItem {
    int64_t direction;
    int64_t first_row;
    int64_t end_row;
    int64_t panel;
    int64_t column;   // its first unit
    int64_t columns;  // its units
    int64_t state;    // offset of this layer's and direction's [B, H] in the states
    int64_t step;     // counted in the direction's own order; -1 is before the first
    int64_t time;     // where the step, and its neighbours, are in the sequence
    int64_t previous_time;
    int64_t next_time;
  };
  StepItem ItemOf(int64_t layer, int64_t step, int64_t index) const;

  void DescribeReserveSpace(int64_t layer, Arena* arena, ReserveSpace* reserve) const;
  void DescribeForwardWorkspace(bool is_training, Arena* arena, ForwardWorkspace* workspace) const;
  void DescribeBackwardWorkspace(Arena* arena, BackwardWorkspace* workspace) const;
  ReserveSpace ReserveOf(int64_t layer, void* reserve_space) const;

  // Elements of the largest operand that a layer packs for a product with its inputs or weights.
  CheckedSize PackedElements(int64_t columns, CheckedSize depth) const;

  // Forward, in order: gates = W x + biases; the steps.
  void ComputeInputProducts(const ForwardLayer& layer, int64_t direction,
                            ParallelRunner* runner) const;
  void PackRecurrentWeights(int64_t layer, bool transposed, const T* params, T* packed,
                            ParallelRunner* runner) const;
  void RunForwardSteps(const ForwardLayer& layer, ParallelRunner* runner) const;
  void RunForwardItem(const ForwardLayer& layer, const StepItem& item) const;
  // Sets the cell's pointers for the rows from `row` on.
  void PointForwardCell(const ForwardLayer& layer, const StepItem& item, int64_t row,
                        ForwardCell<T>* cell) const;

  // Backward, in order: the steps; gradients of weights and biases; gradient of the input.
  void RunBackwardSteps(const BackwardLayer& layer, ParallelRunner* runner) const;
  void RunBackwardItem(const BackwardLayer& layer, const StepItem& item) const;
  void PointBackwardCell(const BackwardLayer& layer, const StepItem& item, int64_t row,
                         BackwardCell<T>* cell) const;
  void ComputeWeightGradients(const BackwardLayer& layer, int64_t direction,
                              ParallelRunner* runner) const;
  void ComputeBiasGradients(const BackwardLayer& layer, int64_t direction,
                            ParallelRunner* runner) const;
  void ComputeInputGradient(const BackwardLayer& layer, ParallelRunner* runner) const;

  void CopyStates(const T* source, T* target) const;

  int64_t NumStepItems() const;
  int64_t StepItemCost() const;

  // The time at which a direction computes its step-th state.
  int64_t TimeOf(int64_t direction, int64_t step) const {
    return direction == 0 ? step : num_steps_ - 1 - step;
  }
  // The item's panel of one gate's packed recurrent matrix.
  const T* PackedGate(const T* packed, const StepItem& item, int64_t gate) const;
  // Elements of a packed recurrent matrix of one gate.
  int64_t packed_gate_size() const { return unit_panels_.padded_columns() * units_; }
  // Where the gradient of the recurrent product of a gate lies: [T, B, ...] with this row stride.
  StridedMatrix<T> RecurrentGateGradient(const BackwardLayer& layer, int64_t direction,
                                         int64_t gate) const;

  const RnnConfig config_;
  const ParamLayout layout_;
  const Kernels<T>& kernels_;
  const CellKernels<T>& cell_;
  const PanelShape<T> unit_panels_;
  const int64_t num_steps_;     // T
  const int64_t batch_size_;    // B
  const int64_t units_;         // H
  const int64_t gates_;         // G
  const int64_t gate_width_;    // G * H
  const int64_t directions_;    // D
  const int64_t output_width_;  // D * H
  const int64_t state_size_;    // B * H
  const int64_t rows_;          // T * B
  const int64_t row_blocks_;    // blocks of kStepRows rows that the batch makes
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_H_
