// Matrix products over packed operands (see kernels.h), shared by the members of a team.
#ifndef CUDNN_RNN_CC_CPU_GEMM_H_
#define CUDNN_RNN_CC_CPU_GEMM_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

// How many panels so many columns take.
template <typename T>
int64_t NumPanels(const Kernels<T>& kernels, int64_t columns) {
  return (columns + kernels.lanes - 1) / kernels.lanes;
}

// Packs an operand [depth, columns] to its panels, one after the other.
template <typename T>
void PackOperand(const Kernels<T>& kernels, const StridedMatrix<T>& source, int64_t depth,
                 int64_t columns, T* packed, TeamMember* member);

template <typename T>
struct MatrixProduct {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  StridedMatrix<T> a;  // [rows, depth]
  const T* b;          // packed [depth, columns]
  T* c;                // [rows, columns]
  int64_t c_row_stride;
  bool accumulate;
  const T* bias;  // [columns], or null
  // Where the depth is that of all steps and sequences: sums of short chains are added up, so that
  // the rounding error does not grow with the depth as that of one chain does. A little slower.
  bool has_long_sums;
};

// Rows of a block of Multiply, for which a tile of its panels is read once. Up to so many the
// engine has a tile's columns packed for themselves.
constexpr int64_t kMostRowsOfPackedTiles = 64;

// c (+)= bias + a b.
template <typename T>
void Multiply(const Kernels<T>& kernels, const MatrixProduct<T>& product, TeamMember* member);

// The same with an operand that is not packed.
template <typename T>
void MultiplyUnpacked(const Kernels<T>& kernels, const UnpackedProduct<T>& product,
                      TeamMember* member);

// The same where there are more rows, though at most one block of them: each tile's columns of the
// operand are packed, a block of their depth at a time, used while they are in the cache, and
// forgotten. Every bit as by Multiply.
template <typename T>
void MultiplyPackingTiles(const Kernels<T>& kernels, const UnpackedProduct<T>& product,
                          TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_GEMM_H_
