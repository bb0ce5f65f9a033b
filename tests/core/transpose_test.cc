// Tests transpositions in all instruction sets of this processor.

#include "cudnn_rnn/cc/cpu/transpose.h"

#include <numeric>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/cpu/kernels.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

// The elements between the rows, which no transposition may read or change.
constexpr int64_t kGap = 3;

// Transposes a matrix and checks every element, and those between the rows.
template <typename T>
void CheckTransposition(const std::string& instruction_set, int64_t rows, int64_t columns,
                        ParallelRunner* runner) {
  std::vector<T> source(static_cast<size_t>(rows * (columns + kGap)));
  std::iota(source.begin(), source.end(), T(1));
  const int64_t stride = rows + kGap;
  std::vector<T> target(static_cast<size_t>(columns * stride), T(7));
  EXPECT(
      TransposeMatrices<T>({{source.data(), columns + kGap, target.data(), stride, rows, columns}},
                           instruction_set, runner)
          .ok());
  int64_t wrong = 0;
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < stride; ++row) {
      const T expected =
          row < rows ? source[static_cast<size_t>(row * (columns + kGap) + column)] : T(7);
      wrong += target[static_cast<size_t>(column * stride + row)] != expected;
    }
  }
  EXPECT(wrong == 0, instruction_set, " ", rows, "x", columns, ": ", wrong);
}

TEST(Transpositions) {
  ThreadRunner threads(3);
  for (const std::string& set : InstructionSets()) {
    for (int64_t rows : {0, 1, 5, 8, 16, 17, 40}) {
      for (int64_t columns : {0, 1, 7, 16, 63, 64, 65, 130}) {
        CheckTransposition<float>(set, rows, columns, &threads);
        CheckTransposition<double>(set, rows, columns, &threads);
      }
    }
  }
  ThreadRunner one(1);
  EXPECT_ERROR(TransposeMatrices<float>({}, "sse9", &one), "sse9");
}

}  // namespace
}  // namespace cudnn_rnn
