// Tests that the calls on a stream share one cuDNN handle, and that no thread waits for it in vain.

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "cudnn_rnn/cc/cudnn/gpu_queue.h"
#include "tests/core/testing.h"
#include "tests/cudnn/mock/functions.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

void* const kOtherStream = reinterpret_cast<void*>(uintptr_t{0x90});
constexpr std::chrono::seconds kLongTime(20);  // longer than any call takes

Problem SmallProblem() {
  Problem problem;
  problem.config.num_units = 16;
  problem.config.input_size = 5;
  problem.shape = {4, 3, true};
  return problem;
}

TEST(ThreadsOnAStreamShareItsHandle) {
  MockGpu gpu;
  mock_set_pause(100);  // the mock reports calls that use a handle at the same time
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  std::atomic<int> successes{0};
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&gpu, &successes] {
      GpuModel model(gpu.runtime());
      const Problem problem = SmallProblem();
      for (int call = 0; call < 5; ++call) {
        const CallBuffers buffers(problem, 3);
        successes += model.Run(problem, problem.Options(/*is_training=*/true), buffers).ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(successes == 5 * kThreads, successes.load());
  EXPECT(mock_calls("cudnnCreate") == 1 && mock_live("handle") == 1, mock_calls("cudnnCreate"));
  ExpectNoViolations("threads on a stream");
}

TEST(StreamsDoNotWaitForEachOther) {
  MockGpu gpu;
  GpuQueue queue(gpu.runtime(), kStream, "holding a handle");
  EXPECT(queue.Begin().ok() && queue.BorrowHandle().ok());
  auto other = std::async(std::launch::async, [&gpu] {
    GpuModel model(gpu.runtime());
    model.stream = kOtherStream;
    const Problem problem = SmallProblem();
    return model.Run(problem, problem.Options(/*is_training=*/true), CallBuffers(problem, 3));
  });
  EXPECT(other.wait_for(kLongTime) == std::future_status::ready);
  queue.ReturnHandle();  // lets the thread end if it waits
  EXPECT(other.get().ok() && mock_live("handle") == 2);
}

TEST(AQueueWithinAQueueUsesTheSameHandle) {
  MockGpu gpu;
  GpuQueue outer(gpu.runtime(), kStream, "a call");
  EXPECT(outer.Begin().ok() && outer.BorrowHandle().ok());
  {
    GpuQueue inner(gpu.runtime(), kStream, "a call within a call");
    EXPECT(inner.Begin().ok() && inner.BorrowHandle().ok());
    EXPECT(inner.handle() != nullptr && inner.handle() == outer.handle());
  }
  auto other = std::async(std::launch::async, [&gpu] {
    GpuQueue waiting(gpu.runtime(), kStream, "a call of another thread");
    EXPECT(waiting.Begin().ok() && waiting.BorrowHandle().ok());
  });
  EXPECT(other.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready,
         "the outer call still holds the handle");
  outer.ReturnHandle();
  other.get();
}

// Returns whether another thread could take the stream's handle within `patience`.
bool OthersGetTheHandle(GpuRuntime* runtime, void* context, std::chrono::milliseconds patience) {
  std::recursive_mutex& mutex = runtime->handles.Find(context, kStream)->mutex;
  return std::async(std::launch::async,
                    [&mutex, patience] {
                      const auto end = std::chrono::steady_clock::now() + patience;
                      while (std::chrono::steady_clock::now() < end) {
                        if (mutex.try_lock()) {
                          mutex.unlock();
                          return true;
                        }
                        std::this_thread::yield();
                      }
                      return false;
                    })
      .get();
}

void* ContextOfStream(GpuRuntime* runtime) {
  GpuQueue queue(runtime, kStream, "looking for the context");
  EXPECT(queue.Begin().ok());
  return queue.context();
}

std::atomic<bool> creates_descriptor, may_fail;

// A thread whose plan cannot be created writes that to the AlgorithmCache. Meanwhile the trials of
// another thread, which hold the cache, must get the handle.
TEST(AFailedPlanDoesNotKeepTheHandleFromTrials) {
  MockGpu gpu;
  mock_set_algorithm_time(kCudnnAlgorithmPersistStaticSmallH, 0.1, 0.1);
  const Problem problem = SmallProblem();
  GpuModel first(gpu.runtime(), Algorithm::kAuto), second(gpu.runtime(), Algorithm::kAuto);
  EXPECT(AlgorithmOf(&first, problem) == Algorithm::kPersistStaticSmallH);
  void* const context = ContextOfStream(gpu.runtime());
  creates_descriptor = may_fail = false;
  mock_set_algorithm_support(kCudnnAlgorithmPersistStaticSmallH, MOCK_REFUSED_BY_SIZES);
  gpu.libraries()->cudnnGetRNNTempSpaceSizes = [](void* handle, void* rnn, int mode, void* x,
                                                  size_t* workspace, size_t* reserve_space) {
    creates_descriptor = true;
    while (!may_fail) std::this_thread::yield();
    return cudnnGetRNNTempSpaceSizes(handle, rnn, mode, x, workspace, reserve_space);
  };
  auto failing = std::async(std::launch::async, [&] { return AlgorithmOf(&second, problem); });
  while (!creates_descriptor) std::this_thread::yield();
  bool got_handle = false;
  Algorithm algorithm = Algorithm::kAuto;
  const auto trial = [&](Algorithm*) {
    may_fail = true;
    got_handle = OthersGetTheHandle(gpu.runtime(), context, kLongTime);
    return Status();
  };
  EXPECT(gpu.runtime()->algorithms.FindOrChoose({-1}, {-1}, trial, trial, &algorithm).ok());
  EXPECT(got_handle);
  EXPECT(failing.get() == Algorithm::kStandard);
}

// Like TensorFlow's allocator, may wait for memory that other calls free, if it is required.
class WaitingAllocator : public DeviceAllocator {
 public:
  explicit WaitingAllocator(GpuRuntime* runtime)
      : runtime_(runtime), context_(ContextOfStream(runtime)), allocator_(runtime, kStream) {}

  Status Allocate(int64_t bytes, MemoryNeed need, std::unique_ptr<DeviceMemory>* memory) override {
    if (need == MemoryNeed::kRequired) {
      ++num_required;
      EXPECT(OthersGetTheHandle(runtime_, context_, std::chrono::milliseconds(100)));
    }
    return allocator_.Allocate(bytes, need, memory);
  }

  int num_required = 0;

 private:
  GpuRuntime* const runtime_;
  void* const context_;
  DriverAllocator allocator_;
};

TEST(NoCallWaitsForMemoryWithTheHandle) {
  MockGpu gpu;
  WaitingAllocator allocator(gpu.runtime());
  CudnnPlanCache plans(gpu.runtime(), CreateCpuPlan);
  Problem problem = SmallProblem();
  problem.config.data_type = DataType::kBfloat16;
  problem.config.num_layers = 2;
  problem.config.dropout = 0.5f;
  CudnnOptions options;
  options.algorithm = Algorithm::kAuto;
  Execution execution;
  execution.stream = kStream;
  execution.allocator = &allocator;
  const CallOptions call = problem.Options(/*is_training=*/true);
  CudnnPlanCache::Found found;
  EXPECT(plans.Find(problem.config, problem.shape, call, options, execution, &found).ok());
  EXPECT(allocator.num_required > 10, "for the check of bfloat16, and a dropout state");
  allocator.num_required = 0;
  constexpr int64_t kOffset = 16;
  const CallBuffers buffers(problem, 3, kOffset);
  const DeviceBuffer reserve_space(found.plan->ReserveSpaceBytes(), kOffset);
  const DeviceBuffer workspace(found.plan->ForwardWorkspaceBytes(call));
  EXPECT(found.plan->Forward(buffers.Forward(reserve_space, workspace), call, execution).ok());
  EXPECT(allocator.num_required == 2, "parameters and reserve space");
}

}  // namespace
}  // namespace cudnn_rnn
