// Tests handles, dropout states and memory on several streams, and calls that CUDA graphs record.

#include "cudnn_rnn/cc/cudnn/gpu_queue.h"
#include "tests/core/testing.h"
#include "tests/cudnn/mock/functions.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

void* const kOtherStream = reinterpret_cast<void*>(uintptr_t{0x90});

Problem DroppingProblem() {
  Problem problem;
  problem.config.num_layers = 2;
  problem.config.num_units = 6;
  problem.config.input_size = 5;
  problem.config.dropout = 0.5f;
  problem.config.seed = 3;
  problem.shape = {4, 3, true};
  return problem;
}

// A model, and memory for its calls on one stream. The memory is never that of another stream.
class Caller {
 public:
  Caller(GpuModel* model, const Problem& problem, void* stream)
      : model_(model), problem_(problem), stream_(stream), buffers_(problem, 3) {}

  Status Forward(int64_t call_index) {
    const CallOptions call = problem_.Options(/*is_training=*/true, call_index);
    model_->stream = stream_;
    CudnnPlanCache::Found found;
    CUDNN_RNN_RETURN_IF_ERROR(model_->Find(problem_, call, &found));
    if (reserve_space_ == nullptr) {
      reserve_space_.reset(new DeviceBuffer(found.plan->ReserveSpaceBytes()));
      workspace_.reset(new DeviceBuffer(found.plan->ForwardWorkspaceBytes(call)));
    }
    Execution execution;
    execution.stream = stream_;
    return found.plan->Forward(buffers_.Forward(*reserve_space_, *workspace_), call, execution);
  }

 private:
  GpuModel* const model_;
  const Problem problem_;
  void* const stream_;
  const CallBuffers buffers_;
  std::unique_ptr<DeviceBuffer> reserve_space_, workspace_;
};

TEST(AHandleBelongsToOneStream) {
  const struct {
    Algorithm algorithm;
    DataType data_type;
    bool tries_algorithms;
    bool checks_bfloat16;
  } cases[] = {{Algorithm::kStandard, DataType::kFloat, false, false},
               {Algorithm::kAuto, DataType::kFloat, true, false},
               {Algorithm::kStandard, DataType::kBfloat16, false, true}};
  for (const auto& test : cases) {
    MockGpu gpu;
    GpuModel model(gpu.runtime(), test.algorithm);
    Problem problem = DroppingProblem();
    problem.config.data_type = test.data_type;
    Problem other = problem;  // whose mode needs another trial or check
    other.config.mode = RnnMode::kGru;
    Caller here(&model, problem, kStream), there(&model, other, kOtherStream);
    for (int64_t i = 0; i < 3; ++i) EXPECT(here.Forward(i).ok());
    EXPECT(mock_calls("cudnnCreate") == 1, "one call holds at most one handle");
    EXPECT(mock_calls("cudnnSetStream") == 1 && mock_live("handle") == 1);
    const int64_t measurements = mock_calls("cuEventElapsedTime");
    const int64_t results_read = mock_calls("cuMemcpyDtoHAsync_v2");
    EXPECT((measurements > 0) == test.tries_algorithms, measurements);
    EXPECT((results_read > 0) == test.checks_bfloat16, results_read);
    for (int64_t i = 0; i < 3; ++i) EXPECT(there.Forward(i).ok() && here.Forward(i).ok());
    EXPECT(mock_live("handle") == 2 && mock_calls("cudnnCreate") == 2, mock_calls("cudnnCreate"));
    EXPECT(mock_calls("cudnnSetStream") == 2, mock_calls("cudnnSetStream"));
    EXPECT((mock_calls("cuEventElapsedTime") > measurements) == test.tries_algorithms);
    EXPECT((mock_calls("cuMemcpyDtoHAsync_v2") > results_read) == test.checks_bfloat16);
  }
}

TEST(CopiesNeedNoHandle) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  Problem problem = DroppingProblem();
  problem.shape.num_steps = 0;
  EXPECT(model.Run(problem, problem.Options(true), CallBuffers(problem, 1)).ok());
  EXPECT(mock_calls("cudnnCreate") == 0 && mock_live("allocation") == 0);
}

