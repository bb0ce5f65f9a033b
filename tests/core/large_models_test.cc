// Models so large that the schedule decides otherwise than for those of problem_cases.h: results
// against the specification, gradients against finite differences.

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/cpu/schedule.h"
#include "tests/core/derivatives.h"
#include "tests/core/plan_runner.h"
#include "tests/core/problem_cases.h"
#include "tests/core/rnn_specification.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

// In double, an element has 8 bytes with every instruction set, so the decisions are the same.
struct LargeModel {
  RnnMode mode;
  Direction direction;
  int64_t num_layers, num_units, input_size, num_proj, num_steps, batch_size;
  bool is_in_blocks;  // whether inference computes the input products in blocks of steps
  Division division;  // of inference on four threads

  Problem MakeProblem() const {
    Problem problem;
    problem.config = {mode,       InputMode::kLinear, direction,  DataType::kDouble,
                      num_layers, num_units,          input_size, num_proj};
    problem.shape = {num_steps, batch_size};
    return problem;
  }
};

const std::vector<LargeModel>& LargeModels() {
  constexpr RnnMode kRelu = RnnMode::kRelu, kTanh = RnnMode::kTanh, kLstm = RnnMode::kLstm,
                    kGru = RnnMode::kGru;
  constexpr Direction kOne = Direction::kUnidirectional, kBoth = Direction::kBidirectional;
  constexpr Division kTiles = Division::kTiles, kRows = Division::kRows;
  static const std::vector<LargeModel> models = {
      // W of both directions, 2 * G * H * I * 8 bytes, is larger than 8 MiB. More than 64 rows.
      {kLstm, kBoth, 1, 260, 7, 0, 3, 22, false, kTiles},
      {kLstm, kBoth, 2, 260, 7, 0, 5, 14, false, kTiles},
      {kGru, kBoth, 1, 300, 7, 0, 3, 22, false, kTiles},
      {kTanh, kBoth, 1, 516, 7, 0, 3, 22, false, kTiles},
      {kRelu, kBoth, 1, 40, 13200, 0, 3, 22, false, kRows},
      {kLstm, kBoth, 1, 300, 7, 190, 3, 22, false, kTiles},
      {kLstm, kBoth, 2, 300, 7, 240, 3, 22, false, kTiles},
      {kLstm, kOne, 1, 90, 3000, 0, 3, 22, false, kRows},
      // Gates of more than 32 MiB.
      {kLstm, kBoth, 1, 30, 7, 0, 2500, 7, true, kTiles},
      {kLstm, kBoth, 2, 20, 5, 0, 500, 53, true, kRows},
      {kGru, kBoth, 1, 30, 7, 0, 1000, 24, true, kRows},
      // The LSTM's R does not fit a core's cache, the GRU's R does.
      {kLstm, kOne, 2, 400, 7, 0, 3, 22, false, kTiles},
      {kGru, kBoth, 2, 130, 20, 0, 3, 22, false, kRows},
  };
  return models;
}

TEST(LargeModelsHaveTheSchedulesThatTheyAreFor) {
  const Kernels<double>* kernels;
  EXPECT(ChooseKernels<double>("portable", FactorFormat::kExact, &kernels).ok());
  for (const LargeModel& model : LargeModels()) {
    const Problem problem = model.MakeProblem();
    const Schedule schedule = MakeSchedule(problem.config, problem.shape, *kernels);
    EXPECT((schedule.steps_per_block.value < model.num_steps) == model.is_in_blocks, problem.Text(),
           schedule.steps_per_block.reason);
    const Decision<Division> division =
        MakePassSchedule(schedule, problem.config, problem.shape, *kernels, Pass::kInference,
                         {model.num_steps, model.num_steps * model.batch_size},
                         {/*count=*/4, /*min_cycles_to_wait=*/4000})
            .division;
    EXPECT(division.value == model.division, problem.Text(), division.reason);
  }
}

