// Random models and shapes of data for trials.
#ifndef CUDNN_RNN_TESTS_TRIALS_RANDOM_PROBLEMS_H_
#define CUDNN_RNN_TESTS_TRIALS_RANDOM_PROBLEMS_H_

#include <cstdint>
#include <random>

#include "tests/core/problem.h"

namespace cudnn_rnn {

// Returns a number in [first, last].
inline int64_t RandomIn(int64_t first, int64_t last, std::mt19937* random) {
  return std::uniform_int_distribution<int64_t>(first, last)(*random);
}

// Returns a model of any mode, input mode, direction and data type, with or without a projection,
// dropout and sequence lengths.
inline Problem RandomProblem(std::mt19937* random) {
  Problem problem;
  RnnConfig& config = problem.config;
  config.mode = static_cast<RnnMode>(RandomIn(0, 3, random));
  config.input_mode = static_cast<InputMode>(RandomIn(0, 2, random));
  config.direction = static_cast<Direction>(RandomIn(0, 1, random));
  config.data_type = static_cast<DataType>(RandomIn(0, 3, random));
  config.num_layers = RandomIn(1, 3, random);
  config.num_units = RandomIn(1, 40, random);
  config.input_size =
      config.input_mode == InputMode::kSkip ? config.num_units : RandomIn(1, 40, random);
  if (config.has_cell_state() && config.num_units > 1 && RandomIn(0, 1, random) == 1) {
    config.num_proj = RandomIn(1, config.num_units - 1, random);
  }
  config.dropout = RandomIn(0, 1, random) == 1 ? 0.25f : 0.0f;
  config.seed = RandomIn(0, 1000, random);
  problem.shape.num_steps = RandomIn(1, 6, random);
  problem.shape.batch_size = RandomIn(1, 20, random);
  problem.shape.time_major = RandomIn(0, 1, random) == 1;
  if (RandomIn(0, 1, random) == 1) {
    for (int64_t b = 0; b < problem.shape.batch_size; ++b) {
      problem.lengths.push_back(static_cast<int32_t>(RandomIn(0, problem.shape.num_steps, random)));
    }
  }
  return problem;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_TRIALS_RANDOM_PROBLEMS_H_
