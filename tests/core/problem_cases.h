// Test cases for plans.
#ifndef CUDNN_RNN_TESTS_CORE_PROBLEM_CASES_H_
#define CUDNN_RNN_TESTS_CORE_PROBLEM_CASES_H_

#include <cstdint>
#include <vector>

#include "tests/core/problem.h"

namespace cudnn_rnn {

// Returns problems of every mode, direction and input mode, including LSTM with a projection, in
// shapes on both sides of the sizes at which work is split; time-major, with full lengths.
inline std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  struct Shape {
    int64_t layers, units, input, steps, batch;
  };
  const Shape shapes[] = {{1, 1, 1, 1, 1},   {1, 3, 5, 4, 2},   {2, 5, 3, 2, 9},
                          {3, 17, 4, 5, 3},  {2, 33, 33, 3, 1}, {1, 50, 7, 6, 35},
                          {2, 37, 19, 1, 6}, {1, 21, 9, 1, 34}, {1, 21, 9, 1, 12}};
  struct Cell {
    RnnMode mode;
    bool has_projection;
  };
  const Cell cells[] = {{RnnMode::kRelu, false},
                        {RnnMode::kTanh, false},
                        {RnnMode::kLstm, false},
                        {RnnMode::kGru, false},
                        {RnnMode::kLstm, true}};
  for (const Cell& cell : cells) {
    for (Direction direction : {Direction::kUnidirectional, Direction::kBidirectional}) {
      for (InputMode input_mode : {InputMode::kLinear, InputMode::kSkip, InputMode::kAuto}) {
        for (const Shape& shape : shapes) {
          if (cell.has_projection && shape.units == 1) continue;
          const int64_t input = input_mode == InputMode::kSkip ? shape.units : shape.input;
          const int64_t num_proj = cell.has_projection ? shape.units * 2 / 3 : 0;
          const RnnConfig config = {cell.mode,    input_mode,  direction, DataType::kFloat,
                                    shape.layers, shape.units, input,     num_proj};
          problems.push_back({config, {shape.steps, shape.batch}, {}});
        }
      }
    }
  }
  return problems;
}

// Returns lengths for a shape: none given, all full, mixed in 1..T, mixed in 0..T with a zero
// first, all below T, all zero.
inline std::vector<std::vector<int32_t>> AllLengths(const SequenceShape& shape) {
  const int32_t steps = static_cast<int32_t>(shape.num_steps);
  const size_t batch = static_cast<size_t>(shape.batch_size);
  std::vector<int32_t> full(batch, steps), mixed(batch), with_zeros(batch), below(batch);
  for (size_t b = 0; b < batch; ++b) {
    const int32_t scattered = static_cast<int32_t>(b * b * 7 + b * 3);
    mixed[b] = steps - scattered % steps;
    with_zeros[b] = scattered % (steps + 1);
    below[b] = (scattered + steps - 1) % steps;
  }
  return {{}, full, mixed, with_zeros, below, std::vector<int32_t>(batch, 0)};
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_PROBLEM_CASES_H_
