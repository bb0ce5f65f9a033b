// Tests which objects are reused, the cost of each call, and state that persists between calls.

#include <algorithm>
#include <set>
#include <string>
#include <thread>

#include "tests/core/testing.h"
#include "tests/cudnn/mock/mock_cudnn.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

Problem SmallProblem() {
  Problem problem;
  problem.config.num_layers = 2;
  problem.config.num_units = 6;
  problem.config.input_size = 5;
  problem.config.seed = 99;
  problem.shape = {4, 3, true};
  return problem;
}

// Expects no call that creates, sets or builds objects, or makes the host wait.
void ExpectOnlyQueuedWork(const std::string& text) {
  for (const char* function :
       {"cudnnCreate", "cudnnDestroy", "cudnnCreateTensorDescriptor", "cudnnSetTensorNdDescriptor",
        "cudnnCreateDropoutDescriptor", "cudnnSetDropoutDescriptor",
        "cudnnRestoreDropoutDescriptor", "cudnnCreateRNNDescriptor", "cudnnSetRNNDescriptor_v8",
        "cudnnBuildRNNDynamic", "cudnnCreateRNNDataDescriptor", "cudnnGetRNNTempSpaceSizes",
        "cudnnGetRNNWeightParams", "cuMemAlloc_v2", "cuMemFree_v2", "cuEventCreate"}) {
    EXPECT(mock_calls(function) == 0, text, ": ", function, " was called");
  }
  EXPECT(mock_host_waits() == 0, text, ": the host waited: ", mock_log());
}

TEST(SteadyStateOnlyQueuesWork) {
  for (const DataType data_type : {DataType::kFloat, DataType::kBfloat16}) {
    for (const bool is_training : {false, true}) {
      for (const std::vector<int32_t>& lengths :
           {std::vector<int32_t>{}, std::vector<int32_t>{4, 0, 2}}) {
        MockGpu gpu;
        GpuModel forward(gpu.runtime()), backward(gpu.runtime());
        Problem problem = SmallProblem();
        problem.config.data_type = data_type;
        problem.config.dropout = 0.5f;
        problem.lengths = lengths;
        const CallBuffers buffers(problem, 3);
        std::unique_ptr<DeviceBuffer> reserve_space;
        for (int64_t i = 0; i < 5; ++i) {
          if (i == 1) mock_reset();
          // Repeats call 0: restarting the dropout sequence only copies the state.
          const CallOptions call = problem.Options(is_training, i % 2);
          EXPECT(forward.Forward(problem, call, buffers, &reserve_space).ok());
          if (!is_training) continue;
          EXPECT(backward.Backward(problem, call, buffers, *reserve_space).ok());
        }
        ExpectOnlyQueuedWork(problem.Text());
        EXPECT(mock_calls("cudnnSetRNNDataDescriptor") == 0, problem.Text());
        EXPECT(mock_calls("cudnnRNNForward") == 4, problem.Text());
        EXPECT(mock_calls("cudnnRNNBackwardWeights_v8") == (is_training ? 4 : 0));
      }
    }
  }
}

TEST(OtherLengthsOnlySetTheDataDescriptors) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  Problem problem = SmallProblem();
  problem.lengths = {4, 1, 2};
  EXPECT(model.Run(problem, problem.Options(true), CallBuffers(problem, 3)).ok());
  mock_reset();
  problem.lengths = {1, 3, 0};
  EXPECT(model.Run(problem, problem.Options(true), CallBuffers(problem, 3)).ok());
  ExpectOnlyQueuedWork(problem.Text());
  EXPECT(mock_calls("cudnnSetRNNDataDescriptor") == 2);
}

