// Tests the engine's C interface on the CPU and on the mock of cuDNN, opened as a shared library,
// as ctypes does; and its use of host memory: lengths that change while a call reads them, sizes
// that exceed 64 bits, and failing allocations.

#include "cudnn_rnn/cc/engine/engine.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"
#include "tests/core/testing.h"
#include "tests/cudnn/engine_buffers.h"
#include "tests/cudnn/failing_allocations.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

constexpr int kInvalidArgument = 3, kResourceExhausted = 8;
constexpr int kFloat = static_cast<int>(DataType::kFloat);

std::string MockPath() {
  const char* folder = std::getenv("CUDNN_RNN_MOCK_FOLDER");
  EXPECT(folder != nullptr, "scripts/cpp.sh test sets CUDNN_RNN_MOCK_FOLDER");
  return Concatenate(folder == nullptr ? "" : folder, "/libmock_cudnn.so");
}

// Returns a function of the mock's shared library, whose state is separate from the mock linked
// into this program.
template <typename Function>
Function Control(const char* name) {
  static void* const file = dlopen(MockPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT(file != nullptr);
  return reinterpret_cast<Function>(dlsym(file, name));
}

void OpenMock() {
  const std::string path = MockPath();
  const cudnn_rnn_library_search search = {path.c_str(), path.c_str(), nullptr, 0};
  EXPECT(cudnn_rnn_open_gpu(&search) == 0, cudnn_rnn_last_error());
}

bool LastErrorNames(const char* part) {
  return std::strstr(cudnn_rnn_last_error(), part) != nullptr;
}

// An LSTM with two layers, and a training call with all its buffers.
class Training {
 public:
  Training(int64_t num_steps, int64_t batch_size, bool on_gpu = false) : on_gpu_(on_gpu) {
    config.rnn_mode = static_cast<int>(RnnMode::kLstm);
    config.data_type = kFloat;
    config.num_layers = 2;
    config.num_units = 4;
    config.input_size = 3;
    call.num_steps = num_steps;
    call.batch_size = batch_size;
    call.time_major = 1;
    call.is_training = 1;
    call.keeps_reserve_space = 1;
    call.algorithm = 1;  // standard
    call.stream = kStream;
  }

  cudnn_rnn_config config = {};
  cudnn_rnn_call call = {};
  cudnn_rnn_sizes sizes = {};
  cudnn_rnn_forward_buffers forward = {};
  cudnn_rnn_backward_buffers backward = {};

  // Prepares the call and does nothing else; returns the error code, or 0.
  int TryToPrepare() {
    return WithPreparedCall([](cudnn_rnn_prepared_call*) { return 0; });
  }

  // Allocates the buffers that the call needs.
  void Prepare() {
    EXPECT(TryToPrepare() == 0, cudnn_rnn_last_error());
    problem_.config.data_type = static_cast<DataType>(config.data_type);
    problem_.config.direction = static_cast<Direction>(config.direction);
    problem_.config.num_layers = config.num_layers;
    problem_.config.num_units = config.num_units;
    problem_.config.input_size = config.input_size;
    problem_.shape = {call.num_steps, call.batch_size, call.time_major != 0};
    buffers_.reset(new CallBuffers(problem_, 1));
    const DeviceBuffer& reserve_space = *buffers_->New(sizes.reserve_space_bytes, 1);
    forward =
        ToC(buffers_->Forward(reserve_space, *buffers_->New(sizes.forward_workspace_bytes, 1)));
    forward.reserve_space_bytes = sizes.reserve_space_bytes;
    forward.workspace_bytes = sizes.forward_workspace_bytes;
    backward =
        ToC(buffers_->Backward(reserve_space, *buffers_->New(sizes.backward_workspace_bytes, 1)));
    backward.workspace_bytes = sizes.backward_workspace_bytes;
  }

  // Runs forward and backward with a new planner; returns the first error code, or 0.
  int Run() {
    return WithPreparedCall([this](cudnn_rnn_prepared_call* prepared) {
      const int code = cudnn_rnn_forward(prepared, &forward);
      return code == 0 ? cudnn_rnn_backward(prepared, &backward) : code;
    });
  }

  Results results() const { return ReadResults(problem_, true, *buffers_); }

 private:
  template <typename Function>
  int WithPreparedCall(const Function& function) {
    cudnn_rnn_planner* planner = nullptr;
    int code = on_gpu_ ? cudnn_rnn_create_gpu_planner(nullptr, &planner)
                       : cudnn_rnn_create_cpu_planner(&planner);
    cudnn_rnn_prepared_call* prepared = nullptr;
    if (code == 0) code = cudnn_rnn_prepare(planner, &config, &call, &prepared, &sizes);
    if (code == 0) code = function(prepared);
    cudnn_rnn_release_call(prepared);
    cudnn_rnn_destroy_planner(planner);
    return code;
  }

  const bool on_gpu_;
  Problem problem_;
  std::unique_ptr<CallBuffers> buffers_;
};

TEST(EngineGivesTheSameOnBothDevices) {
  OpenMock();
  Control<void (*)(int)>("mock_set_thread_device")(0);
  Control<void (*)(int)>("mock_set_any_memory")(1);
  Training on_cpu(3, 2), on_gpu(3, 2, true);
  for (Training* training : {&on_cpu, &on_gpu}) {
    training->Prepare();
    EXPECT(training->Run() == 0, cudnn_rnn_last_error());
  }
  EXPECT(on_cpu.sizes.choice.algorithm == 0 && on_gpu.sizes.choice.algorithm == 1);
  const double difference = LargestDifference(on_cpu.results(), on_gpu.results());
  EXPECT(difference < 1e-6, difference);
  const auto violations = Control<int64_t (*)()>("mock_violations");
  EXPECT(violations() == 0, Control<const char* (*)()>("mock_violation_text")());
}

TEST(EngineReportsWhatIsOpen) {
  OpenMock();
  const std::string report = cudnn_rnn_gpu_report();
  for (const char* part : {"cuDNN 9.13.0", "libmock_cudnn.so", "CUDA 12.8"}) {
    EXPECT(report.find(part) != std::string::npos, part, " in ", report);
  }
}

TEST(EngineErrorsNameTheArgument) {
  Training training(3, 2);
  training.config.data_type = 9;
  EXPECT(training.TryToPrepare() == kInvalidArgument);
  EXPECT(LastErrorNames("data_type must be between 0 and 3"), cudnn_rnn_last_error());
  training.config.data_type = kFloat;
  training.config.num_units = 0;
  EXPECT(training.TryToPrepare() == kInvalidArgument);
  EXPECT(LastErrorNames("num_units"), cudnn_rnn_last_error());
  training.config.num_units = 4;
  EXPECT(training.TryToPrepare() == 0);
  EXPECT(std::strlen(cudnn_rnn_last_error()) == 0, cudnn_rnn_last_error());
  training.call.num_steps = -1;
  EXPECT(training.TryToPrepare() == kInvalidArgument);
  EXPECT(LastErrorNames("num_steps"), cudnn_rnn_last_error());
  int32_t algorithm;
  EXPECT(cudnn_rnn_parse_algorithm("fastest", &algorithm) == kInvalidArgument);
  EXPECT(LastErrorNames("persist_static"), cudnn_rnn_last_error());
  EXPECT(cudnn_rnn_parse_algorithm("", &algorithm) == 0 && algorithm == 1);
}

TEST(EngineRefusesBuffersThatAreTooSmall) {
  Training training(3, 2);
  training.Prepare();
  --training.forward.workspace_bytes;
  EXPECT(training.Run() == kInvalidArgument);
  EXPECT(LastErrorNames("workspace must have at least"), cudnn_rnn_last_error());
  ++training.forward.workspace_bytes;
  --training.forward.reserve_space_bytes;
  EXPECT(training.Run() == kInvalidArgument);
  EXPECT(LastErrorNames("reserve_space must have at least"), cudnn_rnn_last_error());
  ++training.forward.reserve_space_bytes;
  --training.backward.workspace_bytes;
  EXPECT(training.Run() == kInvalidArgument);
  EXPECT(LastErrorNames("workspace must have at least"), cudnn_rnn_last_error());
}

TEST(EngineRefusesTheGradientOfInference) {
  Training training(3, 2);
  training.call.is_training = 0;
  training.Prepare();
  EXPECT(training.Run() == kInvalidArgument);
  EXPECT(LastErrorNames("is_training is 0"), cudnn_rnn_last_error());
}

// Counts what it is asked to schedule; `accepts` says whether it takes the tasks.
struct CountingThreads {
  bool accepts;
  std::atomic<int64_t> num_scheduled{0};
  std::atomic<int64_t> num_run{0};
  std::vector<std::thread> threads;

  static int Schedule(void* pool, void (*run)(void*), void (*destroy)(void*), void* task) {
    auto* const self = static_cast<CountingThreads*>(pool);
    ++self->num_scheduled;
    if (!self->accepts) {
      destroy(task);
      return kResourceExhausted;
    }
    self->threads.emplace_back([=] {
      run(task);
      ++self->num_run;
      destroy(task);
    });
    return 0;
  }
};

// Large enough that the engine asks for a second thread. Results do not depend on the threads.
TEST(EngineUsesTheThreadsOfTheCaller) {
  Training alone(6, 32);
  alone.config.num_units = alone.config.input_size = 256;
  alone.Prepare();
  EXPECT(alone.Run() == 0, cudnn_rnn_last_error());
  for (bool accepts : {true, false}) {
    CountingThreads pool{accepts, {}, {}, {}};
    const cudnn_rnn_threads threads = {2, &pool, CountingThreads::Schedule};
    Training training(6, 32);
    training.config.num_units = training.config.input_size = 256;
    training.call.threads = &threads;
    training.Prepare();
    EXPECT(training.Run() == 0, cudnn_rnn_last_error());
    for (std::thread& thread : pool.threads) thread.join();
    EXPECT(pool.num_scheduled > 0);
    EXPECT(pool.num_run == (accepts ? pool.num_scheduled.load() : 0), pool.num_run.load());
    EXPECT(LargestDifference(alone.results(), training.results()) == 0);
  }
}

// Counts the allocations of the engine, whose addresses are odd.
struct CountingAllocator {
  int64_t num_allocated = 0;
  int64_t num_live = 0;
  bool fails = false;

  static int Allocate(void* context, int64_t bytes, int, void** memory, void** data, char* message,
                      size_t message_bytes) {
    auto* const self = static_cast<CountingAllocator*>(context);
    if (self->fails) {
      std::snprintf(message, message_bytes, "no %lld bytes", static_cast<long long>(bytes));
      return kResourceExhausted;
    }
    ++self->num_allocated;
    ++self->num_live;
    auto* const block = new Block{self, std::vector<char>(static_cast<size_t>(bytes) + 1)};
    *memory = block;
    *data = block->memory.data() + 1;
    return 0;
  }
  static void Release(void* memory) {
    auto* const block = static_cast<Block*>(memory);
    --block->owner->num_live;
    delete block;
  }
  struct Block {
    CountingAllocator* owner;
    std::vector<char> memory;
  };
};

TEST(EngineUsesTheAllocatorOfTheCaller) {
  OpenMock();
  Control<void (*)(int)>("mock_set_thread_device")(0);
  Control<void (*)(int)>("mock_set_any_memory")(1);
  CountingAllocator memory;
  const cudnn_rnn_allocator allocator = {&memory, CountingAllocator::Allocate,
                                         CountingAllocator::Release};
  Training training(3, 2, /*on_gpu=*/true);
  training.config.dropout = 0.5f;  // whose state is in device memory
  training.call.allocator = &allocator;
  training.Prepare();
  EXPECT(training.Run() == 0, cudnn_rnn_last_error());
  EXPECT(memory.num_allocated > 0 && memory.num_live == 0, memory.num_allocated, " ",
         memory.num_live);
  memory.fails = true;
  EXPECT(training.Run() == kResourceExhausted);
  EXPECT(LastErrorNames("no "), cudnn_rnn_last_error());
}

TEST(EngineCopiesClearsAndTransposes) {
  cudnn_rnn_planner* planner = nullptr;
  EXPECT(cudnn_rnn_create_cpu_planner(&planner) == 0, cudnn_rnn_last_error());
  const std::vector<float> source = {1, 2, 3, 4, 5, 6};
  std::vector<float> copy(6), transposed(6);
  const cudnn_rnn_copy copies[] = {{copy.data(), source.data(), 8},
                                   {copy.data() + 2, source.data() + 2, 16},
                                   {nullptr, nullptr, 0}};
  EXPECT(cudnn_rnn_copy_memory(planner, nullptr, copies, 3) == 0, cudnn_rnn_last_error());
  EXPECT(copy == source);
  EXPECT(cudnn_rnn_clear_memory(planner, nullptr, copy.data() + 4, 8) == 0);
  EXPECT(copy == (std::vector<float>{1, 2, 3, 4, 0, 0}));
  const cudnn_rnn_transposition transposition = {source.data(), 3, transposed.data(), 2, 2, 3};
  EXPECT(cudnn_rnn_transpose(planner, nullptr, kFloat, &transposition, 1) == 0);
  EXPECT(transposed == (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT(cudnn_rnn_transpose(planner, nullptr, 0, &transposition, 1) == kInvalidArgument);
  EXPECT(LastErrorNames("float or double"), cudnn_rnn_last_error());
  cudnn_rnn_destroy_planner(planner);
}

// Selects bfloat16, two directions, batch-major data and dropout, which need every kind of copy.
void NeedEveryCopy(Training* training) {
  training->config.data_type = static_cast<int>(DataType::kBfloat16);
  training->config.direction = static_cast<int>(Direction::kBidirectional);
  training->config.dropout = 0.5f;
  training->call.time_major = 0;
}

// While calls run, a thread alternately writes invalid and valid lengths. Each call either succeeds
// or rejects the lengths that it read.
TEST(LengthsMayChangeDuringACall) {
  constexpr int kRounds = 100;
  constexpr int64_t kBatch = 4000;
  std::vector<int32_t> lengths(kBatch, 2);
  Training training(3, kBatch);
  NeedEveryCopy(&training);
  training.call.sequence_lengths = lengths.data();
  training.Prepare();
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    volatile int32_t* const elements = lengths.data();
    for (int64_t i = 0; !is_over; i = (i + 7) % kBatch) {
      elements[i] = i % 2 == 0 ? 1 << 30 : -(1 << 30);
      elements[i] = 2;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const int code = training.Run();
    EXPECT(code == 0 || (code == kInvalidArgument && LastErrorNames("sequence_lengths")), code,
           ": ", cudnn_rnn_last_error());
  }
  is_over = true;
  writer.join();
}

TEST(SizesBeyond64BitsAreRefused) {
  Training training(16, int64_t{1} << 40);
  training.config.num_layers = training.config.input_size = 1;
  training.config.num_units = 1 << 20;
  EXPECT(training.TryToPrepare() == kInvalidArgument);
  EXPECT(LastErrorNames("64 bits"), cudnn_rnn_last_error());
  // More lengths than fit into memory.
  const int32_t length = 0;
  training.call.sequence_lengths = &length;
  training.call.batch_size = int64_t{1} << 62;
  EXPECT(training.TryToPrepare() == kResourceExhausted);
  EXPECT(LastErrorNames("not enough host memory"), cudnn_rnn_last_error());
}

// Runs with the n-th allocation failing, for n = 1, 2, ... until a run has fewer allocations. With
// `all_later` all later allocations fail too, so that there is no memory for the error message.
void FailEachAllocation(bool all_later) {
  constexpr int64_t kMaxAllocations = 10000;
  const std::vector<int32_t> lengths = {3, 0, 1, 2};
  Training training(3, 4);
  NeedEveryCopy(&training);
  training.call.sequence_lengths = lengths.data();
  training.Prepare();
  int64_t n = 1;
  for (bool fails = true; fails && n < kMaxAllocations; ++n) {
    FailAllocation(n, all_later);
    const int code = training.Run();
    fails = StopFailingAllocations();
    const std::string text = cudnn_rnn_last_error();
    EXPECT(code == (fails ? kResourceExhausted : 0), n, ": ", code, ", ", text);
    EXPECT(!fails || LastErrorNames("not enough host memory"), n, ": ", text);
  }
  EXPECT(n > 10 && n < kMaxAllocations, n);
  EXPECT(training.Run() == 0, cudnn_rnn_last_error());
}

TEST(EachAllocationFailsOnce) { FailEachAllocation(/*all_later=*/false); }
TEST(EachAllocationAndAllLaterOnesFail) { FailEachAllocation(/*all_later=*/true); }

}  // namespace
}  // namespace cudnn_rnn
