// Matrix products over panels and row-major operands (see kernels.h), shared by the members of a
// team.
#ifndef CUDNN_RNN_CC_CPU_GEMM_H_
#define CUDNN_RNN_CC_CPU_GEMM_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

// Packs a right-hand operand [depth, columns] into consecutive panels. Source is T or, for kernels
// that round and values that are bfloat16 already, uint16_t.
template <typename T, typename Source>
void PackPanels(const Kernels<T>& kernels, const StridedMatrix<Source>& source, int64_t depth,
                int64_t columns, T* panels, TeamMember* member);

template <typename T>
struct MatrixProduct {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  StridedMatrix<T> a;  // [rows, depth]
  const T* b;          // panels of [depth, columns]
  T* c;                // [rows, columns]
  int64_t c_row_stride;
  bool accumulate = false;
  const T* bias = nullptr;  // [columns], or null
  // For depths that span all steps and sequences: sums are split into short chains, so that the
  // rounding error does not grow with the depth as that of a single chain does. Slightly slower.
  bool has_long_sums = false;
  RoundedMatrix rounded_a = {};  // replaces `a` unless null; only for kernels that round
};

// Rows per block of Multiply; each tile's panels are read once per block. Up to this many rows, the
// engine packs one tile's columns at a time (MultiplyPackingTiles).
constexpr int64_t kMaxRowsOfPackedTiles = 64;
// Panels per item of Multiply. Every item rounds its rows of `a`.
constexpr int64_t kItemPanels = 48;

// Computes c (+)= bias + a b.
template <typename T>
void Multiply(const Kernels<T>& kernels, const MatrixProduct<T>& product, TeamMember* member);

// Computes c (+)= bias + a b^T for up to one block of rows, with kernels that do not round: packs
// each tile's columns of the operand, one k-block at a time, uses them while they are in the cache,
// and discards them. If the product has panels, uses these. Results are bit-identical to those of
// Multiply.
template <typename T>
void MultiplyPackingTiles(const Kernels<T>& kernels, const RowMajorProduct<T>& product,
                          TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_GEMM_H_
