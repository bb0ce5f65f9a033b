// Tests what the schedule decides for models and shapes on either side of each limit.

#include "cudnn_rnn/cc/cpu/schedule.h"

#include <memory>
#include <string>

#include "cudnn_rnn/cc/core/reserve_space.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/core/problem_text.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

constexpr int64_t kMinCyclesToWait = 4000;
constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr KernelTraits kAvx512 = {"avx512",
                                  /*lanes=*/16,
                                  /*tile_vectors=*/3,
                                  /*vnni_factor=*/1,
                                  /*depth_multiple=*/1,
                                  /*depth_block=*/768,
                                  /*row_multiple=*/1,
                                  /*planes=*/1,
                                  /*core_cache_bytes=*/kMiB};
constexpr KernelTraits kLargeCache = {
    "avx512", 16, 3, 1, 1, 768, 1, 1, /*core_cache_bytes=*/4 * kMiB};
constexpr KernelTraits kAvx2 = {"avx2", /*lanes=*/8, 3, 1, 1, 192, 1, 1, 512 * kKiB};
constexpr KernelTraits kAvx2Double = {"avx2", /*lanes=*/4, 3, 1, 1, 192, 1, 1, 512 * kKiB};
constexpr KernelTraits kUnknownCache = {"avx2", 8, 3, 1, 1, 192, 1, 1, /*core_cache_bytes=*/0};
constexpr KernelTraits kBfloat16 = {"avx512_bf16", 16, 3, /*vnni_factor=*/2, 2, 512, 1, 1, kMiB};
constexpr KernelTraits kAmx = {"amx_bf16", 16, 4, /*vnni_factor=*/2, 32, 512, 16, 1, 2 * kMiB};
constexpr KernelTraits kAmxSplit = {"amx_bf16", 16, 4, 2, 32, 512, 16, /*planes=*/2, 2 * kMiB};

RnnConfig MakeConfig(RnnMode mode, int64_t num_layers, int64_t num_units,
                     Direction direction = Direction::kUnidirectional) {
  return {mode,      InputMode::kLinear,      direction, DataType::kFloat, num_layers,
          num_units, /*input_size=*/num_units};
}

