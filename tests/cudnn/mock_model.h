// One model on the mock of cuDNN, called function by function, for the mock's own tests.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_MODEL_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_MODEL_H_

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "tests/core/testing.h"
#include "tests/cudnn/mock/functions.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace mock_test {

using Bytes = std::vector<char>;

// The mock as in a new process, with the driver initialized and a context current. The destructor
// checks for leaks, and for violations that the test did not expect.
class FreshMock {
 public:
  FreshMock() {
    mock_restart();
    EXPECT(cuInit(0) == 0);
    EXPECT(cuStreamGetCtx(stream(), &context_) == 0);
    EXPECT(cuCtxPushCurrent_v2(context_) == 0);
  }
  ~FreshMock() {
    mock_fail_call(0, MOCK_NO_FAILURE);
    EXPECT(cuCtxPopCurrent_v2(&context_) == 0);
    EXPECT(mock_violations() == 0, mock_violation_text());
    EXPECT(mock_live(nullptr) == 0, mock_live(nullptr), " objects live");
    mock_restart();
  }
  static void* stream() { return reinterpret_cast<void*>(uintptr_t{16}); }

 private:
  void* context_ = nullptr;
};

// Expects `status` to be an error, and exactly one violation, whose text contains `part`. Then
// resets the mock.
inline void ExpectViolation(int status, const std::string& part, const std::string& what = "") {
  const std::string text = mock_violation_text();
  EXPECT(status != 0, what);
  EXPECT(mock_violations() == 1, what, ": ", text);
  EXPECT(text.find(part) != std::string::npos, "'", part, "' in: ", text, what);
  mock_reset();
}

// Device memory from the driver.
class Allocation {
 public:
  explicit Allocation(int64_t bytes) {
    if (bytes > 0) cuMemAlloc_v2(&address_, static_cast<size_t>(bytes));
  }
  explicit Allocation(const Bytes& bytes) : Allocation(static_cast<int64_t>(bytes.size())) {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }
  ~Allocation() {
    if (address_ != 0) cuMemFree_v2(address_);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  DeviceAddress address() const { return address_; }
  char* data() const { return reinterpret_cast<char*>(address_); }
  Bytes Read(int64_t bytes) const { return Bytes(data(), data() + bytes); }

 private:
  DeviceAddress address_ = 0;
};

struct Shape {
  int64_t num_steps = 5;
  std::vector<int32_t> lengths = {5, 3, 3, 1};  // one for each sequence of the batch
  int layout = kCudnnLayoutTimeMajorPadded;

  int64_t batch_size() const { return static_cast<int64_t>(lengths.size()); }
};

// The same model and shape for the CPU plan. CallBuffers of it are time-major.
inline Problem ProblemOf(const RnnConfig& config, const Shape& shape) {
  return {config, {shape.num_steps, shape.batch_size(), true}, shape.lengths};
}

// The arguments of the three calls, and the memory they point to. Tests corrupt them one by one.
class MockModel {
 public:
  MockModel(const RnnConfig& config, const Shape& shape, int algorithm = kCudnnAlgorithmStandard);
  ~MockModel();

  // The first failure of the constructor, or 0.
  int status() const { return status_; }

  // Copies the inputs to the device, in this model's layouts.
  void Load(const CallBuffers& buffers);
  void LoadRandom() { Load(CallBuffers(ProblemOf(config, shape), 23)); }
  int Forward();
  int BackwardData();
  int BackwardWeights();
  int Step();  // all three; returns the first error
  // Returns the bytes of the results in the order of CallBuffers::results(), time-major.
  std::vector<Bytes> Results() const;

  RnnConfig config;
  Shape shape;
  int forward_mode = kCudnnForwardTraining;
  void* handle = nullptr;
  void *rnn = nullptr, *dropout = nullptr, *x_descriptor = nullptr, *y_descriptor = nullptr;
  void *h_descriptor = nullptr, *c_descriptor = nullptr;
  size_t weight_space_bytes = 0, workspace_bytes = 0, reserve_space_bytes = 0;
  char *x = nullptr, *hx = nullptr, *cx = nullptr, *weights = nullptr, *y = nullptr, *hy = nullptr,
       *cy = nullptr, *dy = nullptr, *dhy = nullptr, *dcy = nullptr, *dx = nullptr, *dhx = nullptr,
       *dcx = nullptr, *dweights = nullptr, *workspace = nullptr, *reserve_space = nullptr;
  char* states = nullptr;
  size_t states_bytes = 0;
  int32_t* device_lengths = nullptr;

  int SetRnn(int algorithm, uint32_t auxiliary_flags);
  int SetData(void* descriptor, int64_t vector_size, void* padding_fill = nullptr);
  int SetStates(void* descriptor, int64_t width);

 private:
  void Make(int algorithm);
  void Check(int status) {
    if (status_ == 0) status_ = status;
  }
  char* Allocate(int64_t bytes);
  // Convert between [T, B, width] and the layout, following its definition independently of the
  // mock's own functions. ToLayout leaves the padding NaN, because it must not be read.
  void ToLayout(const char* time_major, int64_t width, char* data) const;
  Bytes FromLayout(const char* data, int64_t width) const;
  // Calls function(t * B + b, row in the layout) for each step; `skips_padding`: not for padding.
  template <typename Function>
  void ForRows(bool skips_padding, const Function& function) const;
  // Calls function(offset in the weight space, offset in the dense buffer, bytes) for each region.
  template <typename Function>
  void ForWeights(const Function& function) const;

  int64_t element() const { return SizeOf(config.data_type); }
  int64_t stack_rows() const {
    return config.num_layers * config.num_directions() * shape.batch_size();
  }
  int64_t h_bytes() const { return stack_rows() * config.output_size() * element(); }
  int64_t c_bytes() const {
    return config.has_cell_state() ? stack_rows() * config.num_units * element() : 0;
  }
  int64_t output_width() const { return config.num_directions() * config.output_size(); }

  int status_ = 0;
  std::vector<std::unique_ptr<Allocation>> buffers_;
};

}  // namespace mock_test
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_MODEL_H_
