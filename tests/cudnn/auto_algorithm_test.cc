// Tests the choice of the algorithm by trial: what is tried, what is chosen, when a choice is made
// again, and what a trial leaves behind.

#include <sstream>

#include "cudnn_rnn/cc/cudnn/algorithm_candidates.h"
#include "cudnn_rnn/cc/cudnn/algorithm_trial.h"
#include "tests/core/problem_text.h"
#include "tests/core/testing.h"
#include "tests/cudnn/mock/functions.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

// A problem for which every algorithm of the trial is a candidate.
Problem CandidateProblem() {
  Problem problem;
  problem.config.data_type = DataType::kHalf;
  problem.config.num_units = 128;
  problem.config.input_size = 128;
  problem.shape = {4, 8, true};
  return problem;
}

// A model of which only kPersistStaticSmallH is a candidate, so that trials are short.
Problem SmallProblem() {
  Problem problem;
  problem.config.num_units = 4;
  problem.config.input_size = 3;
  problem.shape = {4, 2, true};
  return problem;
}

constexpr int kSmallH = kCudnnAlgorithmPersistStaticSmallH;

// Expects the algorithm, and that a call with it works.
void ExpectAlgorithm(GpuModel* model, const Problem& problem, Algorithm expected) {
  EXPECT(AlgorithmOf(model, problem) == expected, problem.Text());
  const Status status = model->Run(problem, problem.Options(true), CallBuffers(problem, 1));
  EXPECT(status.ok(), problem.Text(), ": ", status.message());
}

TEST(TheFastestIsChosen) {
  const struct {
    int fastest;
    Algorithm expected;
  } cases[] = {{kCudnnAlgorithmStandard, Algorithm::kStandard},
               {kCudnnAlgorithmPersistStatic, Algorithm::kPersistStatic},
               {kSmallH, Algorithm::kPersistStaticSmallH}};
  for (const auto& test : cases) {
    for (const bool is_training : {true, false}) {
      MockGpu gpu;
      mock_set_algorithm_time(test.fastest, 0.5, 0.5);
      GpuModel model(gpu.runtime(), Algorithm::kAuto);
      EXPECT(AlgorithmOf(&model, CandidateProblem(), is_training) == test.expected,
             Name(test.expected));
    }
  }
}

TEST(AnAlgorithmThatIsHardlyFasterIsNotChosen) {
  for (const double time : {0.97, 0.9}) {
    MockGpu gpu;
    mock_set_algorithm_time(kCudnnAlgorithmStandard, 1, 1);
    mock_set_algorithm_time(kSmallH, time, time);
    GpuModel model(gpu.runtime(), Algorithm::kAuto);
    EXPECT(AlgorithmOf(&model, SmallProblem()) ==
               (time < 0.95 ? Algorithm::kPersistStaticSmallH : Algorithm::kStandard),
           time);
  }
}

TEST(ForwardAndBackwardCountTogetherInTraining) {
  MockGpu gpu;
  mock_set_algorithm_time(kCudnnAlgorithmStandard, 1, 2);
  mock_set_algorithm_time(kCudnnAlgorithmPersistStatic, 0.5, 4);
  mock_set_algorithm_time(kSmallH, 9, 9);
  GpuModel model(gpu.runtime(), Algorithm::kAuto);
  EXPECT(AlgorithmOf(&model, CandidateProblem(), true) == Algorithm::kStandard);
  EXPECT(AlgorithmOf(&model, CandidateProblem(), false) == Algorithm::kPersistStatic);
}

TEST(PersistDynamicIsNeverTried) {
  MockGpu gpu;
  mock_set_algorithm_support(kCudnnAlgorithmPersistStatic, MOCK_REFUSED_BY_FORWARD);
  mock_set_algorithm_support(kSmallH, MOCK_REFUSED_BY_DESCRIPTOR);
  mock_set_algorithm_time(kCudnnAlgorithmPersistDynamic, 0.1, 0.1);
  GpuModel model(gpu.runtime(), Algorithm::kAuto);
  EXPECT(AlgorithmOf(&model, CandidateProblem()) == Algorithm::kStandard);
  EXPECT(mock_calls("cudnnBuildRNNDynamic") == 0);
}