TEST(ScheduleOfEachKindOfModel) {
  constexpr Direction kOne = Direction::kUnidirectional, kBoth = Direction::kBidirectional;
  constexpr Packing kWhole = Packing::kWhole, kByTile = Packing::kByTile, kNone = Packing::kNone;
  constexpr Division kTiles = Division::kTiles, kDirections = Division::kDirections;
  constexpr Division kLayers = Division::kLayers, kRows = Division::kRows;
  struct Case {
    int64_t layers, units;
    Direction direction;
    int64_t steps, batch;
    const KernelTraits& kernels;
    Packing input_weights, recurrent_weights;
    int64_t concurrent_layers;
    Division division;       // of a forward pass on two threads
    int64_t input_size = 0;  // 0: as many as units
  };
  const Case cases[] = {
      // Large models.
      {2, 650, kOne, 35, 20, kAvx512, kWhole, kWhole, 1, kTiles},
      {2, 650, kOne, 35, 20, kBfloat16, kWhole, kWhole, 1, kTiles},
      {2, 650, kBoth, 35, 20, kAvx512, kWhole, kWhole, 1, kDirections},
      // Batch 1 and 2: 35, 64 and 65 rows.
      {2, 650, kOne, 35, 1, kAvx512, kByTile, kWhole, 1, kTiles},
      {2, 650, kOne, 32, 2, kAvx512, kByTile, kWhole, 1, kTiles},
      {2, 650, kOne, 65, 1, kAvx512, kWhole, kWhole, 1, kTiles},
      // Small models: wavefronts need several layers, one direction and 16 steps.
      {3, 12, kOne, 37, 5, kAvx512, kWhole, kWhole, 3, kLayers},
      {3, 12, kOne, 16, 1, kAvx512, kWhole, kWhole, 3, kLayers},
      {3, 12, kOne, 15, 5, kAvx512, kWhole, kWhole, 1, kDirections},
      {3, 12, kBoth, 37, 5, kAvx512, kWhole, kWhole, 1, kDirections},
      {1, 12, kOne, 37, 5, kAvx512, kWhole, kWhole, 1, kDirections},
      // R of at most three quarters of the L2 cache, and at least four sequences per thread, with
      // AMX eight.
      {2, 219, kOne, 35, 8, kAvx512, kWhole, kWhole, 1, kRows},
      {2, 220, kOne, 35, 8, kAvx512, kWhole, kWhole, 1, kTiles},
      {2, 219, kOne, 35, 7, kAvx512, kWhole, kWhole, 1, kTiles},
      {2, 256, kOne, 35, 8, kBfloat16, kWhole, kWhole, 1, kRows},
      {2, 256, kOne, 35, 7, kBfloat16, kWhole, kWhole, 1, kTiles},
      {2, 256, kOne, 35, 16, kAmx, kWhole, kWhole, 1, kRows},
      {2, 256, kOne, 35, 15, kAmx, kWhole, kWhole, 1, kTiles},
      {1, 12, kOne, 37, 8, kAvx512, kWhole, kWhole, 1, kRows},
      // R of at most 1 MiB, however large the cache.
      {2, 256, kOne, 35, 8, kLargeCache, kWhole, kWhole, 1, kRows},
      {2, 257, kOne, 35, 8, kLargeCache, kWhole, kWhole, 1, kTiles},
      // R of 512 KiB, however small the cache.
      {2, 176, kOne, 35, 8, kUnknownCache, kWhole, kWhole, 1, kRows},
      {2, 184, kOne, 35, 8, kUnknownCache, kWhole, kWhole, 1, kTiles},
      {2, 176, kOne, 35, 8, kAvx2, kWhole, kWhole, 1, kRows},
      {2, 184, kOne, 35, 8, kAvx2, kWhole, kWhole, 1, kTiles},
      {2, 256, kOne, 35, 64, kAvx2, kWhole, kWhole, 1, kTiles},
      // R of at most 2 MiB, with AMX and at least 32 sequences per thread.
      {2, 500, kOne, 35, 64, kAmx, kWhole, kWhole, 1, kRows},
      {2, 500, kOne, 35, 63, kAmx, kWhole, kWhole, 1, kTiles},
      {2, 512, kOne, 35, 64, kAmx, kWhole, kWhole, 1, kRows},
      // The steps read W, too.
      {1, 512, kOne, 35, 64, kAmx, kWhole, kWhole, 1, kTiles, 80},
      {2, 513, kOne, 35, 64, kAmx, kWhole, kWhole, 1, kTiles},
      {2, 512, kOne, 35, 64, kBfloat16, kWhole, kWhole, 1, kTiles},
      // Decode steps.
      {2, 650, kOne, 1, 1, kAvx512, kNone, kNone, 1, kTiles},
      {2, 650, kOne, 1, 8, kAvx512, kNone, kNone, 1, kTiles},
      {2, 650, kOne, 1, 9, kAvx512, kByTile, kByTile, 1, kTiles},
      {2, 650, kOne, 1, 32, kAvx512, kByTile, kByTile, 1, kTiles},
      {2, 650, kOne, 1, 6, kAvx2, kNone, kNone, 1, kTiles},
      {2, 650, kOne, 1, 7, kAvx2, kByTile, kByTile, 1, kTiles},
      {2, 650, kOne, 1, 3, kAvx2Double, kNone, kNone, 1, kTiles},
      {2, 650, kOne, 1, 4, kAvx2Double, kByTile, kByTile, 1, kTiles},
      {2, 650, kOne, 1, 32, kBfloat16, kWhole, kWhole, 1, kTiles},
      // Other single steps, and none.
      {2, 650, kOne, 1, 33, kAvx512, kByTile, kWhole, 1, kTiles},
      {2, 650, kOne, 1, 65, kBfloat16, kWhole, kWhole, 1, kTiles},
      {2, 650, kOne, 0, 4, kAvx512, kByTile, kWhole, 1, kTiles},
  };
  for (const Case& test : cases) {
    RnnConfig config = MakeConfig(RnnMode::kLstm, test.layers, test.units, test.direction);
    if (test.input_size > 0) config.input_size = test.input_size;
    const SequenceShape shape = {test.steps, test.batch};
    const Schedule schedule = MakeSchedule(config, shape, test.kernels);
    const auto division_for = [&](int64_t num_threads) {
      return MakePassSchedule(schedule, config, shape, test.kernels, Pass::kInference,
                              {test.steps, test.steps * test.batch},
                              {num_threads, kMinCyclesToWait})
          .division.value;
    };
    const std::string text =
        Concatenate(ProblemText(config, shape, {}), ", ", test.kernels.instruction_set);
    EXPECT(schedule.input_weights.value == test.input_weights, text);
    EXPECT(schedule.recurrent_weights.value == test.recurrent_weights, text);
    EXPECT(schedule.concurrent_layers.value == test.concurrent_layers, text);
    EXPECT(division_for(2) == test.division, text);
    EXPECT(division_for(1) == kDirections, text);
  }
}

