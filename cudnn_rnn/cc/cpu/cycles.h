// Rough costs of work in processor cycles, which determine how work is divided.
#ifndef CUDNN_RNN_CC_CPU_CYCLES_H_
#define CUDNN_RNN_CC_CPU_CYCLES_H_

#include <algorithm>
#include <cstdint>

namespace cudnn_rnn {

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

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_CYCLES_H_