// cuDNN, like the mock, writes only a part of the reserve space.
TEST(ReserveSpacesHoldNoOldMemory) {
  for (const DataType data_type : {DataType::kHalf, DataType::kFloat, DataType::kDouble}) {
    MockGpu gpu;
    Problem problem = SmallProblem();
    problem.config.data_type = data_type;
    const CallOptions call = problem.Options(/*is_training=*/true);
    const CallBuffers buffers(problem, 3);
    std::vector<std::string> contents;
    for (const int old : {0xff, 0x5a}) {
      GpuModel model(gpu.runtime());
      CudnnPlanCache::Found found;
      EXPECT(model.Find(problem, call, &found).ok());
      const DeviceBuffer reserve_space(found.plan->ReserveSpaceBytes());
      const DeviceBuffer workspace(found.plan->ForwardWorkspaceBytes(call));
      std::fill_n(reserve_space.data(), reserve_space.bytes(), static_cast<char>(old));
      Execution execution;
      execution.stream = kStream;
      EXPECT(found.plan->Forward(buffers.Forward(reserve_space, workspace), call, execution).ok());
      contents.emplace_back(reserve_space.data(), static_cast<size_t>(reserve_space.bytes()));
    }
    EXPECT(contents[0] == contents[1], problem.Text());
  }
}

TEST(PlansOfManyShapesStayBounded) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  Problem problem = SmallProblem();
  for (int64_t steps = 1; steps <= 300; ++steps) {
    problem.shape.num_steps = steps;
    CudnnPlanCache::Found found;
    EXPECT(model.Find(problem, problem.Options(false), &found).ok());
  }
  EXPECT(mock_live("rnn_data_descriptor") == 2 * 256, mock_live("rnn_data_descriptor"));
  EXPECT(mock_live("rnn_descriptor") == 1, "all lengths share one");
  mock_reset();
  CudnnPlanCache::Found found;
  EXPECT(model.Find(problem, problem.Options(false), &found).ok());
  EXPECT(mock_calls("cudnnCreateRNNDataDescriptor") == 0, "the newest must still be there");
}

TEST(NothingIsDestroyedIfTheDriverIsGone) {
  MockGpu gpu;
  const Problem problem = SmallProblem();
  std::unique_ptr<GpuModel> model(new GpuModel(gpu.runtime(), Algorithm::kPersistDynamic));
  EXPECT(model->Run(problem, problem.Options(true), CallBuffers(problem, 3)).ok());
  mock_reset();
  mock_fail_calls_from(1, MOCK_EXECUTION_FAILED);
  model.reset();
  const int64_t attempts = mock_calls("cuCtxPushCurrent_v2");
  EXPECT(attempts > 0 && mock_calls(nullptr) == attempts, mock_log());
  gpu.AllowObjectsLeft(mock_live(nullptr));
}

TEST(PersistDynamicIsCompiledOnceForEachModelAndBatchSize) {
  MockGpu gpu;
  GpuModel model(gpu.runtime(), Algorithm::kPersistDynamic);
  Problem problem = SmallProblem();
  int64_t models = 0;
  for (const int64_t batch_size : {3, 5}) {
    ++models;
    problem.shape.batch_size = batch_size;
    for (int64_t steps = 1; steps <= 20; ++steps) {
      problem.shape.num_steps = steps;
      const CallBuffers cpu(problem, 3), on_gpu(problem, 3);
      EXPECT(RunOnCpu(problem, problem.Options(true), cpu).ok());
      EXPECT(model.Run(problem, problem.Options(true), on_gpu).ok());
      EXPECT(LargestDifference(ReadResults(problem, true, cpu),
                               ReadResults(problem, true, on_gpu)) < 1e-5);
    }
    EXPECT(mock_calls("cudnnBuildRNNDynamic") == models, mock_calls("cudnnBuildRNNDynamic"));
  }
}

