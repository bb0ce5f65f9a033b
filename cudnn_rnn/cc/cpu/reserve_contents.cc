#include "cudnn_rnn/cc/cpu/reserve_contents.h"

#include <algorithm>
#include <vector>

#include "cudnn_rnn/cc/core/arena.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {
namespace {

// Rearranges about this many elements per cycle.
constexpr int64_t kElementsPerCycle = 2;

// Returns the buffers of all layers, in the order of the memory.
template <typename T>
std::vector<KeptMatrix<T>> MatricesOf(const EngineModel<T>& model, void* reserve_space) {
  std::vector<KeptMatrix<T>> matrices;
  for (int64_t l = 0; l < model.config.num_layers; ++l) {
    const ReserveSpace<T> layer = ReserveSpaceOf(model, l, reserve_space);
    const std::vector<KeptMatrix<T>> more = layer.Matrices(model);
    matrices.insert(matrices.end(), more.begin(), more.end());
  }
  return matrices;
}

template <typename T>
int64_t RowCost(const std::vector<KeptMatrix<T>>& matrices) {
  int64_t elements = 0;
  for (const KeptMatrix<T>& matrix : matrices) elements += matrix.row_stride;
  return elements / kElementsPerCycle + 1;
}

// Calls function(first, count) for adjacent elements that together are all elements of the rows.
template <typename T, typename Function>
void ForElements(const KeptMatrix<T>& matrix, int64_t begin, int64_t end,
                 const Function& function) {
  if (matrix.width == matrix.row_stride) {
    function(begin * matrix.width, (end - begin) * matrix.width);
    return;
  }
  for (int64_t row = begin; row < end; ++row) function(row * matrix.row_stride, matrix.width);
}

}  // namespace

template <typename T>
void FinishReserveSpace(const EngineModel<T>& model, int64_t num_rows, Rearrangement<T> rearrange,
                        void* reserve_space, TeamMember* member) {
  const std::vector<KeptMatrix<T>> matrices = MatricesOf(model, reserve_space);
  const int64_t max_rows = model.max_rows.value();
  const auto finish_rows = [&](const KeptMatrix<T>& matrix, int64_t begin, int64_t end) {
    if (rearrange != nullptr) {
      ForElements(matrix, begin, end, [&](int64_t first, int64_t count) {
        rearrange(matrix.data + first, count, matrix.data + first);
      });
    }
    const int64_t gap = matrix.row_stride - matrix.width;
    for (int64_t row = begin; row < end && gap > 0; ++row) {
      std::fill_n(matrix.data + row * matrix.row_stride + matrix.width, gap, T(0));
    }
  };
  const auto clear_rows = [&](const KeptMatrix<T>& matrix, int64_t begin, int64_t end) {
    const int64_t end_element =
        end > max_rows ? max_rows * matrix.row_stride + matrix.end_gap : end * matrix.row_stride;
    std::fill(matrix.data + begin * matrix.row_stride, matrix.data + end_element, T(0));
  };
  // Each member finishes a part of the written rows, then clears a part of the others.
  const bool has_row_gaps =
      std::any_of(matrices.begin(), matrices.end(),
                  [](const KeptMatrix<T>& matrix) { return matrix.row_stride > matrix.width; });
  if (rearrange != nullptr || has_row_gaps) {
    member->ForEach(num_rows, RowCost(matrices), [&](int64_t begin, int64_t end) {
      for (const KeptMatrix<T>& matrix : matrices) finish_rows(matrix, begin, end);
    });
  }
  // One item more than rows, for the gaps after the last row.
  member->ForEach(max_rows - num_rows + 1, RowCost(matrices), [&](int64_t begin, int64_t end) {
    for (const KeptMatrix<T>& matrix : matrices) {
      clear_rows(matrix, num_rows + begin, num_rows + end);
    }
  });
}

template <typename T>
void RestoreReserveSpace(const EngineModel<T>& model, int64_t num_rows, Rearrangement<T> rearrange,
                         void* reserve_space, void* target, TeamMember* member) {
  const std::vector<KeptMatrix<T>> sources = MatricesOf(model, reserve_space);
  const std::vector<KeptMatrix<T>> targets = MatricesOf(model, target);
  const auto restore = [&](int64_t begin, int64_t end) {
    for (size_t i = 0; i < sources.size(); ++i) {
      ForElements(sources[i], begin, end, [&](int64_t first, int64_t count) {
        rearrange(sources[i].data + first, count, targets[i].data + first);
      });
    }
  };
  member->ForEach(num_rows, RowCost(sources), restore);
}

template void FinishReserveSpace(const EngineModel<float>&, int64_t, Rearrangement<float>, void*,
                                 TeamMember*);
template void FinishReserveSpace(const EngineModel<double>&, int64_t, Rearrangement<double>, void*,
                                 TeamMember*);
template void RestoreReserveSpace(const EngineModel<float>&, int64_t, Rearrangement<float>, void*,
                                  void*, TeamMember*);
template void RestoreReserveSpace(const EngineModel<double>&, int64_t, Rearrangement<double>, void*,
                                  void*, TeamMember*);

}  // namespace cudnn_rnn
