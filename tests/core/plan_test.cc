// Compares the CPU plan with its specification; tests threads, instruction sets, data types and
// reserve spaces.

#include <algorithm>
#include <cmath>
#include <memory>

#include "cudnn_rnn/cc/core/reserve_space.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "tests/core/plan_runner.h"
#include "tests/core/problem_cases.h"
#include "tests/core/rnn_specification.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

// Returns the dropout mask of each layer's input; empty without dropout.
std::vector<Vector> DropoutMasks(const Problem& problem) {
  const RnnConfig& config = problem.config;
  std::vector<Vector> masks;
  TeamMember alone;
  for (int64_t layer = 0; layer < config.num_layers && config.dropout > 0; ++layer) {
    masks.emplace_back(problem.rows() * config.LayerInputSize(layer), 1.0);
    ApplyDropoutToRows<double>({config.dropout, config.seed, config.seed2, /*call=*/0, layer},
                               nullptr, 0, problem.rows(), config.LayerInputSize(layer),
                               masks.back().data(), masks.back().data(), &alone);
  }
  return masks;
}

bool RoundsFactors(const Problem& problem, const std::string& instruction_set) {
  const RnnConfig& config = problem.config;
  const bool is_decode_step = problem.shape.num_steps == 1 && problem.shape.batch_size <= 32;
  if (config.data_type == DataType::kFloat && is_decode_step) return false;
  return FactorFormatOf(config.data_type, config.precision) == FactorFormat::kRounded &&
         MultipliesBfloat16(instruction_set);
}

// Float's error may move a rounded factor across the midpoint of two bfloat16 numbers. The factor
// is then off by one unit in the last place, which later steps amplify (see bfloat16_test.cc). Few
// problems have such a factor; then many of their calls have it, as their data are equal.
constexpr double kToleranceOfOtherFactors = 1e-2;
// A problem's calls whose factors are rounded.
struct RoundedCalls {
  int64_t count = 0;
  int64_t with_other_factors = 0;
};

void CompareWithSpecification(const Problem& problem, double tolerance,
                              const std::vector<std::string>& instruction_sets,
                              RoundedCalls* rounded_calls) {
  SerialRunner runner;
  const Tensors given = MakeTensors(problem);
  for (bool is_training : {true, false}) {
    const auto masks = is_training ? DropoutMasks(problem) : std::vector<Vector>();
    // With and without rounded factors; computed once, as this takes the most time.
    std::unique_ptr<Tensors> specified[2];
    for (const std::string& instruction_set : instruction_sets) {
      const bool rounds_factors = RoundsFactors(problem, instruction_set);
      std::unique_ptr<Tensors>& expected = specified[rounds_factors];
      if (expected == nullptr) {
        expected.reset(new Tensors(given));
        SpecifiedForward(problem, masks, rounds_factors, expected.get());
      }
      Tensors found = given;
      RunCpuPlan(problem, &runner, is_training, &found, instruction_set);
      const std::string what =
          instruction_set + " " + problem.Text() + (is_training ? " training" : " inference");
      if (!rounds_factors) {
        ExpectForwardClose(found, *expected, tolerance, what);
        continue;
      }
      ExpectForwardClose(found, *expected, kToleranceOfOtherFactors, what);
      ++rounded_calls->count;
      double difference = 0;
      for (Vector Tensors::*values : {&Tensors::output, &Tensors::output_h, &Tensors::output_c}) {
        difference = std::max(difference, LargestDifference(found.*values, (*expected).*values));
      }
      rounded_calls->with_other_factors += difference > tolerance;
    }
  }
}

// Compares each problem with all kinds of lengths; the major axis and dropout vary as well.
void CompareAllWithSpecification(DataType data_type, double tolerance,
                                 const std::vector<std::string>& instruction_sets,
                                 Precision precision = Precision::kDefault) {
  int64_t index = 0, num_rounded = 0, num_with_other_factors = 0;
  for (Problem problem : Problems()) {
    RoundedCalls rounded_calls;
    problem.config.data_type = data_type;
    problem.config.precision = precision;
    problem.config.seed = 5;
    for (const std::vector<int32_t>& lengths : AllLengths(problem.shape)) {
      problem.lengths = lengths;
      problem.shape.time_major = index % 3 != 0;
      problem.config.dropout = problem.config.num_layers > 1 && index % 2 == 0 ? 0.3f : 0.0f;
      if (!testing::IsInSample(index++)) continue;
      CompareWithSpecification(problem, tolerance, instruction_sets, &rounded_calls);
    }
    num_rounded += rounded_calls.count > 0;
    num_with_other_factors += rounded_calls.with_other_factors > 0;
  }
  EXPECT(num_with_other_factors <= std::max<int64_t>(2, num_rounded / 20), num_with_other_factors,
         " of ", num_rounded);
}