TEST(AnAlgorithmThatFailsIsNotChosen) {
  for (const int support : {MOCK_REFUSED_BY_DESCRIPTOR, MOCK_REFUSED_BY_SIZES,
                            MOCK_REFUSED_BY_FORWARD, MOCK_REFUSED_BY_BACKWARD, MOCK_FAILS_LATER}) {
    MockGpu gpu;
    mock_set_algorithm_time(kSmallH, 0.1, 0.1);
    mock_set_algorithm_support(kSmallH, support);
    GpuModel model(gpu.runtime(), Algorithm::kAuto);
    ExpectAlgorithm(&model, SmallProblem(), Algorithm::kStandard);
  }
}

// Returns the number that mock_fail_call needs now for the n-th call of the function, where `log`
// is that of a run that starts like this process.
int64_t NumberOfCall(const std::string& log, const std::string& function, int64_t n) {
  std::istringstream lines(log);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find(' '));
    if (name != "cuGetErrorString" && name != "cudnnGetErrorString") ++number;
    if (name == function && --n == 0) return number - mock_fallible_calls();
  }
  return 0;
}

Status WaitForStream(GpuRuntime* runtime) {
  GpuQueue queue(runtime, kStream, "waiting");
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  return CUDNN_RNN_DRIVER_CALL(queue, cuStreamSynchronize, kStream);
}

// Like TensorFlow's allocator, does not wait for the device when it frees memory.
class PoolAllocator : public DeviceAllocator {
 public:
  Status Allocate(int64_t bytes, MemoryNeed, std::unique_ptr<DeviceMemory>* memory) override {
    memory->reset(new Memory(bytes));
    return Status();
  }

 private:
  struct Memory : DeviceMemory {
    explicit Memory(int64_t bytes) : buffer(bytes) {}
    void* data() override { return buffer.data(); }
    const DeviceBuffer buffer;
  };
};

// A refusal ends a trial while kernels that were queued before it may still run.
TEST(AnErrorThatArrivesLateStaysInsideItsTrial) {
  std::string log;
  for (const bool is_refused : {false, true}) {
    MockGpu gpu;
    CudnnPlanCache plans(gpu.runtime(), CreateCpuPlan);
    PoolAllocator allocator;
    CudnnOptions options;
    options.algorithm = Algorithm::kAuto;
    Execution execution;
    execution.stream = kStream;
    execution.allocator = &allocator;
    mock_set_algorithm_time(kSmallH, 0.1, 0.1);
    if (is_refused) {
      mock_set_algorithm_support(kSmallH, MOCK_FAILS_LATER);
      // kStandard has run ten times by then.
      mock_fail_call(NumberOfCall(log, "cudnnRNNBackwardData_v8", 11), MOCK_NOT_SUPPORTED);
    }
    const Problem problem = SmallProblem();
    CudnnPlanCache::Found found;
    EXPECT(
        plans.Find(problem.config, problem.shape, problem.Options(true), options, execution, &found)
            .ok());
    EXPECT(found.algorithm ==
           (is_refused ? Algorithm::kStandard : Algorithm::kPersistStaticSmallH));
    log = mock_log();
    EXPECT(WaitForStream(gpu.runtime()).ok(), "the trial left an error behind");
  }
}

TEST(AnErrorOfEarlierWorkIsNotTheTrials) {
  MockGpu gpu;
  mock_set_algorithm_time(kSmallH, 0.1, 0.1);
  mock_set_algorithm_support(kCudnnAlgorithmPersistStatic, MOCK_FAILS_LATER);
  GpuModel earlier(gpu.runtime(), Algorithm::kPersistStatic);
  GpuModel model(gpu.runtime(), Algorithm::kAuto);
  const Problem problem = SmallProblem();
  EXPECT(earlier.Run(problem, problem.Options(false), CallBuffers(problem, 1)).ok());
  CudnnPlanCache::Found found;
  EXPECT_ERROR(model.Find(problem, problem.Options(true), &found), "cuStreamSynchronize",
               "trying algorithms");
  EXPECT(AlgorithmOf(&model, problem) == Algorithm::kPersistStaticSmallH, "nothing is kept");
}

TEST(OtherModelsUseTheChoiceWithoutAnotherTrial) {
  MockGpu gpu;
  mock_set_algorithm_time(kSmallH, 0.5, 0.5);
  GpuModel forward(gpu.runtime(), Algorithm::kAuto);
  EXPECT(AlgorithmOf(&forward, SmallProblem()) == Algorithm::kPersistStaticSmallH);
  mock_set_algorithm_time(kSmallH, 50, 50);  // now the slowest
  const int64_t calls = mock_calls("cudnnRNNForward");
  GpuModel backward(gpu.runtime(), Algorithm::kAuto);
  EXPECT(AlgorithmOf(&backward, SmallProblem()) == Algorithm::kPersistStaticSmallH);
  EXPECT(mock_calls("cudnnRNNForward") == calls, "nothing is tried again");
}