TEST(DropoutContinuesAndRestarts) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  Problem problem = SmallProblem();
  problem.config.dropout = 0.5f;
  std::set<std::vector<double>> outputs;
  for (const int64_t call : {0, 1, 2, 0, 1, 0, 0}) {
    const CallBuffers cpu(problem, 3), on_gpu(problem, 3);
    EXPECT(RunOnCpu(problem, problem.Options(true, call), cpu).ok());
    EXPECT(model.Run(problem, problem.Options(true, call), on_gpu).ok());
    const Results expected = ReadResults(problem, true, cpu);
    EXPECT(LargestDifference(expected, ReadResults(problem, true, on_gpu)) < 1e-5, "call ", call);
    outputs.insert(expected[0]);
  }
  EXPECT(outputs.size() == 3, "three patterns, but there were ", outputs.size());
}

TEST(EachModelHasItsOwnDropoutState) {
  MockGpu gpu;
  GpuModel first(gpu.runtime()), second(gpu.runtime());
  Problem problem = SmallProblem();
  problem.config.dropout = 0.5f;
  const auto run = [&](GpuModel* model, int64_t call) {
    const CallBuffers buffers(problem, 3);
    EXPECT(model->Run(problem, problem.Options(true, call), buffers).ok());
    return ReadResults(problem, true, buffers)[0];
  };
  const std::vector<double> start = run(&first, 0), next = run(&first, 1);
  EXPECT(run(&second, 0) == start && run(&second, 1) == next);
}

TEST(GradientsOfOneForwardAgree) {
  for (const DataType data_type : {DataType::kFloat, DataType::kBfloat16}) {
    MockGpu gpu;
    GpuModel model(gpu.runtime());
    Problem problem = SmallProblem();
    problem.config.data_type = data_type;
    problem.config.dropout = 0.5f;
    problem.lengths = {4, 0, 3};
    const CallOptions keep = problem.Options(true);
    CallOptions overwrite = keep;
    overwrite.keeps_reserve_space = false;
    const CallBuffers buffers(problem, 3);
    std::unique_ptr<DeviceBuffer> reserve_space;
    EXPECT(model.Forward(problem, keep, buffers, &reserve_space).ok());
    EXPECT(model.Backward(problem, keep, buffers, *reserve_space).ok());
    const Results first = ReadResults(problem, true, buffers);
    for (const CallOptions& call : {keep, overwrite}) {
      EXPECT(model.Backward(problem, call, buffers, *reserve_space).ok());
      EXPECT(LargestDifference(first, ReadResults(problem, true, buffers)) == 0);
    }
    CudnnPlanCache::Found found;
    EXPECT(model.Find(problem, keep, &found).ok());
    EXPECT(found.plan->BackwardWorkspaceBytes(keep) > found.plan->BackwardWorkspaceBytes(overwrite),
           "only a kept reserve space needs a copy");
  }
}

TEST(ReserveSpaceOfAnotherSizeIsRefused) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  const Problem problem = SmallProblem();
  const CallBuffers buffers(problem, 3);
  EXPECT_ERROR(model.Backward(problem, problem.Options(true), buffers, DeviceBuffer(0)),
               "reserve_space must have", "bytes", "is_training=True");
}

TEST(ThreadsShareACache) {
  MockGpu gpu;
  mock_set_pause(200);
  Problem problem = SmallProblem();
  const CallBuffers expected(problem, 3);
  EXPECT(RunOnCpu(problem, problem.Options(true), expected).ok());
  const Results results = ReadResults(problem, true, expected);
  GpuModel model(gpu.runtime());
  std::vector<std::thread> threads;
  std::vector<double> differences(4, 1);
  for (size_t i = 0; i < differences.size(); ++i) {
    threads.emplace_back([&, i] {
      double largest = 0;
      for (int call = 0; call < 10; ++call) {
        const CallBuffers buffers(problem, 3);
        if (!model.Run(problem, problem.Options(true), buffers).ok()) return;
        largest =
            std::max(largest, LargestDifference(results, ReadResults(problem, true, buffers)));
      }
      differences[i] = largest;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const double difference : differences) EXPECT(difference < 1e-5, difference);
}

}  // namespace
}  // namespace cudnn_rnn
