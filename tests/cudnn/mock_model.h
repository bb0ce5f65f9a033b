// One model on the mock of cuDNN, called function by function, and the same on the CPU plan, for
// the mock's own tests.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_MODEL_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_MODEL_H_

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/float16.h"
#include "tests/core/testing.h"
#include "tests/cudnn/mock/functions.h"

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

// Device memory.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(int64_t bytes) {
    if (bytes > 0) cuMemAlloc_v2(&address_, static_cast<size_t>(bytes));
  }
  explicit DeviceBuffer(const Bytes& bytes) : DeviceBuffer(static_cast<int64_t>(bytes.size())) {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }
  ~DeviceBuffer() {
    if (address_ != 0) cuMemFree_v2(address_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

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

inline int CudnnDataTypeOf(DataType data_type) {
  return data_type == DataType::kHalf       ? kCudnnDataHalf
         : data_type == DataType::kBfloat16 ? kCudnnDataBfloat16
         : data_type == DataType::kDouble   ? kCudnnDataDouble
                                            : kCudnnDataFloat;
}

// Returns random numbers of a data type.
inline Bytes RandomBytes(DataType data_type, int64_t count, std::mt19937* generator) {
  std::uniform_real_distribution<float> uniform(-0.7f, 0.7f);
  const size_t size = static_cast<size_t>(SizeOf(data_type));
  Bytes bytes(static_cast<size_t>(count) * size);
  for (size_t i = 0; i < bytes.size(); i += size) {
    const float number = uniform(*generator);
    const double as_double = number;
    const uint16_t as_half = FloatToHalf(number);
    const uint16_t as_bfloat16 = static_cast<uint16_t>(BitsFromFloat(number) >> 16);
    const void* const sources[] = {&as_half, &as_bfloat16, &number, &as_double};
    std::memcpy(&bytes[i], sources[static_cast<int>(data_type)], size);
  }
  return bytes;
}

// All tensors of a training step. Sequences are [T, B, width], and 0 beyond each length.
struct StepTensors {
  Bytes x, hx, cx, params, dy, dhy, dcy;
  Bytes y, hy, cy, dx, dhx, dcx, dparams;
};

StepTensors RandomStep(const RnnConfig& config, const Shape& shape);
// Runs the step with the CPU plan and fills in the results.
void RunOnCpu(const RnnConfig& config, const Shape& shape, int64_t dropout_call_index,
              StepTensors* step);

// The arguments of the three calls, and the memory they point to. Tests corrupt them one by one.
class MockModel {
 public:
  MockModel(const RnnConfig& config, const Shape& shape, int algorithm = kCudnnAlgorithmStandard);
  ~MockModel();

  // The first failure of the constructor, or 0.
  int status() const { return status_; }

  // Copies the step's inputs to the device, in this model's layouts.
  void Load(const StepTensors& step);
  int Forward();
  int BackwardData();
  int BackwardWeights();
  // Returns the results of the calls; the inputs are left empty.
  StepTensors Results() const;

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
  Bytes ToLayout(const Bytes& time_major, int64_t width) const;
  Bytes FromLayout(const char* data, int64_t width) const;
  // Calls function(offset in the weight space, offset in the dense buffer, bytes) for each region.
  template <typename Function>
  void ForWeights(const Function& function) const;

  int64_t element() const { return SizeOf(config.data_type); }
  int64_t stack_rows() const {
    return config.num_layers * config.num_directions() * shape.batch_size();
  }
  int64_t output_width() const { return config.num_directions() * config.output_size(); }

  int status_ = 0;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

}  // namespace mock_test
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_MODEL_H_