TEST(SimilarNumbersOfStepsShareTheChoiceButEachIsConfirmed) {
  MockGpu gpu;
  mock_set_algorithm_time(kSmallH, 0.5, 0.5);
  mock_limit_algorithm(kSmallH, MOCK_REFUSED_BY_FORWARD, 6, -1, -1);
  GpuModel model(gpu.runtime(), Algorithm::kAuto);
  Problem problem = SmallProblem();
  ExpectAlgorithm(&model, problem, Algorithm::kPersistStaticSmallH);
  mock_set_algorithm_time(kSmallH, 50, 50);
  int64_t calls = mock_calls("cudnnRNNForward");
  const struct {
    int64_t num_steps;
    Algorithm algorithm;
  } cases[] = {{5, Algorithm::kPersistStaticSmallH},
               {6, Algorithm::kPersistStaticSmallH},
               {7, Algorithm::kStandard}};
  for (const auto& test : cases) {
    problem.shape.num_steps = test.num_steps;
    EXPECT(AlgorithmOf(&model, problem) == test.algorithm, test.num_steps, " steps");
    EXPECT(mock_calls("cudnnRNNForward") == ++calls, "one call confirms the choice");
  }
  // The refusal is remembered, even if cuDNN has changed its mind.
  mock_set_algorithm_support(kSmallH, MOCK_SUPPORTED);
  GpuModel other(gpu.runtime(), Algorithm::kAuto);
  ExpectAlgorithm(&other, problem, Algorithm::kStandard);
  problem.shape.num_steps = 8;  // another group: timed again
  EXPECT(AlgorithmOf(&model, problem) == Algorithm::kStandard);
  EXPECT(mock_calls("cudnnRNNForward") > calls + 10);
}

TEST(TheStepsThatCudnnRefusesRunWithStandard) {
  Problem problem = SmallProblem();
  problem.config.num_units = 1;
  problem.config.input_size = 1;
  problem.shape.batch_size = 1;
  MockGpu gpu;
  mock_set_algorithm_time(kSmallH, 0.1, 0.1);
  GpuModel model(gpu.runtime(), Algorithm::kAuto);
  mock_limit_algorithm(kSmallH, MOCK_REFUSED_BY_FORWARD, 1023, -1, -1);
  for (const int64_t num_steps : {1023, 1024}) {
    problem.shape.num_steps = num_steps;
    EXPECT(AlgorithmOf(&model, problem) ==
           (num_steps == 1023 ? Algorithm::kPersistStaticSmallH : Algorithm::kStandard));
  }
}

TEST(APlanThatCudnnRefusesAfterTheChoiceFallsBackToStandard) {
  for (const int support : {MOCK_REFUSED_BY_DESCRIPTOR, MOCK_REFUSED_BY_SIZES}) {
    MockGpu gpu;
    mock_set_algorithm_time(kSmallH, 0.1, 0.1);
    const Problem problem = SmallProblem();
    GpuModel first(gpu.runtime(), Algorithm::kAuto);
    EXPECT(AlgorithmOf(&first, problem) == Algorithm::kPersistStaticSmallH);
    mock_set_algorithm_support(kSmallH, support);
    GpuModel forward(gpu.runtime(), Algorithm::kAuto);
    ExpectAlgorithm(&forward, problem, Algorithm::kStandard);
    // Another cache creates the gradient's plan, and must not choose differently.
    mock_set_algorithm_support(kSmallH, MOCK_SUPPORTED);
    GpuModel backward(gpu.runtime(), Algorithm::kAuto);
    ExpectAlgorithm(&backward, problem, Algorithm::kStandard);
  }
}