// The 16-bit types may differ by half a unit in the last place.
TEST(ForwardAgreesWithSpecificationHalf) {
  CompareAllWithSpecification(DataType::kHalf, 5e-4, {""});
}
TEST(ForwardAgreesWithSpecificationBfloat16) {
  CompareAllWithSpecification(DataType::kBfloat16, 4e-3, InstructionSets());
}
TEST(ForwardAgreesWithSpecificationFloat) {
  CompareAllWithSpecification(DataType::kFloat, 1e-5, {""});
}
// Factors have at least 16 significant bits. Small simple RNNs amplify the error the most.
TEST(ForwardAgreesWithSpecificationFloatInHighPrecision) {
  CompareAllWithSpecification(DataType::kFloat, 2e-4, InstructionSets(), Precision::kHigh);
}
TEST(ForwardAgreesWithSpecificationFloatInMediumPrecision) {
  CompareAllWithSpecification(DataType::kFloat, 4e-3, InstructionSets(), Precision::kMedium);
}
TEST(ForwardAgreesWithSpecificationDouble) {
  CompareAllWithSpecification(DataType::kDouble, 1e-12, {""});
}

// The 16-bit types compute in float and round once, at the end, except if products round their
// factors to bfloat16.
TEST(SixteenBitTypesRoundWhatFloatComputes) {
  SerialRunner runner;
  for (DataType data_type : {DataType::kHalf, DataType::kBfloat16}) {
    int64_t index = 0;
    for (Problem problem : Problems()) {
      const std::vector<std::string> instruction_sets = InstructionSets();
      const std::string& instruction_set = instruction_sets[index++ % instruction_sets.size()];
      problem.config.data_type = data_type;
      if (RoundsFactors(problem, instruction_set)) continue;
      problem.config.dropout = 0.2f;
      problem.lengths = AllLengths(problem.shape)[3];
      Tensors found = MakeTensors(problem);
      Tensors expected = found;
      RunCpuPlan(problem, &runner, true, &found, instruction_set);
      problem.config.data_type = DataType::kFloat;
      problem.config.precision = Precision::kHigh;  // with the factors of half
      RunCpuPlan(problem, &runner, true, &expected, instruction_set);
      for (Vector Tensors::*values : {&Tensors::output, &Tensors::output_h, &Tensors::output_c}) {
        EXPECT(SameBits(found.*values, Buffer(expected.*values, data_type).Values()),
               problem.Text());
      }
    }
  }
}

// Calls with many steps and with up to 32 rows read their packed weights, those with few rows only
// converted parameters. Training calls and calls without a step have none.
TEST(PackedWeightsAreRead) {
  struct Case {
    DataType data_type;
    SequenceShape shape;
    bool has_packed_weights;
  };
  const Case cases[] = {
      {DataType::kFloat, {3, 2}, true},  {DataType::kFloat, {1, 12}, true},
      {DataType::kFloat, {1, 40}, true}, {DataType::kFloat, {1, 2}, false},
      {DataType::kHalf, {1, 2}, true},   {DataType::kFloat, {0, 2}, false},
  };
  SerialRunner runner;
  for (const Case& test : cases) {
    Problem problem;
    problem.config = {
        RnnMode::kLstm, InputMode::kLinear, Direction::kBidirectional, test.data_type, 2, 20, 7};
    problem.shape = test.shape;
    std::unique_ptr<RnnPlan> plan;
    EXPECT(CreateCpuPlan(problem.config, problem.shape, "", &plan).ok(), problem.Text());
    const CallOptions options = problem.Options(/*is_training=*/false);
    const int64_t bytes = plan->PackedWeights(options).bytes;
    EXPECT((bytes > 0) == test.has_packed_weights, problem.Text());
    EXPECT(plan->PackedWeights(problem.Options(/*is_training=*/true)).bytes == 0, problem.Text());
    problem.lengths.assign(static_cast<size_t>(problem.shape.batch_size), 0);
    EXPECT(plan->PackedWeights(problem.Options(/*is_training=*/false)).bytes == 0, problem.Text());
    if (bytes == 0) continue;
    Tensors tensors = MakeTensors(problem);
    PlanBuffers buffers(tensors, problem.config.data_type, 0);
    Memory not_numbers(bytes);
    buffers.forward.packed_weights = not_numbers.data();
    buffers.forward.packed_weights_are_ready = true;
    EXPECT(CallForward(*plan, options, {&runner}, &buffers).ok(), problem.Text());
    buffers.ReadResults(&tensors);
    for (const double value : tensors.output) EXPECT(std::isnan(value), problem.Text());
  }
}

