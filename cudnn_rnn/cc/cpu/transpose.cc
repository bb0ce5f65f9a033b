#include "cudnn_rnn/cc/cpu/transpose.h"

#include <algorithm>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {
namespace {

// A work item transposes this many columns: it reads 256 bytes at a time of each row of floats, and
// writes to 64 rows, so the lines that it has begun to fill and their pages stay in the L1 caches.
constexpr int64_t kItemColumns = 64;
// Approximate processor cycles per element.
constexpr int64_t kElementCost = 1;

// A panel of a product's right-hand operand is the transpose of `lanes` of the source's rows.
template <typename T>
void TransposeColumns(const Kernels<T>& kernels, const Transposition<T>& all, int64_t begin,
                      int64_t end) {
  alignas(64) T panel[kItemColumns * kMaxLanes];
  for (int64_t row = 0; row < all.rows; row += kernels.lanes) {
    const int64_t rows = std::min(kernels.lanes, all.rows - row);
    const T* source = all.source + row * all.source_stride + begin;
    kernels.pack_panel({source, 1, all.source_stride}, end - begin, rows, panel);
    for (int64_t column = begin; column < end; ++column) {
      std::copy_n(panel + (column - begin) * kernels.lanes, rows,
                  all.target + column * all.target_stride + row);
    }
  }
}

int64_t NumItems(int64_t columns) { return (columns + kItemColumns - 1) / kItemColumns; }

}  // namespace

template <typename T>
Status TransposeMatrices(const std::vector<Transposition<T>>& transpositions,
                         const std::string& instruction_set, ParallelRunner* runner) {
  const Kernels<T>* kernels;
  CUDNN_RNN_RETURN_IF_ERROR(ChooseKernels<T>(instruction_set, FactorFormat::kExact, &kernels));
  int64_t num_elements = 0;
  for (const Transposition<T>& one : transpositions) num_elements += one.rows * one.columns;
  RunTeam(runner, num_elements * kElementCost, [&](TeamMember* member) {
    for (const Transposition<T>& one : transpositions) {
      const int64_t cost = one.rows * kItemColumns * kElementCost;
      member->ForEach(NumItems(one.columns), cost, [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
          TransposeColumns(*kernels, one, item * kItemColumns,
                           std::min((item + 1) * kItemColumns, one.columns));
        }
      });
    }
  });
  return Status();
}

template Status TransposeMatrices(const std::vector<Transposition<float>>&, const std::string&,
                                  ParallelRunner*);
template Status TransposeMatrices(const std::vector<Transposition<double>>&, const std::string&,
                                  ParallelRunner*);

}  // namespace cudnn_rnn
