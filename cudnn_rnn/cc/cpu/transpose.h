// Transposes matrices, shared by the members of a team.
#ifndef CUDNN_RNN_CC_CPU_TRANSPOSE_H_
#define CUDNN_RNN_CC_CPU_TRANSPOSE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// target[column * target_stride + row] = source[row * source_stride + column], for row < rows and
// column < columns. Source and target must not overlap.
template <typename T>
struct Transposition {
  const T* source;
  int64_t source_stride;
  T* target;
  int64_t target_stride;
  int64_t rows;
  int64_t columns;
};

// `instruction_set` is a name that ChooseKernels accepts, or empty for its default.
template <typename T>
Status TransposeMatrices(const std::vector<Transposition<T>>& transpositions,
                         const std::string& instruction_set, ParallelRunner* runner);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_TRANSPOSE_H_
