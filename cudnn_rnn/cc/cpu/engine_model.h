// Forward and backward of a stack of recurrent layers on a CPU, in one real type.
//
// Works on packed sequences: a buffer of N rows has one row per step of each sequence, and states
// have their sequences in packed order (see packed_sequences.h).
//
// Runs on a team (see team.h): every member calls RunForward (forward_pass.h) or RunBackward
// (backward_pass.h). The input products of a layer, for all steps, are one large matrix product.
// Each step is then one phase of the team over (direction, vector of units): the recurrent product
// of all gates of these units and, while the product is in cache, the cell's arithmetic. A member
// has the same vectors in every step, so their weights stay in its cache. A projection is a second
// phase, over vectors of the projected width. Backward runs the steps in reverse; the gradients of
// weights and inputs are large products over all steps. schedule.h decides when the engine deviates
// from this: for single steps of few sequences, and for layers whose steps are too small to be
// shared.
//
// The order of every sum is fixed, so results do not depend on the number of threads.
//
// This file declares what the passes share: the tensors of a call, and a model with its sizes,
// kernels and schedule.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_MODEL_H_
#define CUDNN_RNN_CC_CPU_ENGINE_MODEL_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "cudnn_rnn/cc/cpu/schedule.h"
#include "cudnn_rnn/cc/cpu/steps.h"

namespace cudnn_rnn {

// The parameters (see param_layout.h).
template <typename T>
struct ParamTensors {
  const T* weights;  // null if the next are given
  const uint16_t*
      bfloat16_weights;  // of the caller; for kernels that round and pack whole matrices
  const T* biases;       // from the first bias on
};

// The buffers of rnn_plan.h in the engine's real type, time-major, with N packed rows in place of
// T * B.
template <typename T>
struct ForwardTensors {
  const T* input;
  const T* input_h;
  const T* input_c;
  ParamTensors<T> params;
  T* output;
  T* output_h;
  T* output_c;
  void* reserve_space;
  void* workspace;
  void* packed_weights;  // for a PackedWeights (workspace.h), or null
  bool packed_weights_are_ready;
};

template <typename T>
struct BackwardTensors {
  const T* input;
  const T* input_h;
  const T* input_c;
  ParamTensors<T> params;
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
struct EngineModel {
  EngineModel(const RnnConfig& config, const ParamLayout& layout, const SequenceShape& shape,
              const Kernels<T>& kernels);

  // Returns the elements of the panels of an operand [depth, columns].
  CheckedSize PanelElements(CheckedSize depth, int64_t columns) const {
    return PanelSize(kernels, depth) * NumPanels(kernels, columns);
  }
  // Return the elements of one direction's panels of R and of the projection. Forward steps
  // multiply by R^T of each gate [P, H] and the projection's transpose [H, P]; gradients by R of
  // all gates together [G * H, P] and the projection [P, H].
  CheckedSize RecurrentPanelElements(bool for_gradients) const {
    return for_gradients ? PanelElements(gate_width, output_size)
                         : PanelElements(output_size, units) * gates;
  }
  CheckedSize ProjectionPanelElements(bool for_gradients) const {
    return for_gradients ? PanelElements(output_size, units) : PanelElements(units, output_size);
  }
  // Pack these operands for all directions; `recurrent` and `projection` are indexed by direction.
  void PackStepWeights(int64_t layer, bool for_gradients, const ParamTensors<T>& params,
                       T* const* recurrent, T* const* projection, TeamMember* member) const;
  // Returns the biases of W, which those of R follow.
  const T* InputBiases(const ParamTensors<T>& params, int64_t layer, int64_t direction) const {
    return params.biases + (layout.InputBiases(layer, direction) - layout.first_bias());
  }
  // Packs the right-hand operand [depth, columns] whose first element is at `offset`.
  void PackWeights(const ParamTensors<T>& params, int64_t offset, int64_t row_stride,
                   int64_t column_stride, int64_t depth, int64_t columns, T* panels,
                   TeamMember* member) const;

