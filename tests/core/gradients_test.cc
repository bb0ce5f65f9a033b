// Compares gradients of the CPU plan: double with finite differences, other types with double.

#include <algorithm>
#include <string>
#include <vector>

#include "tests/core/derivatives.h"
#include "tests/core/plan_runner.h"
#include "tests/core/problem_cases.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

// Compares the gradients of some elements of each tensor.
void CheckElements(const Problem& problem) {
  const Tensors tensors = Train(problem);
  for (const Argument& argument : kArguments) {
    const size_t size = (tensors.*argument.values).size();
    for (size_t i = 0; i < size; i += std::max<size_t>(1, size / 23)) {
      Vector direction(size, 0.0);
      direction[i] = 1;
      CheckDerivative(problem, tensors, {{argument, direction}},
                      Concatenate(argument.name, "[", i, "]"));
    }
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
      if (!testing::IsInSample(index++)) continue;
      const Tensors tensors = Train(problem);
      for (const Move& move : RandomMoves(tensors)) {
        CheckDerivative(problem, tensors, {move},
                        Concatenate(move.argument.name, " in a direction"));
      }
    }
  }
}

// In the 16-bit types, the backward pass reads rounded outputs.
TEST(GradientsAgreeWithThoseOfDouble) {
  SerialRunner runner;
  struct Case {
    DataType data_type;
    Precision precision;
    std::string instruction_set;
    double tolerance;
  };
  std::vector<Case> cases = {{DataType::kFloat, Precision::kDefault, "", 1e-5},
                             {DataType::kHalf, Precision::kDefault, "", 4e-3}};
  for (const std::string& instruction_set : InstructionSets()) {
    cases.push_back({DataType::kBfloat16, Precision::kDefault, instruction_set, 3e-2});
    if (!MultipliesBfloat16(instruction_set)) continue;  // float's kernels in every precision
    cases.push_back({DataType::kFloat, Precision::kHigh, instruction_set, 3e-4});
    cases.push_back({DataType::kFloat, Precision::kMedium, instruction_set, 3e-2});
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
      problem.config.precision = test.precision;
      Tensors found = MakeTensors(problem);
      Tensors expected = found;
      RunCpuPlan(problem, &runner, true, &found, test.instruction_set);
      problem.config.data_type = DataType::kDouble;
      RunCpuPlan(problem, &runner, true, &expected);
      for (const Argument& argument : kArguments) {
        ExpectClose(found.*argument.gradient, expected.*argument.gradient, test.tolerance,
                    Concatenate("d ", argument.name, " as ", Name(test.data_type), " in ",
                                Name(test.precision), " precision, ", test.instruction_set,
                                " instead of ", problem.Text()));
      }
    }
  }
}

}  // namespace
}  // namespace cudnn_rnn