TEST(ThreadsDoNotChangeABit) {
  struct Case {
    RnnMode mode;
    int64_t num_proj;
    DataType data_type;
    bool time_major;
    size_t lengths;
  };
  const Case cases[] = {{RnnMode::kTanh, 0, DataType::kFloat, true, 0},
                        {RnnMode::kLstm, 0, DataType::kFloat, true, 0},
                        {RnnMode::kGru, 0, DataType::kFloat, true, 0},
                        {RnnMode::kLstm, 83, DataType::kFloat, true, 0},
                        {RnnMode::kLstm, 83, DataType::kBfloat16, false, 3},
                        {RnnMode::kGru, 0, DataType::kBfloat16, true, 0},
                        {RnnMode::kGru, 0, DataType::kFloat, false, 3},
                        {RnnMode::kTanh, 0, DataType::kHalf, true, 2}};
  for (const Case& test : cases) {
    Problem problem;
    problem.config = {test.mode,         InputMode::kLinear, Direction::kBidirectional,
                      test.data_type,    /*num_layers=*/2,   /*num_units=*/133,
                      /*input_size=*/70, test.num_proj,      /*dropout=*/0.3f};
    problem.shape = {7, 37, test.time_major};
    problem.lengths = AllLengths(problem.shape)[test.lengths];
    ExpectSameBitsOnThreads(problem, /*is_training=*/true, /*min_cycles_to_wait=*/0, {2, 3, 4, 7});
  }
}

// Teams of more members than this machine may have cores.
TEST(ManyThreadsDoNotChangeABit) {
  struct Case {
    RnnMode mode;
    int64_t num_layers, num_units, num_steps, batch_size;
    Direction direction;
    DataType data_type;
    size_t lengths;
    int64_t num_proj = 0;
  };
  constexpr Direction kOne = Direction::kUnidirectional, kBoth = Direction::kBidirectional;
  const Case cases[] = {{RnnMode::kLstm, 1, 128, 12, 1, kOne, DataType::kFloat, 0},
                        {RnnMode::kLstm, 2, 90, 4, 33, kBoth, DataType::kFloat, 3},
                        {RnnMode::kLstm, 1, 200, 3, 20, kOne, DataType::kBfloat16, 0},
                        {RnnMode::kGru, 2, 37, 5, 70, kOne, DataType::kFloat, 0},
                        {RnnMode::kGru, 1, 75, 4, 9, kBoth, DataType::kBfloat16, 2},
                        {RnnMode::kTanh, 3, 20, 6, 64, kOne, DataType::kFloat, 0},
                        {RnnMode::kLstm, 1, 50, 1, 12, kOne, DataType::kFloat, 0},
                        {RnnMode::kGru, 1, 50, 1, 3, kOne, DataType::kBfloat16, 0},
                        {RnnMode::kLstm, 1, 50, 1, 12, kOne, DataType::kFloat, 0, 40},
                        {RnnMode::kLstm, 1, 90, 1, 3, kBoth, DataType::kBfloat16, 0, 75}};
  for (const Case& test : cases) {
    Problem problem;
    problem.config = {test.mode,
                      InputMode::kLinear,
                      test.direction,
                      test.data_type,
                      test.num_layers,
                      test.num_units,
                      /*input_size=*/test.num_units,
                      test.num_proj};
    problem.shape = {test.num_steps, test.batch_size};
    problem.lengths = AllLengths(problem.shape)[test.lengths];
    for (const bool is_training : {false, true}) {
      ExpectSameBitsOnThreads(problem, is_training, /*min_cycles_to_wait=*/0, {8, 16});
    }
  }
}

