// Makes every call to the driver and to cuDNN, and every allocation of host memory, fail once. Each
// time there must be a clean error or a fallback, nothing may leak, and everything must work
// afterwards.

#include <sstream>

#include "cudnn_rnn/cc/core/exceptions.h"
#include "tests/core/testing.h"
#include "tests/cudnn/failing_allocations.h"
#include "tests/cudnn/mock/mock_cudnn.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

struct Scenario {
  const char* name;
  Problem problem;
  bool is_training;
  bool padded_weights;
  int64_t version;
  Algorithm algorithm = Algorithm::kStandard;
};

std::vector<Scenario> Scenarios() {
  Problem plain;
  plain.config.num_layers = 2;
  plain.config.num_units = 5;
  plain.config.input_size = 3;
  plain.shape = {3, 4, true};
  Problem dropping = plain;
  dropping.config.dropout = 0.5f;
  Problem padded = dropping;
  padded.config.direction = Direction::kBidirectional;
  padded.lengths = {3, 0, 1, 0};
  padded.shape.time_major = false;
  Problem bfloat16 = padded;
  bfloat16.config.data_type = DataType::kBfloat16;
  Problem empty = plain;
  empty.shape.num_steps = 0;
  Problem small_h = dropping;  // with a trial of two algorithms
  small_h.config.num_units = 16;
  return {{"inference", plain, false, false, 91300},
          {"training with dropout", dropping, true, false, 91300},
          {"training with padding", padded, true, true, 8100},
          {"training in bfloat16", bfloat16, true, false, 91300},
          {"no steps", empty, true, false, 91300},
          {"training with a trial", small_h, true, false, 91300, Algorithm::kAuto}};
}

void ExpectResultsOfCpu(const Scenario& scenario, const CallBuffers& gpu, const std::string& text) {
  const CallBuffers cpu(scenario.problem, 5);
  const CallOptions call = scenario.problem.Options(scenario.is_training);
  EXPECT(RunOnCpu(scenario.problem, call, cpu).ok(), text);
  const double difference =
      LargestDifference(ReadResults(scenario.problem, scenario.is_training, cpu),
                        ReadResults(scenario.problem, scenario.is_training, gpu));
  EXPECT(difference < 2e-2, text, ": differ by ", difference);
}

void ExpectRightResults(const Scenario& scenario, GpuModel* model, const std::string& text) {
  const CallBuffers buffers(scenario.problem, 5);
  const CallOptions call = scenario.problem.Options(scenario.is_training);
  const Status status = model->Run(scenario.problem, call, buffers);
  EXPECT(status.ok(), text, ": ", status.message());
  ExpectResultsOfCpu(scenario, buffers, text);
}

// Returns the names of the calls that could fail, in order.
std::vector<std::string> FallibleCalls() {
  std::vector<std::string> names;
  std::istringstream lines(mock_log());
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find(' '));
    const bool can_fail =
        name != "cuGetErrorString" && name != "cudnnGetErrorString" && name != "cudnnGetVersion";
    if (can_fail) names.push_back(name);
  }
  return names;
}

void SetOptions(const Scenario& scenario, MockGpu* gpu) {
  mock_set_padded_weights(scenario.padded_weights);
  mock_set_version(scenario.version);
  gpu->Reopen();
}

void ExpectCleanEnd(const std::string& text) {
  ExpectNoViolations(text);
  EXPECT(mock_live("pushed_context") == 0, text);
}

// Simulates a new process in which the n-th fallible call, a call of `function`, fails (0: none).
// Returns the process's fallible calls.
std::vector<std::string> RunWithFailure(const Scenario& scenario, size_t n,
                                        const std::string& function, int failure, bool* had_error) {
  const std::string text =
      Concatenate(scenario.name, ", call ", n, ", ", function, ", failing as ", failure);
  MockGpu gpu;
  SetOptions(scenario, &gpu);
  if (function == "cuCtxPushCurrent_v2") gpu.AllowObjectsLeft(1);
  std::vector<std::string> calls;
  {
    GpuModel model(gpu.runtime(), scenario.algorithm);
    const CallOptions call = scenario.problem.Options(scenario.is_training);
    const CallBuffers buffers(scenario.problem, 5);
    const size_t before = FallibleCalls().size();
    if (n > 0) mock_fail_call(static_cast<int64_t>(n), failure);
    const Status status = model.Run(scenario.problem, call, buffers);
    calls = FallibleCalls();
    calls.erase(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(before));
    *had_error = !status.ok();
    EXPECT(status.ok() || status.message().find(" failed with ") != std::string::npos, text, ": ",
           status.message());
    ExpectCleanEnd(text);
    ExpectRightResults(scenario, &model, text + ", afterwards");
  }
  return calls;
}