TEST(DevicesOfOneModelShareTheChoice) {
  void* const second_stream = reinterpret_cast<void*>(uintptr_t{0x60});
  MockGpu gpu;
  mock_set_num_devices(4);
  mock_set_algorithm_time(kSmallH, 0.1, 0.1);
  GpuModel model(gpu.runtime(), Algorithm::kAuto);
  EXPECT(AlgorithmOf(&model, SmallProblem()) == Algorithm::kPersistStaticSmallH);
  mock_set_algorithm_time(kSmallH, 50, 50);
  const struct {
    int device, compute_capability, multiprocessors;
    Algorithm algorithm;
  } cases[] = {{1, 80, 108, Algorithm::kPersistStaticSmallH},
               {2, 90, 108, Algorithm::kStandard},
               {3, 80, 132, Algorithm::kStandard}};
  for (const auto& test : cases) {
    mock_set_device(test.device, test.compute_capability, test.multiprocessors, int64_t{16} << 30);
    mock_set_stream_device(second_stream, test.device);
    GpuModel other(gpu.runtime(), Algorithm::kAuto);
    other.stream = second_stream;
    EXPECT(AlgorithmOf(&other, SmallProblem()) == test.algorithm, "device ", test.device);
  }
}

TEST(TrialsReturnTheirMemoryAndTakeNoMoreThanTheirShare) {
  MockGpu gpu;
  mock_set_algorithm_time(kSmallH, 0.1, 0.1);
  Problem problem = SmallProblem();
  problem.config.num_layers = 2;
  problem.config.dropout = 0.5f;
  {
    GpuModel model(gpu.runtime(), Algorithm::kAuto);
    EXPECT(AlgorithmOf(&model, problem) == Algorithm::kPersistStaticSmallH);
    EXPECT(mock_live("allocation") == 2, "the dropout state of the call itself");
    EXPECT(mock_live("rnn_descriptor") == 1);
    EXPECT(mock_live("event") == 1, "the dropout state's");
  }
  const int64_t needed = mock_peak_memory();
  EXPECT(mock_live("allocation") == 0 && needed > 0);
  for (const int64_t missing : {0, 1}) {
    mock_set_device(0, 80, 108 + static_cast<int>(missing) + 1,
                    (needed - missing) * kTrialMemoryShare);
    GpuModel model(gpu.runtime(), Algorithm::kAuto);
    ExpectAlgorithm(&model, problem,
                    missing == 0 ? Algorithm::kPersistStaticSmallH : Algorithm::kStandard);
  }
}

TEST(TooLittleMemoryForATrialUsesStandard) {
  MockGpu gpu;
  mock_set_algorithm_time(kSmallH, 0.1, 0.1);
  mock_set_memory_limit(0);
  GpuModel model(gpu.runtime(), Algorithm::kAuto);
  ExpectAlgorithm(&model, SmallProblem(), Algorithm::kStandard);
}

TEST(DeterminismPaddingAndProjectionUseStandardWithoutATrial) {
  Problem padded = SmallProblem(), batch_major = SmallProblem(), projected = SmallProblem();
  padded.lengths = {4, 3};
  batch_major.shape.time_major = false;
  projected.config.num_proj = 2;
  for (const Problem& problem : {SmallProblem(), padded, batch_major, projected}) {
    MockGpu gpu;
    mock_set_algorithm_time(kSmallH, 0.1, 0.1);
    GpuModel model(gpu.runtime(), Algorithm::kAuto);
    model.options.deterministic = problem.Text() == SmallProblem().Text();
    EXPECT(AlgorithmOf(&model, problem) == Algorithm::kStandard, problem.Text());
    EXPECT(mock_calls("cudnnRNNForward") == 0, problem.Text());
  }
}

TEST(FullLengthsAreNoPadding) {
  MockGpu gpu;
  mock_set_algorithm_time(kSmallH, 0.1, 0.1);
  GpuModel model(gpu.runtime(), Algorithm::kAuto);
  Problem problem = SmallProblem();
  problem.lengths = {4, 4};
  EXPECT(AlgorithmOf(&model, problem) == Algorithm::kPersistStaticSmallH);
}

// What WhyNotTried says of each persistent algorithm: a part of the reason, or "" if it is tried.
struct CandidateCase {
  int compute_capability, multiprocessors;
  RnnMode mode;
  int64_t num_units, num_steps, batch_size;
  bool is_training;
  const char* persist_static;
  const char* small_h;
};

DeviceModel Device(int compute_capability, int multiprocessors) {
  DeviceModel device;
  device.compute_capability_major = compute_capability / 10;
  device.compute_capability_minor = compute_capability % 10;
  device.num_multiprocessors = multiprocessors;
  return device;
}

