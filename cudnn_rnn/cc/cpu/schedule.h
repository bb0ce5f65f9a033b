// Decides how the engine computes: which weights are packed, which layers run side by side, how
// steps are divided among threads, and where gates are stored.
//
// Every decision has a reason, and ExplainSchedule prints both. A workspace is allocated before
// threads and sequence lengths are known, so there are two stages: a Schedule belongs to a plan, a
// PassSchedule to one forward or backward pass. docs/engine_measurements.md has the measurements
// behind them.
#ifndef CUDNN_RNN_CC_CPU_SCHEDULE_H_
#define CUDNN_RNN_CC_CPU_SCHEDULE_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

// Costs of work are in processor cycles, roughly.

// Converts a cost to an integer. A cost is not the size of any buffer, so the checks of buffer
// sizes do not bound it. As a double it cannot overflow; the limit leaves room for small multiples
// in int64_t.
inline int64_t Cycles(double cycles) { return static_cast<int64_t>(std::min(cycles, 1e15)); }

// Returns the cost of one direction's step, with `depth` multiply-adds per row and column, at two
// vectors of multiply-adds per cycle and about 40 multiply-adds per unit for the activations. Fewer
// than four rows cost as much as four: then reading the weights from the L2 cache takes that long.
inline int64_t StepCycles(int64_t lanes, int64_t rows, int64_t columns, int64_t depth) {
  const double cycles_per_column =
      static_cast<double>(std::max<int64_t>(rows, 4)) * static_cast<double>(depth) +
      40.0 * static_cast<double>(rows);
  return Cycles(static_cast<double>(columns) * cycles_per_column / static_cast<double>(2 * lanes)) +
         1;
}

// How a product reads a matrix of weights.
enum class Packing {
  kWhole,   // packs the matrix into panels before its first use
  kByTile,  // packs one tile's columns at a time, uses them and discards them
  kNone,    // computes dot products with the matrix in place
};

// How the steps of a pass are divided among threads.
enum class Division {
  kTiles,       // all threads share each step; a barrier follows
  kDirections,  // one thread runs all steps of a direction, without barriers
  kRows,        // one thread runs all steps of a share of the sequences, without barriers
  kLayers,      // a wavefront: each thread runs a block of steps of another layer
};

enum class Storage { kWorkspace, kReserveSpace };

enum class Pass {
  kInference,
  kTraining,         // forward; the reserve space keeps what the gradient reads
  kBackward,         // leaves the reserve space unchanged
  kBackwardInPlace,  // may overwrite the reserve space
};

template <typename Value>
struct Decision {
  Value value;
  const char* reason;
};

struct Schedule {
  // In forward passes. Backward passes pack every matrix as a whole.
  Decision<Packing> input_weights;      // W
  Decision<Packing> recurrent_weights;  // R and the projection
  // The number of layers that have buffers of their own, so that they can run side by side.
  Decision<int64_t> concurrent_layers;
  // The number of steps whose input products are computed at a time, if the workspace holds the
  // gates.
  Decision<int64_t> steps_per_block;
  // Whether each tile of an inference step computes its own input products, in the L1 cache.
  Decision<bool> products_in_steps;
  bool HasProductsInSteps(Pass pass) const {
    return pass == Pass::kInference && products_in_steps.value;
  }
};

struct PassSchedule {
  Decision<Division> division;
  // Of the gates in a forward pass, and of their gradients in a backward pass.
  Decision<Storage> gates;
  int64_t num_blocks;  // of steps, per layer, for Division::kLayers
  int64_t row_groups;  // shares of a direction's sequences; 1 unless Division::kRows
};

// The lengths of a pass's sequences.
struct PassLengths {
  int64_t longest;
  int64_t sum;
};

// The threads of a pass. A phase that costs less than `min_cycles_to_wait` is not worth a barrier.
struct PassThreads {
  int64_t count;
  int64_t min_cycles_to_wait;
};

// Returns whether a call is one step of a decode loop: it has so few sequences that packing all
// weights takes longer than it saves. Kernels that round factors pack all weights, so only bfloat16
// models, whose weights need no conversion, use these kernels in a decode step.
inline bool IsDecodeStep(const SequenceShape& shape) {
  return shape.num_steps == 1 && shape.batch_size <= 32;
}

// Returns whether a step is limited by reading its weights. Kernels that read fewer bytes are
// faster then, even with more instructions. `kernels` have exact factors.
bool ReadingLimitsSteps(const RnnConfig& config, const SequenceShape& shape,
                        const KernelTraits& kernels);

Schedule MakeSchedule(const RnnConfig& config, const SequenceShape& shape,
                      const KernelTraits& kernels);

PassSchedule MakePassSchedule(const Schedule& schedule, const RnnConfig& config,
                              const SequenceShape& shape, const KernelTraits& kernels, Pass pass,
                              const PassLengths& lengths, const PassThreads& threads);

// Part of MakePassSchedule: the size of the workspace depends on it.
Decision<Storage> GateStorage(const RnnConfig& config, Pass pass);

// Returns a text with one line for each decision about sequences of full length.
std::string ExplainSchedule(const RnnConfig& config, const SequenceShape& shape,
                            const KernelTraits& kernels, bool is_training,
                            const PassThreads& threads);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_SCHEDULE_H_
