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

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_CYCLES_H_