// With more threads than directions, threads share steps; lengths may leave too few steps for a
// wavefront.
TEST(ScheduleDependsOnThreadsAndLengths) {
  const auto division = [](const RnnConfig& config, int64_t num_steps, int64_t num_threads,
                           int64_t min_cycles_to_wait) {
    const SequenceShape shape = {37, 5};
    return MakePassSchedule(MakeSchedule(config, shape, kAvx512), config, shape, kAvx512,
                            Pass::kTraining, {num_steps, num_steps * 5},
                            {num_threads, min_cycles_to_wait})
        .division.value;
  };
  const RnnConfig both = MakeConfig(RnnMode::kLstm, 2, 650, Direction::kBidirectional);
  EXPECT(division(both, 37, 2, kMinCyclesToWait) == Division::kDirections);
  EXPECT(division(both, 37, 3, kMinCyclesToWait) == Division::kTiles);
  const RnnConfig small = MakeConfig(RnnMode::kLstm, 3, 12);
  EXPECT(division(small, 37, 4, kMinCyclesToWait) == Division::kLayers);
  EXPECT(division(small, 15, 4, kMinCyclesToWait) == Division::kDirections);
  EXPECT(division(small, 37, 4, /*min_cycles_to_wait=*/0) == Division::kTiles);
}

// With a projection, a backward step takes longer than a forward step, so it is worth a more
// expensive barrier.
TEST(ScheduleKnowsTheStepsOfEachPass) {
  RnnConfig config = MakeConfig(RnnMode::kLstm, 1, 650);
  config.num_proj = 100;
  const SequenceShape shape = {37, 5};
  // Returns the least cycles of waiting for which steps are not shared.
  const auto cycles_of_step = [&](Pass pass) {
    int64_t shared = 0, alone = int64_t{1} << 40;
    while (alone - shared > 1) {
      const int64_t cycles = (shared + alone) / 2;
      const PassSchedule found =
          MakePassSchedule(MakeSchedule(config, shape, kAvx512), config, shape, kAvx512, pass,
                           {37, 37 * 5}, {/*count=*/4, cycles});
      (found.division.value == Division::kTiles ? shared : alone) = cycles;
    }
    return shared;
  };
  const int64_t forward = cycles_of_step(Pass::kTraining),
                backward = cycles_of_step(Pass::kBackward);
  EXPECT(forward > 0 && forward < backward, forward, " ", backward);
  EXPECT(cycles_of_step(Pass::kInference) == forward);
  EXPECT(cycles_of_step(Pass::kBackwardInPlace) == backward);
}

// Sequences are shared only if their lengths are equal and every thread has the same share.
TEST(ScheduleSharesSequences) {
  const auto groups = [](Direction direction, const PassLengths& lengths, int64_t num_threads) {
    const RnnConfig config = MakeConfig(RnnMode::kGru, 2, 200, direction);
    const SequenceShape shape = {37, 20};
    return MakePassSchedule(MakeSchedule(config, shape, kAvx512), config, shape, kAvx512,
                            Pass::kBackward, lengths, {num_threads, kMinCyclesToWait})
        .row_groups;
  };
  EXPECT(groups(Direction::kUnidirectional, {37, 37 * 20}, 2) == 2);
  EXPECT(groups(Direction::kUnidirectional, {37, 37 * 20}, 5) == 5);
  EXPECT(groups(Direction::kUnidirectional, {37, 37 * 20}, 6) == 1);
  EXPECT(groups(Direction::kUnidirectional, {30, 30 * 20}, 2) == 2);
  EXPECT(groups(Direction::kUnidirectional, {37, 37 * 20 - 1}, 2) == 1);
  EXPECT(groups(Direction::kUnidirectional, {2, 40}, 2) == 2);
  EXPECT(groups(Direction::kUnidirectional, {1, 20}, 2) == 1);
  EXPECT(groups(Direction::kBidirectional, {37, 37 * 20}, 2) == 1);
  EXPECT(groups(Direction::kBidirectional, {37, 37 * 20}, 3) == 1);
  EXPECT(groups(Direction::kBidirectional, {37, 37 * 20}, 4) == 2);
}