// Says that waking a thread costs nothing.
class AwakeRunner : public KeepingRunner {
 public:
  using KeepingRunner::KeepingRunner;
  int64_t min_cycles_to_wake() const override { return 0; }
};

// Returns how many threads a forward pass asks for, on a machine with many cores.
template <typename Runner = KeepingRunner>
int64_t ThreadsOfForwardPass(const RnnConfig& config, const SequenceShape& shape) {
  Runner runner(Team::kMaxMembers);
  Problem problem;
  problem.config = config;
  problem.shape = shape;
  Tensors tensors = MakeTensors(problem);
  RunCpuPlan(problem, &runner, /*is_training=*/false, &tensors, "portable");
  return 1 + static_cast<int64_t>(runner.num_tasks());
}

// 128 units are 32 vectors of 4 lanes. Their steps are worth more threads than that.
TEST(ThreadsAreNoMoreThanPhasesCanUse) {
  RnnConfig config;
  config.mode = RnnMode::kLstm;
  config.num_units = config.input_size = 128;
  EXPECT(ThreadsOfForwardPass(config, {120, 1}) == 32);
  EXPECT(ThreadsOfForwardPass(config, {60, 2}) == 32);
  EXPECT(ThreadsOfForwardPass<AwakeRunner>(config, {120, 1}) == Team::kMaxMembers);
  EXPECT(ThreadsOfForwardPass(config, {15, 8}) > 32);  // two groups of rows per vector
  config.direction = Direction::kBidirectional;
  EXPECT(ThreadsOfForwardPass(config, {120, 1}) > 32);
  config.direction = Direction::kUnidirectional;
  config.input_size = 5000;  // the products of x are worth more threads than the steps
  EXPECT(ThreadsOfForwardPass(config, {400, 1}) > 32);
}

// Steps too small to be shared, in a stack of layers. There are 4 blocks of steps.
TEST(LayersSideBySideDoNotChangeABit) {
  constexpr int64_t kMinCyclesToWait = 4000;
  struct Case {
    RnnMode mode;
    int64_t num_proj;
    InputMode input_mode;
    float dropout;
    size_t lengths;
  };
  const Case cases[] = {{RnnMode::kTanh, 0, InputMode::kLinear, 0.3f, 0},
                        {RnnMode::kRelu, 0, InputMode::kSkip, 0, 3},
                        {RnnMode::kLstm, 0, InputMode::kLinear, 0.3f, 0},
                        {RnnMode::kLstm, 0, InputMode::kSkip, 0.3f, 2},
                        {RnnMode::kLstm, 9, InputMode::kLinear, 0.3f, 3},
                        {RnnMode::kGru, 0, InputMode::kLinear, 0, 3},
                        {RnnMode::kGru, 0, InputMode::kLinear, 0.3f, 1}};
  for (const Case& test : cases) {
    for (const bool is_training : {false, true}) {
      Problem problem;
      const int64_t units = 12, input_size = test.input_mode == InputMode::kSkip ? units : 5;
      problem.config = {test.mode,        test.input_mode, Direction::kUnidirectional,
                        DataType::kFloat,
                        /*num_layers=*/3, units,           input_size,
                        test.num_proj,    test.dropout};
      problem.shape = {37, 5, /*time_major=*/true};
      problem.lengths = AllLengths(problem.shape)[test.lengths];
      ExpectSameBitsOnThreads(problem, is_training, kMinCyclesToWait, {2, 3, 5});
    }
  }
}

