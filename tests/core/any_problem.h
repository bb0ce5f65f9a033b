// Any small model and data, from a source of numbers: a fuzzer's bytes or a random generator.
#ifndef CUDNN_RNN_TESTS_CORE_ANY_PROBLEM_H_
#define CUDNN_RNN_TESTS_CORE_ANY_PROBLEM_H_

#include <cstdint>

#include "tests/core/problem.h"

namespace cudnn_rnn {

struct ProblemSizes {
  int64_t max_units;  // and largest input_size
  int64_t min_steps, max_steps;
  int64_t min_batch, max_batch;
};

// Returns a valid model of any mode, input mode, direction and data type, with or without a
// projection, dropout and sequence lengths. `Source` has Choice(count), a number in [0, count), and
// Flag().
template <typename Source>
Problem AnyProblem(const ProblemSizes& sizes, Source* source) {
  const auto number = [source](int64_t first, int64_t last) {
    return first + source->Choice(last - first + 1);
  };
  Problem problem;
  RnnConfig& config = problem.config;
  config.mode = static_cast<RnnMode>(source->Choice(4));
  config.input_mode = static_cast<InputMode>(source->Choice(3));
  config.direction = static_cast<Direction>(source->Choice(2));
  config.data_type = static_cast<DataType>(source->Choice(4));
  if (config.data_type == DataType::kFloat) {
    config.precision = static_cast<Precision>(source->Choice(4));
  }
  config.num_layers = number(1, 3);
  config.num_units = number(1, sizes.max_units);
  config.input_size =
      config.input_mode == InputMode::kSkip ? config.num_units : number(1, sizes.max_units);
  if (config.has_cell_state() && config.num_units > 1 && source->Flag()) {
    config.num_proj = number(1, config.num_units - 1);
  }
  config.dropout = source->Flag() ? 0.25f : 0.0f;
  config.seed = source->Choice(100);
  problem.shape.num_steps = number(sizes.min_steps, sizes.max_steps);
  problem.shape.batch_size = number(sizes.min_batch, sizes.max_batch);
  problem.shape.time_major = source->Flag();
  if (source->Flag()) {
    for (int64_t b = 0; b < problem.shape.batch_size; ++b) {
      problem.lengths.push_back(static_cast<int32_t>(number(0, problem.shape.num_steps)));
    }
  }
  return problem;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_ANY_PROBLEM_H_