  // Rounds [rows, columns], a part of a step's result, into `target` from an element on, for
  // products with it; only if the kernels round.
  void RoundPart(const StridedMatrix<T>& source, int64_t rows, int64_t columns,
                 const RoundedMatrix& target, int64_t target_row, int64_t target_column) const {
    if (!kernels.rounds()) return;
    kernels.round_rows(source, rows, columns, columns, target.At(target_row, target_column));
  }

  // Returns whether matrices of bfloat16 values are packed as they are.
  bool PacksBfloat16(bool is_forward) const {
    return kernels.rounds() && config.data_type == DataType::kBfloat16 &&
           (!is_forward || schedule.recurrent_weights.value == Packing::kWhole);
  }

  // Returns the largest number of columns of W in any layer.
  int64_t WidestInput() const;
  // Returns the row of a direction's first state in the buffers of states.
  int64_t FirstState(int64_t layer, int64_t direction) const {
    return (layer * directions + direction) * shape.batch_size;
  }
  // Returns the number of leading gates whose recurrent and input products have the same gradients.
  int64_t shared_gates() const {
    return config.mode == RnnMode::kGru ? int64_t{kGruCandidate} : gates;
  }

  // Returns h' [rows, P] of the tile's direction, starting at `row`. The view is valid only for
  // rows on the same side of the step's previous_rows as `row`.
  StridedMatrix<T> PreviousOutput(const T* input_h, const T* output, int64_t layer,
                                  const StepTile& tile, int64_t row) const {
    if (row >= tile.step->previous_rows) {
      return {input_h + (FirstState(layer, tile.direction) + row) * output_size, output_size, 1};
    }
    const int64_t previous = tile.step->previous_first + row;
    return {output + previous * output_width + tile.direction * output_size, output_width, 1};
  }

  PassSchedule ScheduleOf(Pass pass, const PackedSequences& sequences,
                          const TeamMember& member) const {
    return MakePassSchedule(schedule, config, shape, kernels, pass,
                            {sequences.num_steps(), sequences.num_rows()},
                            {member.team_size(), member.min_cycles_to_wait()});
  }
  // Returns the number of steps whose input products a forward pass computes at a time.
  int64_t StepsPerBlock(Pass pass) const {
    return GateStorage(config, pass).value == Storage::kWorkspace ? schedule.steps_per_block.value
                                                                  : shape.num_steps;
  }
  int64_t StepCost(int64_t depth) const {
    return StepCycles(kernels.lanes, shape.batch_size, units, depth);
  }
  // Returns the cost of a block of steps of one layer; the input products cost about as much as the
  // steps.
  int64_t BlockCost(int64_t num_steps, int64_t num_blocks) const {
    return Cycles(2.0 * static_cast<double>(StepCost(gates * output_size)) *
                  static_cast<double>(num_steps / num_blocks));
  }

  // Returns the most threads that a forward or backward pass can use: one more would have no part
  // of a step, and would save fewer cycles of the large products than it costs to wake it.
  // `pass_cost` is that of the pass, in cycles.
  int64_t UsefulThreads(bool is_backward, int64_t pass_cost, int64_t cycles_to_wake) const;

  // Copies h and, if there is one, c of all layers.
  void CopyStates(const T* h, const T* c, T* target_h, T* target_c) const;

  const RnnConfig config;
  const ParamLayout layout;
  const SequenceShape shape;
  const Kernels<T>& kernels;
  const CellKernels<T>& cell;
  const Schedule schedule;
  const CheckedSize max_rows = CheckedSize(shape.num_steps) * shape.batch_size;  // T * B
  const int64_t units = config.num_units;                                        // H
  const int64_t output_size = config.output_size();       // P, which is H without a projection
  const int64_t gates = config.num_gates();               // G
  const int64_t gate_width = gates * units;               // G * H
  const int64_t gate_row_stride;                          // of buffers of gates [N, G * H]
  const int64_t directions = config.num_directions();     // D
  const int64_t output_width = directions * output_size;  // D * P
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_MODEL_H_