// Inference computes the gates of a block of steps at a time, training those of all steps.
TEST(BlocksOfStepsDoNotChangeABit) {
  struct Case {
    RnnMode mode;
    Direction direction;
    InputMode input_mode;
    size_t lengths;
  };
  const Case cases[] = {
      {RnnMode::kLstm, Direction::kBidirectional, InputMode::kLinear, 0},
      {RnnMode::kLstm, Direction::kUnidirectional, InputMode::kLinear, 2},
      {RnnMode::kGru, Direction::kBidirectional, InputMode::kLinear, 3},
      {RnnMode::kGru, Direction::kUnidirectional, InputMode::kSkip, 4},
  };
  for (const Case& test : cases) {
    Problem problem;
    constexpr int64_t kUnits = 29, kGateBytes = int64_t(33) << 20;  // of all steps
    problem.config = {test.mode,
                      test.input_mode,
                      test.direction,
                      DataType::kFloat,
                      /*num_layers=*/1,
                      kUnits,
                      /*input_size=*/test.input_mode == InputMode::kSkip ? kUnits : 11};
    const int64_t row_bytes =
        4 * problem.config.num_gates() * problem.config.num_directions() * kUnits;
    problem.shape = {kGateBytes / (row_bytes * 31) + 1, 31};
    problem.lengths = AllLengths(problem.shape)[test.lengths];
    std::unique_ptr<RnnPlan> plan;
    EXPECT(CreateCpuPlan(problem.config, problem.shape, "", &plan).ok(), problem.Text());
    // With full lengths, which need no copies.
    EXPECT(plan->ForwardWorkspaceBytes(CallOptions()) < kGateBytes, problem.Text());
    for (int64_t num_threads : {1, 3, 4}) {
      ThreadRunner threads(num_threads);
      Tensors inference = MakeTensors(problem), training = inference;
      RunPlan(*plan, problem, {&threads}, /*is_training=*/false, &inference);
      RunPlan(*plan, problem, {&threads}, /*is_training=*/true, &training);
      for (Vector Tensors::*values : {&Tensors::output, &Tensors::output_h, &Tensors::output_c}) {
        EXPECT(SameBits(inference.*values, training.*values), problem.Text());
      }
    }
  }
}

TEST(InstructionSetsAgree) {
  SerialRunner runner;
  int64_t index = 0;
  for (Problem problem : Problems()) {
    problem.lengths = AllLengths(problem.shape)[index++ % 4];
    Tensors expected = MakeTensors(problem);
    RunCpuPlan(problem, &runner, true, &expected, "portable");
    for (const std::string& instruction_set : InstructionSets()) {
      Tensors found = MakeTensors(problem);
      RunCpuPlan(problem, &runner, true, &found, instruction_set);
      const std::string what = Concatenate(instruction_set, " ", problem.Text());
      for (Vector Tensors::*values :
           {&Tensors::output, &Tensors::input_backprop, &Tensors::params_backprop}) {
        ExpectClose(found.*values, expected.*values, 1e-5, what);
      }
    }
  }
  std::unique_ptr<RnnPlan> plan;
  EXPECT_ERROR(CreateCpuPlan(RnnConfig(), {1, 1}, "quantum", &plan), "instruction set", "quantum",
               "portable");
}

void ExpectPassedThrough(const Problem& problem) {
  SerialRunner runner;
  Tensors tensors = MakeTensors(problem);
  RunCpuPlan(problem, &runner, true, &tensors);
  EXPECT(SameBits(tensors.output_h, tensors.input_h), problem.Text());
  EXPECT(SameBits(tensors.input_h_backprop, tensors.output_h_backprop), problem.Text());
  EXPECT(SameBits(tensors.output_c, tensors.input_c), problem.Text());
  EXPECT(SameBits(tensors.input_c_backprop, tensors.output_c_backprop), problem.Text());
  for (double value : tensors.params_backprop) EXPECT(value == 0.0, problem.Text());
  for (double value : tensors.output) EXPECT(value == 0.0, problem.Text());
  for (double value : tensors.input_backprop) EXPECT(value == 0.0, problem.Text());
}

TEST(EmptyBatchAndNoSteps) {
  for (Problem problem : Problems()) {
    const SequenceShape shape = problem.shape;
    for (bool time_major : {true, false}) {
      for (int64_t steps : {0, 3}) {
        for (int64_t batch : {0, 2}) {
          if (steps * batch > 0) continue;
          problem.shape = {steps, batch, time_major};
          problem.lengths.clear();
          ExpectPassedThrough(problem);
          problem.lengths.assign(static_cast<size_t>(batch), 0);
          ExpectPassedThrough(problem);
        }
      }
      problem.shape = {shape.num_steps, shape.batch_size, time_major};
      problem.lengths.assign(static_cast<size_t>(shape.batch_size), 0);
      ExpectPassedThrough(problem);
    }
  }
}

