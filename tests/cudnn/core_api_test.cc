// Tests the C API on the CPU and on the mock of cuDNN, opened as a shared library, as ctypes does;
// and its use of host memory: lengths that change while a call reads them, sizes that exceed 64
// bits, and failing allocations.

#include "tests/cudnn/core_api.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"
#include "tests/core/testing.h"
#include "tests/cudnn/failing_allocations.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

constexpr int kInvalidArgument = 3, kResourceExhausted = 8;
constexpr int kFloat = static_cast<int>(DataType::kFloat);

std::string MockPath() {
  const char* folder = std::getenv("CUDNN_RNN_MOCK_FOLDER");
  EXPECT(folder != nullptr, "scripts/run_cudnn_tests.sh sets CUDNN_RNN_MOCK_FOLDER");
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
  EXPECT(cudnn_rnn_open_gpu(path.c_str(), path.c_str()) == 0, cudnn_rnn_last_error());
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
    call.stream = kStream;
  }

  cudnn_rnn_model_config config = {};
  cudnn_rnn_call call = {};
  cudnn_rnn_sizes sizes = {};
  cudnn_rnn_forward_buffers forward = {};
  cudnn_rnn_backward_buffers backward = {};

  // Allocates the buffers that the call needs.
  void Prepare() {
    cudnn_rnn_model* model = nullptr;
    EXPECT(cudnn_rnn_model_create(&config, on_gpu_, &model) == 0, cudnn_rnn_last_error());
    EXPECT(cudnn_rnn_prepare(model, &call, &sizes) == 0, cudnn_rnn_last_error());
    cudnn_rnn_model_destroy(model);
    problem_.config.data_type = static_cast<DataType>(config.data_type);
    problem_.config.direction = static_cast<Direction>(config.direction);
    problem_.config.num_layers = config.num_layers;
    problem_.config.num_units = config.num_units;
    problem_.config.input_size = config.input_size;
    problem_.shape = {call.num_steps, call.batch_size, call.time_major != 0};
    buffers_.reset(new CallBuffers(problem_, 1));
    const DeviceBuffer& reserve_space = *buffers_->New(sizes.reserve_space_bytes, 1);
    static_cast<ForwardBuffers&>(forward) =
        buffers_->Forward(reserve_space, *buffers_->New(sizes.forward_workspace_bytes, 1));
    forward.reserve_space_bytes = sizes.reserve_space_bytes;
    forward.workspace_bytes = sizes.forward_workspace_bytes;
    static_cast<BackwardBuffers&>(backward) =
        buffers_->Backward(reserve_space, *buffers_->New(sizes.backward_workspace_bytes, 1));
    backward.workspace_bytes = sizes.backward_workspace_bytes;
  }

  // Creates a model, and runs forward and backward; returns the first error code, or 0.
  int Run() {
    cudnn_rnn_model* model = nullptr;
    int code = cudnn_rnn_model_create(&config, on_gpu_, &model);
    if (code == 0) code = cudnn_rnn_forward(model, &call, &forward);
    if (code == 0) code = cudnn_rnn_backward(model, &call, &backward);
    cudnn_rnn_model_destroy(model);
    return code;
  }

  Results results() const { return ReadResults(problem_, true, *buffers_); }

 private:
  const bool on_gpu_;
  Problem problem_;
  std::unique_ptr<CallBuffers> buffers_;
};

TEST(CoreApiGivesTheSameOnBothDevices) {
  OpenMock();
  Control<void (*)(int)>("mock_set_thread_device")(0);
  Control<void (*)(int)>("mock_set_any_memory")(1);
  Training on_cpu(3, 2), on_gpu(3, 2, true);
  for (Training* training : {&on_cpu, &on_gpu}) {
    training->Prepare();
    EXPECT(training->Run() == 0, cudnn_rnn_last_error());
  }
  EXPECT(on_cpu.sizes.algorithm == 0 && on_gpu.sizes.algorithm == 1);
  const double difference = LargestDifference(on_cpu.results(), on_gpu.results());
  EXPECT(difference < 1e-6, difference);
  const auto violations = Control<int64_t (*)()>("mock_violations");
  EXPECT(violations() == 0, Control<const char* (*)()>("mock_violation_text")());
}

TEST(CoreApiReportsWhatIsOpen) {
  OpenMock();
  const std::string report = cudnn_rnn_gpu_report();
  for (const char* part : {"cuDNN 9.13.0", "libmock_cudnn.so", "CUDA 12.8"}) {
    EXPECT(report.find(part) != std::string::npos, part, " in ", report);
  }
}

TEST(CoreApiErrorsNameTheArgument) {
  cudnn_rnn_model* model = nullptr;
  Training training(3, 2);
  training.config.data_type = 9;
  EXPECT(cudnn_rnn_model_create(&training.config, 0, &model) == kInvalidArgument);
  EXPECT(LastErrorNames("data_type must be between 0 and 3"), cudnn_rnn_last_error());
  training.config.data_type = kFloat;
  training.config.num_units = 0;
  EXPECT(cudnn_rnn_model_create(&training.config, 0, &model) == kInvalidArgument);
  EXPECT(model == nullptr);
  training.config.num_units = 4;
  EXPECT(cudnn_rnn_model_create(&training.config, 0, &model) == 0);
  EXPECT(std::strlen(cudnn_rnn_last_error()) == 0, cudnn_rnn_last_error());
  training.call.num_steps = -1;
  EXPECT(cudnn_rnn_prepare(model, &training.call, &training.sizes) == kInvalidArgument);
  EXPECT(LastErrorNames("num_steps"), cudnn_rnn_last_error());
  cudnn_rnn_model_destroy(model);
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

// The workspace's size depends on the lengths.
TEST(LengthsMayChangeBetweenPrepareAndACall) {
  std::vector<int32_t> lengths(5, 7);
  Training training(7, 5);
  training.config.direction = static_cast<int>(Direction::kBidirectional);
  training.config.dropout = 0.5f;
  training.call.sequence_lengths = lengths.data();
  training.Prepare();
  EXPECT(training.Run() == 0, cudnn_rnn_last_error());
  lengths[2] = 0;
  EXPECT(training.Run() == kInvalidArgument);
  EXPECT(LastErrorNames("workspace must have at least"), cudnn_rnn_last_error());
}

TEST(SizesBeyond64BitsAreRefused) {
  Training training(16, int64_t{1} << 40);
  training.config.num_layers = training.config.input_size = 1;
  training.config.num_units = 1 << 20;
  cudnn_rnn_model* model = nullptr;
  EXPECT(cudnn_rnn_model_create(&training.config, 0, &model) == 0, cudnn_rnn_last_error());
  EXPECT(cudnn_rnn_prepare(model, &training.call, &training.sizes) == kInvalidArgument);
  EXPECT(LastErrorNames("64 bits"), cudnn_rnn_last_error());
  // More lengths than fit into memory.
  const int32_t length = 0;
  training.call.sequence_lengths = &length;
  training.call.batch_size = int64_t{1} << 62;
  EXPECT(cudnn_rnn_prepare(model, &training.call, &training.sizes) == kResourceExhausted);
  EXPECT(LastErrorNames("not enough host memory"), cudnn_rnn_last_error());
  cudnn_rnn_model_destroy(model);
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