TEST(KnownBadCombinationsAreNotTried) {
  const RnnMode lstm = RnnMode::kLstm, gru = RnnMode::kGru, relu = RnnMode::kRelu;
  const CandidateCase cases[] = {
      {90, 132, lstm, 128, 65535, 8, true, "", ""},
      {80, 108, gru, 128, 50, 8, true, "GRU", ""},
      {70, 80, gru, 128, 50, 8, true, "", ""},
      {80, 108, lstm, 128, 50, 12, true, "multiple of 8", ""},
      {90, 132, lstm, 512, 100, 1, true, "", "limits"},
      {80, 108, lstm, 192, 50, 8, false, "multiples of 128", ""},
      {80, 108, lstm, 1152, 50, 8, false, "1024", "limits"},
      {80, 108, lstm, 256, 50, 8, true, "", "limits"},
      {80, 108, relu, 256, 50, 8, true, "", ""},
      {80, 108, relu, 384, 50, 8, true, "", "limits"},
      {80, 108, relu, 384, 50, 8, false, "", ""},
      {75, 40, lstm, 128, 50, 8, true, "sm_75", "sm_75"},
      {86, 84, lstm, 128, 50, 8, true, "sm_86", "sm_86"},
      {80, 56, lstm, 128, 50, 8, true, "A30", "A30"},
      {61, 28, lstm, 128, 50, 8, true, "before sm_70", ""},
      {52, 24, lstm, 128, 50, 8, true, "6.0", "6.0"},
  };
  for (const CandidateCase& test : cases) {
    const DeviceModel device = Device(test.compute_capability, test.multiprocessors);
    RnnConfig config;
    config.data_type = DataType::kHalf;
    config.mode = test.mode;
    config.num_units = config.input_size = test.num_units;
    const SequenceShape shape = {test.num_steps, test.batch_size, true};
    const CandidateCall call = {device, config, shape, test.is_training};
    const std::string text =
        Concatenate("sm_", test.compute_capability, ", ", ProblemText(config, shape, {}));
    size_t num_tried = 0;
    const struct {
      Algorithm algorithm;
      std::string expected;
    } algorithms[] = {{Algorithm::kPersistStatic, test.persist_static},
                      {Algorithm::kPersistStaticSmallH, test.small_h},
                      {Algorithm::kPersistDynamic, "compiles"}};
    for (const auto& tried : algorithms) {
      const char* const reason = WhyNotTried(tried.algorithm, call);
      EXPECT((reason == nullptr) == tried.expected.empty(), text, ": ",
             reason == nullptr ? "tried" : reason);
      if (reason == nullptr) ++num_tried;
      if (reason == nullptr || tried.expected.empty()) continue;
      EXPECT(std::string(reason).find(tried.expected) != std::string::npos, text, ": ", reason);
    }
    EXPECT(AlgorithmsToTry(call).size() == num_tried);
  }
}

TEST(PersistStaticIsTriedWhereItHasRun) {
  RnnConfig one_half_layer, single, two_layers, bidirectional;
  for (RnnConfig* config : {&one_half_layer, &single, &two_layers, &bidirectional}) {
    config->data_type = config == &single ? DataType::kFloat : DataType::kHalf;
    config->num_units = config->input_size = 128;
  }
  two_layers.num_layers = 2;
  bidirectional.direction = Direction::kBidirectional;
  for (const int capability : {80, 89, 90, 100, 120}) {
    for (const RnnConfig* config : {&one_half_layer, &single, &two_layers, &bidirectional}) {
      const CandidateCall call = {Device(capability, 132), *config, {50, 8, true}, true};
      const bool is_tried = WhyNotTried(Algorithm::kPersistStatic, call) == nullptr;
      EXPECT(is_tried == (capability == 90 || config == &one_half_layer), "sm_", capability, ", ",
             ProblemText(*config, call.shape, {}));
    }
  }
}

TEST(TheDeviceDecidesWhatIsTried) {
  for (const int compute_capability : {75, 80, 86}) {
    MockGpu gpu;
    mock_set_algorithm_time(kSmallH, 0.1, 0.1);
    mock_set_device(0, compute_capability, 108, int64_t{16} << 30);
    GpuModel model(gpu.runtime(), Algorithm::kAuto);
    const bool is_tried = compute_capability == 80;
    EXPECT(AlgorithmOf(&model, SmallProblem()) ==
           (is_tried ? Algorithm::kPersistStaticSmallH : Algorithm::kStandard));
    EXPECT((mock_calls("cudnnRNNForward") > 0) == is_tried, "sm_", compute_capability);
  }
}

}  // namespace
}  // namespace cudnn_rnn