TEST(AGraphRecordsOnlyCallsThatHaveRun) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  model.options.algorithm = Algorithm::kStandard;
  Caller caller(&model, DroppingProblem(), kStream);
  mock_set_capturing(kStream, 1);
  const Status status = caller.Forward(0);
  EXPECT(status.code() == StatusCode::kFailedPrecondition, static_cast<int>(status.code()));
  EXPECT_ERROR(status, "records a CUDA graph", "preparing a new model or shape",
               "Run the same call once");
  EXPECT(mock_calls("cudnnCreate") == 0);
  mock_set_capturing(kStream, 0);
  EXPECT(caller.Forward(0).ok());
  mock_set_capturing(kStream, 1);
  EXPECT(caller.Forward(1).ok(), "recording a call that has run");
  Problem other_rate = DroppingProblem();
  other_rate.config.dropout = 0.25f;
  EXPECT_ERROR(Caller(&model, other_rate, kStream).Forward(0), "preparing a new model or shape");
  model.options.algorithm = Algorithm::kAuto;
  EXPECT_ERROR(Caller(&model, other_rate, kStream).Forward(0), "preparing a new model or shape");
  Problem longer = DroppingProblem();
  ++longer.shape.num_steps;
  model.options.algorithm = Algorithm::kStandard;
  EXPECT_ERROR(Caller(&model, longer, kStream).Forward(2), "preparing a new model or shape");
  model.options.algorithm = Algorithm::kPersistDynamic;
  const Status compiling = Caller(&model, longer, kStream).Forward(3);
  EXPECT(compiling.code() == StatusCode::kFailedPrecondition, static_cast<int>(compiling.code()));
  EXPECT_ERROR(compiling, "records a CUDA graph", "preparing a new model or shape");
  EXPECT(mock_calls("cudnnBuildRNNDynamic") == 0);
  mock_set_capturing(kStream, 0);  // before the model is released
}

TEST(AnEventOrdersTheUsesOfADropoutState) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  Caller here(&model, DroppingProblem(), kStream);
  Caller there(&model, DroppingProblem(), kOtherStream);
  EXPECT(there.Forward(0).ok(), "where the state is initialized");
  for (const int64_t call : {0, 1, 0}) {  // call 0 restarts the generator
    EXPECT(here.Forward(call).ok(), mock_violation_text());
    EXPECT(there.Forward(call).ok(), mock_violation_text());
  }
  const int64_t waits = mock_calls("cuStreamWaitEvent");
  EXPECT(there.Forward(1).ok() && mock_calls("cuStreamWaitEvent") == waits, "the same stream");
  ExpectNoViolations("uses of a dropout state");
}

TEST(AGraphAndCallsOutsideShareADropoutStateOnOneStreamOnly) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  Caller here(&model, DroppingProblem(), kStream);
  Caller there(&model, DroppingProblem(), kOtherStream);
  EXPECT(here.Forward(0).ok() && there.Forward(1).ok());
  mock_set_capturing(kStream, 1);
  const int64_t waits = mock_calls("cuStreamWaitEvent");
  EXPECT_ERROR(here.Forward(2), "CUDA graph", "on another stream", "on the same stream");
  mock_set_capturing(kStream, 0);
  EXPECT(here.Forward(2).ok());
  mock_set_capturing(kStream, 1);
  const int64_t records = mock_calls("cuEventRecord");
  EXPECT(here.Forward(3).ok(), "its last call was on this stream");
  EXPECT(mock_calls("cuEventRecord") == records, "an event of a graph tells nothing outside");
  mock_set_capturing(kStream, 0);
  EXPECT_ERROR(there.Forward(4), "CUDA graph");
  EXPECT(mock_calls("cuStreamWaitEvent") == waits + 1, "that of the call between");
  EXPECT(here.Forward(4).ok() && there.Forward(5).ok());
  ExpectNoViolations("dropout in a CUDA graph");
}

TEST(OldCudnnCopiesNoLengthsInAGraph) {
  MockGpu gpu;
  mock_set_version(8600);
  gpu.Reopen();
  GpuModel model(gpu.runtime());
  Problem problem = DroppingProblem();
  problem.config.dropout = 0;
  Caller caller(&model, problem, kStream);
  EXPECT(caller.Forward(0).ok());
  mock_set_capturing(kStream, 1);
  EXPECT_ERROR(caller.Forward(1), "copying sequence lengths", "before 8.9.1");
  mock_set_capturing(kStream, 0);
}

int64_t num_copies, last_bytes;