TEST(ScheduleOfProductsInSteps) {
  struct Case {
    int64_t units, steps, batch;
    bool in_steps;
    const KernelTraits& kernels = kAmx;
    RnnMode mode = RnnMode::kLstm;
  };
  const Case cases[] = {
      {256, 35, 20, true},
      {256, 35, 20, false, kBfloat16},
      {256, 35, 20, false, kAmxSplit},
      {256, 35, 8, true},
      {256, 35, 7, false},
      {256, 1, 20, true},
      // Gates that begin within a panel. Simple RNNs have one gate.
      {250, 35, 20, false},
      {250, 35, 20, true, kAmx, RnnMode::kTanh},
      // W of more than 1 MiB.
      {368, 35, 64, false},
      {352, 35, 8, true},
      // A wavefront.
      {16, 37, 8, false},
  };
  for (const Case& test : cases) {
    RnnConfig config = MakeConfig(test.mode, 2, test.units);
    const SequenceShape shape = {test.steps, test.batch};
    const Decision<bool> found = MakeSchedule(config, shape, test.kernels).products_in_steps;
    EXPECT(found.value == test.in_steps, ProblemText(config, shape, {}), ": ", found.reason);
    config.input_mode = InputMode::kSkip;
    EXPECT(!MakeSchedule(config, shape, test.kernels).products_in_steps.value);
  }
}

TEST(ScheduleOfStepsPerBlock) {
  struct Case {
    int64_t units, steps, batch, steps_per_block;
    Direction direction = Direction::kUnidirectional;
  };
  const Case cases[] = {
      {512, 100, 64, 32},
      {256, 400, 32, 64, Direction::kBidirectional},
      {1500, 200, 20, 34},
      {128, 128, 128, 64},
      {128, 127, 128, 127},  // gates of less than 32 MiB
      // One step has more than 16 MiB.
      {128, 3, 40000, 1},
      {128, 3, int64_t(1) << 60, 1},
  };
  for (const Case& test : cases) {
    const RnnConfig config = MakeConfig(RnnMode::kLstm, 2, test.units, test.direction);
    const SequenceShape shape = {test.steps, test.batch};
    const int64_t found = MakeSchedule(config, shape, kAvx512).steps_per_block.value;
    EXPECT(found == test.steps_per_block, ProblemText(config, shape, {}), ": ", found);
  }
}

TEST(ScheduleOfEachPassStoresGates) {
  const RnnConfig lstm = MakeConfig(RnnMode::kLstm, 2, 20),
                  tanh = MakeConfig(RnnMode::kTanh, 2, 20);
  EXPECT(GateStorage(lstm, Pass::kInference).value == Storage::kWorkspace);
  EXPECT(GateStorage(lstm, Pass::kTraining).value == Storage::kReserveSpace);
  EXPECT(GateStorage(lstm, Pass::kBackward).value == Storage::kWorkspace);
  EXPECT(GateStorage(lstm, Pass::kBackwardInPlace).value == Storage::kReserveSpace);
  for (const Pass pass :
       {Pass::kInference, Pass::kTraining, Pass::kBackward, Pass::kBackwardInPlace}) {
    EXPECT(GateStorage(tanh, pass).value == Storage::kWorkspace);
  }
}

// No precision is slower than "highest" then. bfloat16 models round, because packing their weights
// is faster than converting them to float.
TEST(FloatAndHalfModelsOfOneStepHaveExactFactors) {
  SerialRunner runner;
  RnnConfig config = MakeConfig(RnnMode::kLstm, 1, 40);
  const auto plan = [&](DataType data_type, Precision precision, const SequenceShape& shape) {
    config.data_type = data_type;
    config.precision = precision;
    std::string text;
    EXPECT(ExplainCpuPlan(config, shape, "", /*is_training=*/false, runner, &text).ok());
    return text;
  };
  for (const int64_t batch_size : {1, 16, 32}) {
    const SequenceShape shape = {1, batch_size};
    const std::string exact = plan(DataType::kFloat, Precision::kHighest, shape);
    EXPECT(plan(DataType::kFloat, Precision::kMedium, shape) == exact);
    EXPECT(plan(DataType::kFloat, Precision::kHigh, shape) == exact);
    EXPECT(plan(DataType::kHalf, Precision::kHighest, shape) == exact);
  }
  const auto rounds = [&](DataType data_type, const SequenceShape& shape) {
    return plan(data_type, Precision::kMedium, shape).find("rounded factors") != std::string::npos;
  };
  const bool has_products = rounds(DataType::kFloat, {2, 16});
  EXPECT(rounds(DataType::kFloat, {1, 33}) == has_products);
  EXPECT(rounds(DataType::kBfloat16, {1, 1}) == has_products);
}

