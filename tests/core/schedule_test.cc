// Tests what the schedule decides for models and shapes on either side of each limit.

#include "cudnn_rnn/cc/cpu/schedule.h"

#include <string>

#include "cudnn_rnn/cc/core/status.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

constexpr int64_t kMinCyclesToWait = 4000;
constexpr KernelTraits kAvx512 = {"avx512", /*lanes=*/16, /*tile_vectors=*/3, /*vnni_factor=*/1};
constexpr KernelTraits kBfloat16 = {"avx512_bf16", 16, 3, /*vnni_factor=*/2};

RnnConfig MakeConfig(RnnMode mode, int64_t num_layers, int64_t num_units,
                     Direction direction = Direction::kUnidirectional) {
  RnnConfig config;
  config.mode = mode;
  config.num_layers = num_layers;
  config.num_units = config.input_size = num_units;
  config.direction = direction;
  return config;
}

TEST(ScheduleOfEachKindOfModel) {
  constexpr Direction kBoth = Direction::kBidirectional;
  struct Case {
    const char* name;
    RnnConfig config;
    SequenceShape shape;
    KernelTraits kernels;
    Packing input_weights;
    Packing recurrent_weights;
    int64_t concurrent_layers;
    Division division;  // of a forward pass on two threads
  };
  const RnnConfig large = MakeConfig(RnnMode::kLstm, 2, 650);
  const RnnConfig small = MakeConfig(RnnMode::kLstm, 3, 12);
  const Case cases[] = {
      {"large", large, {35, 20}, kAvx512, Packing::kWhole, Packing::kWhole, 1, Division::kTiles},
      {"large, bfloat16",
       large,
       {35, 20},
       kBfloat16,
       Packing::kWhole,
       Packing::kWhole,
       1,
       Division::kTiles},
      {"large, batch 1",
       large,
       {35, 1},
       kAvx512,
       Packing::kByTile,
       Packing::kWhole,
       1,
       Division::kTiles},
      {"64 rows", large, {32, 2}, kAvx512, Packing::kByTile, Packing::kWhole, 1, Division::kTiles},
      {"65 rows", large, {65, 1}, kAvx512, Packing::kWhole, Packing::kWhole, 1, Division::kTiles},
      {"two directions, two threads",
       MakeConfig(RnnMode::kLstm, 2, 650, kBoth),
       {35, 20},
       kAvx512,
       Packing::kWhole,
       Packing::kWhole,
       1,
       Division::kDirections},
      {"small", small, {37, 5}, kAvx512, Packing::kWhole, Packing::kWhole, 3, Division::kLayers},
      {"small, batch 1",
       small,
       {16, 1},
       kAvx512,
       Packing::kWhole,
       Packing::kWhole,
       3,
       Division::kLayers},
      {"small, few steps",
       small,
       {15, 5},
       kAvx512,
       Packing::kWhole,
       Packing::kWhole,
       1,
       Division::kDirections},
      {"small, two directions",
       MakeConfig(RnnMode::kLstm, 3, 12, kBoth),
       {37, 5},
       kAvx512,
       Packing::kWhole,
       Packing::kWhole,
       1,
       Division::kDirections},
      {"small, one layer",
       MakeConfig(RnnMode::kGru, 1, 12),
       {37, 5},
       kAvx512,
       Packing::kWhole,
       Packing::kWhole,
       1,
       Division::kDirections},
      {"decode step", large, {1, 1}, kAvx512, Packing::kNone, Packing::kNone, 1, Division::kTiles},
      {"decode step of 8",
       large,
       {1, 8},
       kAvx512,
       Packing::kNone,
       Packing::kNone,
       1,
       Division::kTiles},
      {"decode step of 9",
       large,
       {1, 9},
       kAvx512,
       Packing::kByTile,
       Packing::kByTile,
       1,
       Division::kTiles},
      {"decode step of 9, bfloat16",
       large,
       {1, 9},
       kBfloat16,
       Packing::kNone,
       Packing::kNone,
       1,
       Division::kTiles},
      {"decode step of 32",
       large,
       {1, 32},
       kAvx512,
       Packing::kByTile,
       Packing::kByTile,
       1,
       Division::kTiles},
      {"one step of 33",
       large,
       {1, 33},
       kAvx512,
       Packing::kByTile,
       Packing::kWhole,
       1,
       Division::kTiles},
      {"one step of 65, bfloat16",
       large,
       {1, 65},
       kBfloat16,
       Packing::kWhole,
       Packing::kWhole,
       1,
       Division::kTiles},
      {"no steps", large, {0, 4}, kAvx512, Packing::kByTile, Packing::kWhole, 1, Division::kTiles},
  };
  for (const Case& test : cases) {
    const Schedule schedule = MakeSchedule(test.config, test.shape, test.kernels);
    const auto division_for = [&](int64_t num_threads) {
      return MakePassSchedule(schedule, test.config, test.shape, test.kernels, Pass::kInference,
                              test.shape.num_steps, {num_threads, kMinCyclesToWait})
          .division.value;
    };
    EXPECT(schedule.input_weights.value == test.input_weights, test.name);
    EXPECT(schedule.recurrent_weights.value == test.recurrent_weights, test.name);
    EXPECT(schedule.concurrent_layers.value == test.concurrent_layers, test.name);
    EXPECT(division_for(2) == test.division, test.name);
    EXPECT(division_for(1) == Division::kDirections, test.name);
    for (const char* reason : {schedule.input_weights.reason, schedule.recurrent_weights.reason,
                               schedule.concurrent_layers.reason}) {
      EXPECT(std::string(reason).size() > 10, test.name);
    }
  }
}

// With more threads than directions, threads share steps; lengths may leave too few steps for a
// wavefront.
TEST(ScheduleDependsOnThreadsAndLengths) {
  const auto division = [](const RnnConfig& config, int64_t num_steps, int64_t num_threads,
                           int64_t min_cycles_to_wait) {
    const SequenceShape shape = {37, 5};
    return MakePassSchedule(MakeSchedule(config, shape, kAvx512), config, shape, kAvx512,
                            Pass::kTraining, num_steps, {num_threads, min_cycles_to_wait})
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

TEST(ScheduleExplainsItself) {
  const RnnConfig config = MakeConfig(RnnMode::kLstm, 2, 650);
  const auto explain = [&](const SequenceShape& shape, bool is_training) {
    return ExplainSchedule(config, shape, kAvx512, is_training, {2, kMinCyclesToWait});
  };
  const std::string training = explain({35, 20}, true), decode = explain({1, 1}, false);
  for (const char* line : {"avx512", "forward W: packed as a whole (more than 64 rows",
                           "backward steps: all threads share each step (", "2 threads"}) {
    EXPECT(training.find(line) != std::string::npos, line, " in ", training);
  }
  EXPECT(decode.find("forward R: not packed (one step of at most 8") != std::string::npos, decode);
  EXPECT(decode.find("backward") == std::string::npos, decode);
}

}  // namespace
}  // namespace cudnn_rnn
