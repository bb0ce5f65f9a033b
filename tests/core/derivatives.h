// Compares gradients of the CPU plan, in double, with finite differences.
#ifndef CUDNN_RNN_TESTS_CORE_DERIVATIVES_H_
#define CUDNN_RNN_TESTS_CORE_DERIVATIVES_H_

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/plan_runner.h"
#include "tests/core/problem.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {

inline double WeightedSum(const Tensors& tensors) {
  double sum = 0;
  const auto add = [&sum](const Vector& values, const Vector& weights) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isnan(weights[i])) sum += values[i] * weights[i];  // padding is NaN
    }
  };
  add(tensors.output, tensors.output_backprop);
  add(tensors.output_h, tensors.output_h_backprop);
  add(tensors.output_c, tensors.output_c_backprop);
  return sum;
}

struct Argument {
  const char* name;
  Vector Tensors::*values;
  Vector Tensors::*gradient;
};
constexpr Argument kArguments[] = {
    {"input", &Tensors::input, &Tensors::input_backprop},
    {"input_h", &Tensors::input_h, &Tensors::input_h_backprop},
    {"input_c", &Tensors::input_c, &Tensors::input_c_backprop},
    {"params", &Tensors::params, &Tensors::params_backprop},
};

// A direction in which to move an argument.
struct Move {
  Argument argument;
  Vector direction;
};

// Compares the derivative of the weighted sum for some moves at once with a central difference of
// the plan itself, so that dropout, whose pattern repeats, can be on. `tensors` are those of a
// training call.
inline void CheckDerivative(const Problem& problem, const Tensors& tensors,
                            const std::vector<Move>& moves, const std::string& what) {
  constexpr double kDelta = 1e-6, kTolerance = 5e-6;
  SerialRunner runner;
  double expected = 0, sums[2];
  for (const Move& move : moves) {
    for (size_t i = 0; i < move.direction.size(); ++i) {
      expected += move.direction[i] * (tensors.*move.argument.gradient)[i];
    }
  }
  for (int side : {0, 1}) {
    Tensors moved = tensors;
    const double delta = side == 0 ? kDelta : -kDelta;
    for (const Move& move : moves) {
      Vector& values = moved.*move.argument.values;
      for (size_t i = 0; i < values.size(); ++i) values[i] += delta * move.direction[i];
    }
    RunCpuPlan(problem, &runner, /*is_training=*/true, &moved);
    sums[side] = WeightedSum(moved);
  }
  const double numeric = (sums[0] - sums[1]) / (2 * kDelta);
  EXPECT(std::abs(numeric - expected) < kTolerance * std::max(1.0, std::abs(numeric)), "d ", what,
         " is ", expected, ", not ", numeric, " in ", problem.Text());
}

inline Tensors Train(const Problem& problem) {
  SerialRunner runner;
  Tensors tensors = MakeTensors(problem);
  RunCpuPlan(problem, &runner, /*is_training=*/true, &tensors);
  return tensors;
}

// Returns a random direction for each argument, which involves all elements.
inline std::vector<Move> RandomMoves(const Tensors& tensors) {
  std::mt19937 generator(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Move> moves;
  for (const Argument& argument : kArguments) {
    Vector direction((tensors.*argument.values).size());
    for (double& value : direction) value = uniform(generator);
    moves.push_back({argument, std::move(direction)});
  }
  return moves;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_DERIVATIVES_H_
