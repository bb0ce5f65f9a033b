// Compares gradients of the CPU plan: double with finite differences, other types with double.

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "tests/core/plan_runner.h"
#include "tests/core/problem_cases.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

double WeightedSum(const Tensors& tensors) {
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

constexpr double kDelta = 1e-6;
constexpr double kTolerance = 5e-6;

// Compares the derivative of the weighted sum in a direction of an argument with a central
// difference of the plan itself, so that dropout, whose pattern repeats, can be on. `tensors` are
// those of a training call.
void CheckDerivative(const Problem& problem, const Tensors& tensors, const Argument& argument,
                     const Vector& direction, const std::string& what) {
  SerialRunner runner;
  const Vector& values = tensors.*argument.values;
  double expected = 0, sums[2];
  for (size_t i = 0; i < values.size(); ++i) {
    expected += direction[i] * (tensors.*argument.gradient)[i];
  }
  for (int side : {0, 1}) {
    Tensors moved = tensors;
    const double delta = side == 0 ? kDelta : -kDelta;
    for (size_t i = 0; i < values.size(); ++i) {
      (moved.*argument.values)[i] = values[i] + delta * direction[i];
    }
    RunCpuPlan(problem, &runner, /*is_training=*/true, &moved);
    sums[side] = WeightedSum(moved);
  }
  const double numeric = (sums[0] - sums[1]) / (2 * kDelta);
  EXPECT(std::abs(numeric - expected) < kTolerance * std::max(1.0, std::abs(numeric)), "d ",
         argument.name, what, " is ", expected, ", not ", numeric, " in ", problem.Text());
}

Tensors Train(const Problem& problem) {
  SerialRunner runner;
  Tensors tensors = MakeTensors(problem);
  RunCpuPlan(problem, &runner, /*is_training=*/true, &tensors);
  return tensors;
}

// Compares the gradients of some elements of each tensor.
void CheckElements(const Problem& problem) {
  const Tensors tensors = Train(problem);
  for (const Argument& argument : kArguments) {
    const size_t size = (tensors.*argument.values).size();
    for (size_t i = 0; i < size; i += std::max<size_t>(1, size / 23)) {
      Vector direction(size, 0.0);
      direction[i] = 1;
      CheckDerivative(problem, tensors, argument, direction, Concatenate("[", i, "]"));
    }
  }
}

// Compares the derivative of each tensor in one random direction, which involves all elements.
void CheckDirections(const Problem& problem) {
  const Tensors tensors = Train(problem);
  std::mt19937 generator(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const Argument& argument : kArguments) {
    Vector direction((tensors.*argument.values).size());
    for (double& value : direction) value = uniform(generator);
    CheckDerivative(problem, tensors, argument, direction, " in a direction");
  }
}

void SetDropout(Problem* problem) {
  problem->config.dropout = problem->config.num_layers > 1 ? 0.4f : 0.0f;
  problem->config.seed = 3;
}

TEST(GradientsAgreeWithDifferences) {
  int64_t index = 0;
  for (Problem problem : Problems()) {
    if (problem.config.num_units > 20 || !testing::IsInSample(index++)) continue;
    problem.config.data_type = DataType::kDouble;
    SetDropout(&problem);
    CheckElements(problem);
  }
}

TEST(GradientsAgreeWithDifferencesForAllLengths) {
  int64_t index = 0;
  for (Problem problem : Problems()) {
    problem.config.data_type = DataType::kDouble;
    SetDropout(&problem);
    for (const std::vector<int32_t>& lengths : AllLengths(problem.shape)) {
      problem.lengths = lengths;
      problem.shape.time_major = index % 2 != 0;
      if (testing::IsInSample(index++)) CheckDirections(problem);
    }
  }
}

// In the 16-bit types, the backward pass reads rounded outputs.
TEST(GradientsAgreeWithThoseOfDouble) {
  SerialRunner runner;
  struct Case {
    DataType data_type;
    std::string instruction_set;
    double tolerance;
  };
  std::vector<Case> cases = {{DataType::kFloat, "", 1e-5}, {DataType::kHalf, "", 4e-3}};
  for (const std::string& instruction_set : InstructionSets()) {
    cases.push_back({DataType::kBfloat16, instruction_set, 3e-2});
    if (instruction_set == "amx_bf16x3") cases.push_back({DataType::kFloat, instruction_set, 3e-4});
  }
  for (const Case& test : cases) {
    int64_t index = 0;
    for (Problem problem : Problems()) {
      // Rounded factors can move a sum across ReLU's kink: see bfloat16_test.cc.
      if (problem.config.mode == RnnMode::kRelu && MultipliesBfloat16(test.instruction_set))
        continue;
      SetDropout(&problem);
      problem.lengths = AllLengths(problem.shape)[index % 5];
      if (!testing::IsInSample(index++)) continue;
      problem.config.data_type = test.data_type;
      Tensors found = MakeTensors(problem);
      Tensors expected = found;
      RunCpuPlan(problem, &runner, true, &found, test.instruction_set);
      problem.config.data_type = DataType::kDouble;
      RunCpuPlan(problem, &runner, true, &expected);
      for (const Argument& argument : kArguments) {
        ExpectClose(found.*argument.gradient, expected.*argument.gradient, test.tolerance,
                    Concatenate("d ", argument.name, " as ", Name(test.data_type), " ",
                                test.instruction_set, " instead of ", problem.Text()));
      }
    }
  }
}

}  // namespace
}  // namespace cudnn_rnn
