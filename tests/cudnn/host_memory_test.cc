// Tests the C API's use of host memory: lengths that change while a call reads them, sizes that
// exceed 64 bits, and failing allocations.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "cudnn_rnn/cc/core/status.h"
#include "tests/core/testing.h"
#include "tests/cudnn/core_api.h"

namespace {

// Failure injection for this thread; 0 for none.
thread_local int64_t allocations_until_failure = 0;
thread_local bool all_later_allocations_fail = false;
thread_local int64_t failed_allocations = 0;

void* Allocate(std::size_t bytes) {
  if (allocations_until_failure > 0 && --allocations_until_failure == 0) {
    if (all_later_allocations_fail) allocations_until_failure = 1;
    ++failed_allocations;
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Replace the program's global allocation functions.
void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace cudnn_rnn {
namespace {

constexpr int kInvalidArgument = 3, kResourceExhausted = 8;

// Aligned memory full of zeros.
class Floats {
 public:
  explicit Floats(int64_t bytes) : storage_(static_cast<size_t>(bytes) + 64) {}
  void* data() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<char> storage_;
};

// A two-layer bidirectional LSTM in bfloat16 with dropout, which needs every kind of copy.
class Training {
 public:
  Training(int64_t num_steps, int64_t batch_size)
      : sequence_bytes_(num_steps * batch_size * 8 * kElementSize),
        state_bytes_(4 * batch_size * 4 * kElementSize) {
    config_.rnn_mode = 2;
    config_.direction = 1;
    config_.data_type = 1;
    config_.num_layers = 2;
    config_.num_units = 4;
    config_.input_size = 3;
    config_.dropout = 0.5f;
    call_.num_steps = num_steps;
    call_.batch_size = batch_size;
    call_.is_training = 1;
    call_.keeps_reserve_space = 1;
  }

  cudnn_rnn_model_config* config() { return &config_; }
  cudnn_rnn_call* call() { return &call_; }

  // Allocates the buffers that calls with these lengths need.
  void Prepare(const int32_t* lengths) {
    call_.sequence_lengths = lengths;
    cudnn_rnn_model* model = nullptr;
    EXPECT(cudnn_rnn_model_create(&config_, 0, &model) == 0, cudnn_rnn_last_error());
    cudnn_rnn_sizes sizes = {};
    EXPECT(cudnn_rnn_prepare(model, &call_, &sizes) == 0, cudnn_rnn_last_error());
    cudnn_rnn_model_destroy(model);
    const int64_t params_bytes = sizes.params_elements * kElementSize;
    forward_.input = backward_.input = New(sequence_bytes_);
    forward_.input_h = backward_.input_h = New(state_bytes_);
    forward_.input_c = backward_.input_c = New(state_bytes_);
    forward_.params = backward_.params = New(params_bytes);
    backward_.output = forward_.output = New(sequence_bytes_);
    backward_.output_h = forward_.output_h = New(state_bytes_);
    forward_.output_c = New(state_bytes_);
    forward_.reserve_space = backward_.reserve_space = New(sizes.reserve_space_bytes);
    forward_.reserve_space_bytes = backward_.reserve_space_bytes = sizes.reserve_space_bytes;
    forward_.workspace = New(sizes.forward_workspace_bytes);
    forward_.workspace_bytes = sizes.forward_workspace_bytes;
    backward_.output_backprop = New(sequence_bytes_);
    backward_.output_h_backprop = New(state_bytes_);
    backward_.output_c_backprop = New(state_bytes_);
    backward_.input_backprop = New(sequence_bytes_);
    backward_.input_h_backprop = New(state_bytes_);
    backward_.input_c_backprop = New(state_bytes_);
    backward_.params_backprop = New(params_bytes);
    backward_.workspace = New(sizes.backward_workspace_bytes);
    backward_.workspace_bytes = sizes.backward_workspace_bytes;
  }

  // Creates a model, and runs forward and backward; returns the first error code, or 0.
  int Run() {
    cudnn_rnn_model* model = nullptr;
    int code = cudnn_rnn_model_create(&config_, 0, &model);
    if (code == 0) code = Forward(model);
    if (code == 0) code = cudnn_rnn_backward(model, &call_, &backward_);
    cudnn_rnn_model_destroy(model);
    return code;
  }
  int Forward(cudnn_rnn_model* model) { return cudnn_rnn_forward(model, &call_, &forward_); }

 private:
  static constexpr int64_t kElementSize = 8;  // the largest of all data types

  void* New(int64_t bytes) {
    buffers_.emplace_back(bytes);
    return buffers_.back().data();
  }

  const int64_t sequence_bytes_;
  const int64_t state_bytes_;
  cudnn_rnn_model_config config_ = {};
  cudnn_rnn_call call_ = {};
  cudnn_rnn_forward_buffers forward_ = {};
  cudnn_rnn_backward_buffers backward_ = {};
  std::vector<Floats> buffers_;
};

bool LastErrorNames(const char* part) {
  return std::strstr(cudnn_rnn_last_error(), part) != nullptr;
}

// While calls run, a thread alternately writes invalid and valid lengths. Each call either succeeds
// or rejects the lengths that it read.
TEST(LengthsMayChangeDuringACall) {
  constexpr int kRounds = 100;
  constexpr int64_t kSteps = 3, kBatch = 4000;
  std::vector<int32_t> lengths(kBatch, 2);
  Training training(kSteps, kBatch);
  training.Prepare(lengths.data());
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
  training.config()->data_type = 2;
  training.call()->time_major = 1;
  training.Prepare(lengths.data());
  EXPECT(training.Run() == 0, cudnn_rnn_last_error());
  lengths[2] = 0;
  EXPECT(training.Run() == kInvalidArgument);
  EXPECT(LastErrorNames("workspace must have at least"), cudnn_rnn_last_error());
}

TEST(SizesBeyond64BitsAreRefused) {
  cudnn_rnn_model_config config = {};
  config.rnn_mode = 2;
  config.data_type = 2;
  config.num_layers = 1;
  config.num_units = 1 << 20;
  config.input_size = 1;
  cudnn_rnn_model* model = nullptr;
  EXPECT(cudnn_rnn_model_create(&config, 0, &model) == 0, cudnn_rnn_last_error());
  cudnn_rnn_call call = {};
  call.num_steps = 16;
  call.batch_size = int64_t{1} << 40;
  call.is_training = 1;
  cudnn_rnn_sizes sizes = {};
  EXPECT(cudnn_rnn_prepare(model, &call, &sizes) == kInvalidArgument);
  EXPECT(LastErrorNames("64 bits"), cudnn_rnn_last_error());
  // More lengths than fit into memory.
  const int32_t length = 0;
  call.sequence_lengths = &length;
  call.batch_size = int64_t{1} << 62;
  EXPECT(cudnn_rnn_prepare(model, &call, &sizes) == kResourceExhausted);
  EXPECT(LastErrorNames("not enough host memory"), cudnn_rnn_last_error());
  cudnn_rnn_model_destroy(model);
}

// Runs with the n-th allocation failing, for n = 1, 2, ... until a run has fewer allocations. With
// `from_there_on` all later allocations fail too, so that there is no memory for the error message.
void FailEachAllocation(bool from_there_on) {
  constexpr int64_t kMaxAllocations = 10000;
  const std::vector<int32_t> lengths = {3, 0, 1, 2};
  Training training(3, 4);
  training.Prepare(lengths.data());
  int64_t n = 1;
  for (bool fails = true; fails && n < kMaxAllocations; ++n) {
    failed_allocations = 0;
    all_later_allocations_fail = from_there_on;
    allocations_until_failure = n;
    const int code = training.Run();
    allocations_until_failure = 0;
    fails = failed_allocations > 0;
    const std::string text = cudnn_rnn_last_error();
    EXPECT(code == (fails ? kResourceExhausted : 0), n, ": ", code, ", ", text);
    EXPECT(!fails || LastErrorNames("not enough host memory"), n, ": ", text);
  }
  EXPECT(n > 10 && n < kMaxAllocations, n);
  EXPECT(training.Run() == 0, cudnn_rnn_last_error());
}

TEST(EachAllocationFailsOnce) { FailEachAllocation(/*from_there_on=*/false); }
TEST(EachAllocationAndAllLaterOnesFail) { FailEachAllocation(/*from_there_on=*/true); }

}  // namespace
}  // namespace cudnn_rnn