TEST(EveryCallFailsOnce) {
  for (const Scenario& scenario : Scenarios()) {
    for (const int failure :
         {MOCK_EXECUTION_FAILED, MOCK_OUT_OF_MEMORY, MOCK_NOT_SUPPORTED, MOCK_INTERNAL_ERROR}) {
      bool had_error;
      const std::vector<std::string> calls = RunWithFailure(scenario, 0, "", failure, &had_error);
      const size_t num_calls = calls.size();
      EXPECT(!had_error && num_calls > 0, scenario.name);
      int num_failures = 0, num_errors = 0;
      for (size_t n = 1; n <= num_calls; ++n) {
        if (!testing::IsInSample(static_cast<int64_t>(n) * 4 + failure)) continue;
        RunWithFailure(scenario, n, calls[n - 1], failure, &had_error);
        ++num_failures;
        num_errors += had_error;
      }
      // Failures of algorithm trials, and of releases, need not make the user's call fail.
      EXPECT(num_errors > 0, scenario.name, ": none of ", num_failures,
             " failures ended in an error");
      std::printf("  %s: %d of %d failures end in an error\n", scenario.name, num_errors,
                  num_failures);
    }
  }
}

// Simulates a new process in which allocation `n` fails, alone or with all that follow. Returns
// whether the process made that allocation.
bool RunWithFailingAllocation(const Scenario& scenario, int64_t n, bool all_follow) {
  const std::string text =
      Concatenate(scenario.name, ", allocation ", n, all_follow ? " and all after" : "");
  MockGpu gpu;
  SetOptions(scenario, &gpu);
  GpuModel model(gpu.runtime(), scenario.algorithm);
  const CallOptions call = scenario.problem.Options(scenario.is_training);
  const CallBuffers buffers(scenario.problem, 5);
  FailAllocation(n, all_follow);
  const Status status = CatchExceptions([&] { return model.Run(scenario.problem, call, buffers); });
  const bool has_failed = StopFailingAllocations();
  EXPECT(status.ok() || status.code() == StatusCode::kResourceExhausted, text, ": ",
         status.message());
  ExpectCleanEnd(text);
  if (status.ok()) ExpectResultsOfCpu(scenario, buffers, text);
  ExpectRightResults(scenario, &model, text + ", afterwards");
  return has_failed;
}

TEST(EveryAllocationFailsOnce) {
  for (const Scenario& scenario : Scenarios()) {
    for (const bool all_follow : {false, true}) {
      int num_failures = 0;
      for (int64_t n = 1;; ++n) {
        if (!testing::IsInSample(n)) continue;
        if (!RunWithFailingAllocation(scenario, n, all_follow)) break;
        ++num_failures;
      }
      EXPECT(num_failures > 0, scenario.name, ": no allocation failed");
      std::printf("  %s: %d failed allocations\n", scenario.name, num_failures);
    }
  }
}

TEST(ALostGpuCausesOnlyErrors) {
  for (const Scenario& scenario : Scenarios()) {
    MockGpu gpu;
    GpuModel model(gpu.runtime(), scenario.algorithm);
    ExpectRightResults(scenario, &model, scenario.name);
    mock_fail_calls_from(1, MOCK_EXECUTION_FAILED);
    for (int i = 0; i < 3; ++i) {
      const CallBuffers buffers(scenario.problem, 5);
      const CallOptions call = scenario.problem.Options(scenario.is_training);
      EXPECT_ERROR(model.Run(scenario.problem, call, buffers), "cuStreamGetCtx", "failed with");
    }
    mock_fail_calls_from(1, MOCK_NO_FAILURE);
  }
}

}  // namespace
}  // namespace cudnn_rnn