TEST(LargeModelsAgreeWithSpecification) {
  int64_t index = 0;
  for (const LargeModel& model : LargeModels()) {
    if (!testing::IsInSample(index++)) continue;
    const Problem problem = model.MakeProblem();
    const Tensors given = MakeTensors(problem);
    Tensors expected = given;
    SpecifiedForward(problem, {}, /*rounds_factors=*/false, &expected);
    for (const int num_threads : {1, 2, 4}) {
      for (const bool is_training : {false, true}) {
        ThreadRunner threads(num_threads);
        Tensors found = given;
        RunCpuPlan(problem, &threads, is_training, &found);
        const std::string what = Concatenate(problem.Text(), ", ", num_threads, " threads",
                                             is_training ? ", training" : "");
        ExpectForwardClose(found, expected, 1e-12, what);
      }
    }
  }
}

// Returns a random model whose specification multiplies at most 40 million numbers.
Problem RandomLargeProblem(std::mt19937* generator) {
  const auto pick = [&](std::initializer_list<int64_t> values) {
    std::uniform_int_distribution<size_t> index(0, values.size() - 1);
    return values.begin()[index(*generator)];
  };
  constexpr RnnMode kModes[] = {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru};
  Problem problem;
  RnnConfig& config = problem.config;
  config.mode = kModes[pick({0, 1, 2, 2, 3, 3})];
  config.direction = pick({0, 1}) == 0 ? Direction::kUnidirectional : Direction::kBidirectional;
  config.data_type = pick({0, 1}) == 0 ? DataType::kFloat : DataType::kDouble;
  config.num_layers = pick({1, 1, 2, 3});
  config.num_units = pick({65, 96, 128, 200, 260, 300, 384, 516, 640, 1000});
  config.input_size = pick({1, 40, config.num_units, 1200, 3000});
  if (config.input_size == config.num_units && pick({0, 1}) == 0) {
    config.input_mode = InputMode::kSkip;
  }
  if (config.mode == RnnMode::kLstm && pick({0, 0, 1}) == 1) config.num_proj = config.num_units / 3;
  problem.shape = {pick({1, 2, 3, 7, 20, 50}), pick({1, 2, 5, 8, 17, 33, 64}), pick({0, 1}) == 0};
  const int64_t most_rows = std::max<int64_t>(1, 40000000 / problem.params());
  problem.shape.batch_size = std::min(problem.shape.batch_size, most_rows);
  problem.shape.num_steps =
      std::max<int64_t>(1, std::min(problem.shape.num_steps, most_rows / problem.shape.batch_size));
  problem.lengths = AllLengths(problem.shape)[static_cast<size_t>(pick({0, 0, 2, 3}))];
  return problem;
}

TEST(RandomLargeModelsAgreeWithSpecification) {
  std::mt19937 generator(1);
  for (int64_t index = 0; index < 80; ++index) {
    const Problem problem = RandomLargeProblem(&generator);
    if (!testing::IsInSample(index)) continue;
    // Larger parameters amplify the rounding of float.
    const double scale = 1.0 / std::sqrt(static_cast<double>(problem.config.num_units));
    const Tensors given = MakeTensors(problem, scale);
    Tensors expected = given;
    SpecifiedForward(problem, {}, /*rounds_factors=*/false, &expected);
    const double tolerance = problem.config.data_type == DataType::kDouble ? 1e-12 : 1e-5;
    ThreadRunner threads(1 + index % 4);
    for (const bool is_training : {false, true}) {
      Tensors found = given;
      RunCpuPlan(problem, &threads, is_training, &found);
      ExpectForwardClose(found, expected, tolerance, problem.Text());
    }
  }
}

TEST(GradientsOfLargeModelsAgreeWithDifferences) {
  int64_t index = 0;
  for (const LargeModel& model : LargeModels()) {
    if (!testing::IsInSample(index++)) continue;
    const Problem problem = model.MakeProblem();
    const Tensors alone = Train(problem);
    CheckDerivative(problem, alone, RandomMoves(alone), "all arguments in a direction");
    ExpectSameBitsOnThreads(problem, /*is_training=*/true, /*min_cycles_to_wait=*/0, {2, 4});
  }
}

}  // namespace
}  // namespace cudnn_rnn