TEST(ACopyBeyondTheLargestPitchIsMadeRowByRow) {
  MockGpu gpu;
  gpu.libraries()->cuMemcpy2DAsync_v2 = [](const DriverCopy2d*, void*) { return 1; };
  gpu.libraries()->cuMemcpyDtoDAsync_v2 = [](DeviceAddress, DeviceAddress, size_t bytes, void*) {
    ++num_copies;
    last_bytes = static_cast<int64_t>(bytes);
    return 0;
  };
  GpuQueue queue(gpu.runtime(), kStream, "copying");
  EXPECT(queue.Begin().ok());
  num_copies = 0;
  char memory[16];
  const int64_t pitch = int64_t{1} << 31;
  EXPECT(queue.Copy2d(memory, memory, {8, 3, pitch, 16}).ok() && num_copies == 3);
  EXPECT(queue.Copy2d(memory, memory, {8, 3, 16, pitch}).ok() && num_copies == 6);
  EXPECT(last_bytes == 8 && !queue.Copy2d(memory, memory, {8, 3, pitch - 1, 16}).ok());
}

TEST(ADropoutStateIsLeftAloneIfTheDriverIsGone) {
  MockGpu gpu;
  gpu.AllowObjectsLeft(20);
  {
    GpuModel model(gpu.runtime());
    EXPECT(Caller(&model, DroppingProblem(), kStream).Forward(0).ok());
    mock_reset();
    gpu.libraries()->cuCtxPushCurrent_v2 = [](void*) { return 4; };  // CUDA_ERROR_DEINITIALIZED
  }
  EXPECT(mock_calls("cuEventDestroy_v2") == 0 && mock_calls("cuEventSynchronize") == 0);
}

TEST(ADropoutStateIsFreedAfterItsLastUse) {
  for (void* const last : {kStream, kOtherStream}) {
    MockGpu gpu;
    {
      GpuModel model(gpu.runtime());
      model.options.algorithm = Algorithm::kStandard;
      // Both callers live until the end, because the mock identifies memory by its address.
      Caller here(&model, DroppingProblem(), kStream), there(&model, DroppingProblem(), last);
      EXPECT(here.Forward(0).ok());
      if (last != kStream) EXPECT(there.Forward(1).ok());
      mock_reset();
    }
    EXPECT(mock_calls("cuEventSynchronize") == (last == kStream ? 0 : 1));
    EXPECT(mock_live("allocation") == 0 && mock_live("event") == 0);
  }
}

TEST(AGradientHasADropoutStateOfItsOwn) {
  MockGpu gpu;
  GpuModel forward(gpu.runtime()), backward(gpu.runtime());
  forward.options.algorithm = backward.options.algorithm = Algorithm::kStandard;
  const Problem problem = DroppingProblem();
  const CallOptions call = problem.Options(/*is_training=*/true);
  const CallBuffers buffers(problem, 3), expected(problem, 3);
  std::unique_ptr<DeviceBuffer> reserve_space;
  EXPECT(forward.Forward(problem, call, buffers, &reserve_space).ok());
  mock_reset();
  EXPECT(backward.Backward(problem, call, buffers, *reserve_space).ok(), mock_violation_text());
  EXPECT(mock_calls("cudnnRestoreDropoutDescriptor") == 1, mock_log());
  mock_reset();
  EXPECT(backward.Backward(problem, call, buffers, *reserve_space).ok(), mock_violation_text());
  EXPECT(mock_calls("cuMemAlloc_v2") == 0 && mock_host_waits() == 0, mock_log());
  EXPECT(RunOnCpu(problem, call, expected).ok());
  EXPECT(LargestDifference(ReadResults(problem, true, expected),
                           ReadResults(problem, true, buffers)) == 0);
}

unsigned long long last_seed;  // NOLINT: cuDNN's type

TEST(TheSeedsAreCombinedAsInTensorFlow) {
  const struct {
    int64_t seed, seed2;
    uint64_t expected;
  } cases[] = {{0, 0, 0},
               {1, 0, uint64_t{1} << 32},
               {0, 7, 7},
               {0x12345678, 0x7abcdef0, 0x123456787abcdef0},
               {1, -1, 0xffffffffffffffff}};
  for (const auto& test : cases) {
    MockGpu gpu;
    gpu.libraries()->cudnnSetDropoutDescriptor =
        [](void* descriptor, void* handle, float dropout, void* states, size_t states_bytes,
           unsigned long long seed) {  // NOLINT: cuDNN's type
          if (states != nullptr) last_seed = seed;
          return cudnnSetDropoutDescriptor(descriptor, handle, dropout, states, states_bytes, seed);
        };
    GpuModel model(gpu.runtime());
    Problem problem = DroppingProblem();
    problem.config.seed = test.seed;
    problem.config.seed2 = test.seed2;
    last_seed = 99;
    EXPECT(Caller(&model, problem, kStream).Forward(0).ok());
    EXPECT(last_seed == test.expected, last_seed, " instead of ", test.expected);
  }
}

}  // namespace
}  // namespace cudnn_rnn
