// Dropout between layers.
//
// The pattern is a pure function of (seeds, call, layer, element), computed with the counter-based
// generator Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", 2011). The backward pass recomputes it, so nothing is stored, and it does not depend on
// the number of threads.
#ifndef CUDNN_RNN_CC_CPU_DROPOUT_H_
#define CUDNN_RNN_CC_CPU_DROPOUT_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/team.h"

namespace cudnn_rnn {

struct DropoutPattern {
  float dropout;
  int64_t seed;
  int64_t seed2;
  int64_t call;
  int64_t layer;
};

// Computes target[i] = keep(i) ? source[i] / (1 - dropout) : 0 for the elements of rows [first_row,
// end_row) of `width` elements. Row i uses the pattern of row positions[i], or of row i if
// `positions` is null. `target` may be `source`. With dropout 1 every result is 0.
template <typename T>
void ApplyDropoutToRows(const DropoutPattern& pattern, const int64_t* positions, int64_t first_row,
                        int64_t end_row, int64_t width, const T* source, T* target,
                        TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_DROPOUT_H_