TEST(HalfModelsOfFewSequencesAreComputedAsFloat) {
  ThreadRunner runner(1);
  const auto first_line = [&](DataType data_type, int64_t units, const SequenceShape& shape) {
    RnnConfig config = MakeConfig(RnnMode::kLstm, 1, units);
    config.data_type = data_type;
    std::string text;
    EXPECT(ExplainCpuPlan(config, shape, "", /*is_training=*/false, runner, &text).ok());
    return text.substr(0, text.find('\n'));
  };
  const Kernels<float>* split;
  EXPECT(ChooseKernels<float>("", FactorFormat::kSplit, &split).ok());
  const std::string split_line = Concatenate("kernels: ", split->instruction_set, ",");
  const auto is_as_float = [&](int64_t units, const SequenceShape& shape) {
    const std::string line = first_line(DataType::kHalf, units, shape);
    const bool is_equal = line == first_line(DataType::kFloat, units, shape);
    EXPECT(is_equal || line.find(split_line) == 0, line);
    return is_equal;
  };
  const bool has_amx = split->rounds();
  EXPECT(is_as_float(96, {8, 7}), "seven sequences");
  EXPECT(is_as_float(96, {8, 8}) == !has_amx, "eight sequences");
  EXPECT(is_as_float(95, {8, 15}), "few units");
  EXPECT(is_as_float(96, {7, 15}), "few steps");
  EXPECT(is_as_float(95, {7, 16}) == !has_amx, "16 sequences");
}

// Without bfloat16 products, rounded factors pay only where reading the weights limits a step.
TEST(ReadingLimitsStepsOfFewSequencesWithLargeWeights) {
  const auto limits = [](RnnMode mode, int64_t units, const SequenceShape& shape) {
    return ReadingLimitsSteps(MakeConfig(mode, 1, units), shape, kAvx2);
  };
  EXPECT(limits(RnnMode::kLstm, 728, {50, 1}), "8 MiB");
  EXPECT(!limits(RnnMode::kLstm, 720, {50, 1}), "7.9 MiB");
  EXPECT(!limits(RnnMode::kLstm, 728, {1, 1}), "one step");
  EXPECT(!limits(RnnMode::kLstm, 728, {50, 2}), "8 MiB and two sequences");
  EXPECT(limits(RnnMode::kLstm, 1256, {50, 4}), "24 MiB");
  EXPECT(!limits(RnnMode::kLstm, 1248, {50, 4}), "23.8 MiB");
  EXPECT(!limits(RnnMode::kLstm, 1256, {50, 5}), "five sequences");
  EXPECT(limits(RnnMode::kGru, 840, {50, 1}) && !limits(RnnMode::kGru, 832, {50, 1}));
  if (!ThisProcessor().has_avx2) return;
  std::string text;
  SerialRunner runner;
  RnnConfig config = MakeConfig(RnnMode::kLstm, 1, 728);
  const auto first_line = [&](int64_t batch_size) {
    EXPECT(ExplainCpuPlan(config, {50, batch_size}, "avx2", false, runner, &text).ok());
    return text.substr(0, text.find('\n'));
  };
  EXPECT(first_line(1) == "kernels: avx2, 8 lanes", text);
  config.precision = Precision::kMedium;
  EXPECT(first_line(1) == "kernels: avx2, 8 lanes, rounded factors", text);
  EXPECT(first_line(2) == "kernels: avx2, 8 lanes", text);
}

TEST(ScheduleExplainsItself) {
  const RnnConfig config = MakeConfig(RnnMode::kLstm, 2, 650);
  const auto explain = [&](const SequenceShape& shape, bool is_training) {
    return ExplainSchedule(config, shape, kAvx512, is_training, {2, kMinCyclesToWait});
  };
  const std::string training = explain({35, 20}, true), decode = explain({1, 1}, false);
  for (const char* line : {"avx512", "forward W: packed as a whole (more than 64 rows",
                           "forward steps: all threads share each step (a step is worth a barrier)",
                           "backward steps: all threads share each step (", "2 threads"}) {
    EXPECT(training.find(line) != std::string::npos, line, " in ", training);
  }
  EXPECT(decode.find("forward R: not packed (one step of few sequences, for") != std::string::npos,
         decode);
  EXPECT(decode.find("backward") == std::string::npos, decode);
}

TEST(TheReserveSpaceHasTheOutputsOfAllLayersButTheLast) {
  int64_t bytes[2];
  for (int64_t layers : {1, 2}) {
    const RnnConfig config = MakeConfig(RnnMode::kLstm, layers, /*num_units=*/64);
    std::unique_ptr<RnnPlan> plan;
    EXPECT(CreateCpuPlan(config, {/*num_steps=*/4, /*batch_size=*/8}, "", &plan).ok());
    bytes[layers - 1] = plan->ReserveSpaceBytes() - kReserveHeaderBytes;
  }
  EXPECT(bytes[1] - 2 * bytes[0] == 4 * 8 * 64 * 4, bytes[0], " and ", bytes[1]);
}

}  // namespace
}  // namespace cudnn_rnn