// The gradient refuses an output_h that differs in any element, the last one included.
TEST(ReserveSpacesOfOtherFinalStatesAreRefused) {
  SerialRunner runner;
  for (DataType data_type : {DataType::kHalf, DataType::kFloat, DataType::kDouble}) {
    Problem problem;
    problem.config = {
        RnnMode::kLstm, InputMode::kLinear, Direction::kBidirectional, data_type, 2, 5, 3};
    problem.config.num_proj = 2;
    problem.shape = {2, 3};
    std::unique_ptr<RnnPlan> plan;
    EXPECT(CreateCpuPlan(problem.config, problem.shape, "", &plan).ok(), problem.Text());
    PlanBuffers buffers(MakeTensors(problem), data_type, plan->ReserveSpaceBytes());
    const CallOptions options = problem.Options(/*is_training=*/true);
    EXPECT(CallForward(*plan, options, {&runner}, &buffers).ok(), problem.Text());
    const int64_t bytes = problem.hidden_states() * SizeOf(data_type);
    for (int64_t byte : {int64_t{0}, bytes / 2, bytes - 1}) {
      char* const changed = static_cast<char*>(buffers.forward.output_h) + byte;
      *changed ^= 1;
      EXPECT_ERROR(CallBackward(*plan, options, {&runner}, &buffers), "another forward call");
      *changed ^= 1;
    }
    EXPECT(CallBackward(*plan, options, {&runner}, &buffers).ok(), problem.Text());
  }
}

// Bookkeeping of lengths takes memory per step, unless the batch is empty.
TEST(EmptyBatchOfManyStepsNeedsNoMemoryForThem) {
  constexpr int64_t kMaxBytes = 1 << 16;
  SerialRunner runner;
  for (int64_t num_steps : {int64_t{1} << 31, int64_t{1} << 40, int64_t{1} << 62}) {
    for (bool time_major : {true, false}) {
      for (DataType data_type : {DataType::kFloat, DataType::kHalf, DataType::kBfloat16}) {
        Problem problem;
        problem.config.data_type = data_type;
        problem.config.num_layers = time_major ? 2 : 1;
        problem.shape = {num_steps, 0, time_major};
        std::unique_ptr<RnnPlan> plan;
        const Status created = CreateCpuPlan(problem.config, problem.shape, "", &plan);
        EXPECT(created.ok(), problem.Text(), ": ", created.message());
        if (!created.ok()) continue;
        const CallOptions options = problem.Options(/*is_training=*/true);
        EXPECT(plan->ForwardWorkspaceBytes(options) < kMaxBytes, problem.Text());
        EXPECT(plan->BackwardWorkspaceBytes(options) < kMaxBytes, problem.Text());
        EXPECT(plan->ReserveSpaceBytes() < kMaxBytes, problem.Text());
        ExpectPassedThrough(problem);
      }
    }
  }
  EXPECT(PackedSequences::NumElements({int64_t{1} << 62, 0}).value() == 0);
}

// The cost of a step is not the size of any buffer: it may overflow 64 bits even if no size does.
TEST(CostsOfEnormousStepsDoNotOverflow) {
  RnnConfig config;
  config.num_units = 1 << 20;
  std::unique_ptr<RnnPlan> plan;
  EXPECT_ERROR(CreateCpuPlan(config, {16, int64_t{1} << 40}, "", &plan), "64 bits");
  const Status created = CreateCpuPlan(config, {16, int64_t{1} << 30}, "", &plan);
  EXPECT(created.ok(), created.message());
}

TEST(TooLargeForTheInputIsRefused) {
  RnnConfig config;
  config.num_units = 1 << 20;
  std::unique_ptr<RnnPlan> plan;
  EXPECT_ERROR(CreateCpuPlan(config, {int64_t(1) << 40, int64_t(1) << 20}, "", &plan), "num_units",
               "64 bits");
  EXPECT_ERROR(CreateCpuPlan(config, {int64_t(1) << 62, 1}, "", &plan), "64 bits");
}

}  // namespace
}  // namespace cudnn_rnn
