// Tests the C API on the CPU, and on the mock of cuDNN opened as a shared library, as ctypes does.

#include "tests/cudnn/core_api.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/cudnn_types.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

// Opens the mock's shared library, whose state is separate from the mock linked into this program.
void* MockFile() {
  static void* const file = [] {
    const char* folder = std::getenv("CUDNN_RNN_MOCK_FOLDER");
    return dlopen(Concatenate(folder == nullptr ? "" : folder, "/libmock_cudnn.so").c_str(),
                  RTLD_NOW | RTLD_LOCAL);
  }();
  EXPECT(file != nullptr, "scripts/run_cudnn_tests.sh sets CUDNN_RNN_MOCK_FOLDER");
  return file;
}

template <typename Function>
Function Control(const char* name) {
  return reinterpret_cast<Function>(dlsym(MockFile(), name));
}

void OpenMock() {
  const char* folder = std::getenv("CUDNN_RNN_MOCK_FOLDER");
  const std::string path = Concatenate(folder, "/libmock_cudnn.so");
  MockFile();
  EXPECT(cudnn_rnn_open_gpu(path.c_str(), path.c_str()) == 0, cudnn_rnn_last_error());
}

cudnn_rnn_model_config SmallLstm() {
  cudnn_rnn_model_config config = {};
  config.rnn_mode = 2;
  config.data_type = 2;
  config.num_layers = 2;
  config.num_units = 4;
  config.input_size = 3;
  return config;
}

constexpr int64_t kSteps = 3, kBatch = 2;

cudnn_rnn_call TrainingCall() {
  cudnn_rnn_call call = {};
  call.num_steps = kSteps;
  call.batch_size = kBatch;
  call.time_major = 1;
  call.is_training = 1;
  call.keeps_reserve_space = 1;
  call.stream = reinterpret_cast<void*>(uintptr_t{0x77});
  return call;
}

// Aligned floats, registered with the mock as device memory if `on_device`.
class Floats {
 public:
  explicit Floats(int64_t bytes, bool on_device) : on_device_(on_device) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, static_cast<size_t>(bytes + 1)) != 0) std::abort();
    data_ = static_cast<float*>(memory);
    for (int64_t i = 0; i < bytes / 4; ++i) data_[i] = 0.1f * std::sin(static_cast<float>(i));
    if (on_device_) {
      Control<void (*)(const void*, int64_t)>("mock_register_memory")(data_, bytes);
    }
  }
  ~Floats() {
    if (on_device_) Control<void (*)(const void*)>("mock_unregister_memory")(data_);
    std::free(data_);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* data() { return data_; }

 private:
  const bool on_device_;
  float* data_;
};

// Runs forward and backward; returns the output and the gradient of the parameters.
std::vector<float> Train(int on_gpu) {
  const cudnn_rnn_model_config config = SmallLstm();
  const cudnn_rnn_call call = TrainingCall();
  cudnn_rnn_model* model = nullptr;
  EXPECT(cudnn_rnn_model_create(&config, on_gpu, &model) == 0, cudnn_rnn_last_error());
  cudnn_rnn_sizes sizes = {};
  EXPECT(cudnn_rnn_prepare(model, &call, &sizes) == 0, cudnn_rnn_last_error());
  EXPECT(sizes.algorithm == (on_gpu ? 1 : 0), sizes.algorithm);
  const int64_t input_bytes = kSteps * kBatch * 3 * 4, output_bytes = kSteps * kBatch * 4 * 4;
  const int64_t state_bytes = 2 * kBatch * 4 * 4, params_bytes = sizes.params_elements * 4;
  const bool device = on_gpu != 0;
  Floats input(input_bytes, device), h(state_bytes, device), c(state_bytes, device);
  Floats params(params_bytes, device), output(output_bytes, device), output_h(state_bytes, device);
  Floats output_c(state_bytes, device), reserve(sizes.reserve_space_bytes, device);
  Floats forward_workspace(sizes.forward_workspace_bytes, device);
  cudnn_rnn_forward_buffers forward = {};
  forward.input = input.data();
  forward.input_h = h.data();
  forward.input_c = c.data();
  forward.params = params.data();
  forward.output = output.data();
  forward.output_h = output_h.data();
  forward.output_c = output_c.data();
  forward.reserve_space = reserve.data();
  forward.reserve_space_bytes = sizes.reserve_space_bytes;
  forward.workspace = forward_workspace.data();
  forward.workspace_bytes = sizes.forward_workspace_bytes;
  EXPECT(cudnn_rnn_forward(model, &call, &forward) == 0, cudnn_rnn_last_error());

  Floats dy(output_bytes, device), dh(state_bytes, device), dc(state_bytes, device);
  Floats dx(input_bytes, device), dhx(state_bytes, device), dcx(state_bytes, device);
  Floats dw(params_bytes, device), backward_workspace(sizes.backward_workspace_bytes, device);
  cudnn_rnn_backward_buffers backward = {};
  backward.input = input.data();
  backward.input_h = h.data();
  backward.input_c = c.data();
  backward.params = params.data();
  backward.output = output.data();
  backward.output_h = output_h.data();
  backward.output_backprop = dy.data();
  backward.output_h_backprop = dh.data();
  backward.output_c_backprop = dc.data();
  backward.reserve_space = reserve.data();
  backward.reserve_space_bytes = sizes.reserve_space_bytes;
  backward.input_backprop = dx.data();
  backward.input_h_backprop = dhx.data();
  backward.input_c_backprop = dcx.data();
  backward.params_backprop = dw.data();
  backward.workspace = backward_workspace.data();
  backward.workspace_bytes = sizes.backward_workspace_bytes;
  EXPECT(cudnn_rnn_backward(model, &call, &backward) == 0, cudnn_rnn_last_error());
  if (on_gpu) {  // a buffer in host memory
    Floats host(params_bytes, false);
    forward.params = host.data();
    EXPECT(cudnn_rnn_forward(model, &call, &forward) == 3);
    EXPECT(std::strstr(cudnn_rnn_last_error(), "params must be in the memory of GPU 0") != nullptr,
           cudnn_rnn_last_error());
  }
  if (on_gpu) {  // a buffer on another GPU
    DeviceAddress other = 0;
    Control<void (*)(int)>("mock_set_num_devices")(2);
    Control<void (*)(int)>("mock_set_thread_device")(1);
    EXPECT(Control<int (*)(DeviceAddress*, size_t)>("cuMemAlloc_v2")(&other, 4096) == 0);
    forward.params = reinterpret_cast<void*>(static_cast<uintptr_t>(other));
    EXPECT(cudnn_rnn_forward(model, &call, &forward) == 3);
    EXPECT(std::strstr(cudnn_rnn_last_error(), "of GPU 0, but is on GPU 1") != nullptr,
           cudnn_rnn_last_error());
    EXPECT(Control<int (*)(DeviceAddress)>("cuMemFree_v2")(other) == 0);
    Control<void (*)(int)>("mock_set_thread_device")(0);
  }
  cudnn_rnn_model_destroy(model);
  std::vector<float> results(output.data(), output.data() + output_bytes / 4);
  results.insert(results.end(), dw.data(), dw.data() + sizes.params_elements);
  return results;
}

TEST(CApiGivesTheSameOnBothDevices) {
  OpenMock();
  Control<void (*)(int)>("mock_set_thread_device")(0);
  const std::vector<float> cpu = Train(0), gpu = Train(1);
  EXPECT(cpu.size() == gpu.size() && !cpu.empty());
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT(std::abs(cpu[i] - gpu[i]) < 1e-6f, i, ": ", cpu[i], " and ", gpu[i]);
  }
  const auto violations = Control<int64_t (*)()>("mock_violations");
  EXPECT(violations() == 0, Control<const char* (*)()>("mock_violation_text")());
}

TEST(CApiReportsWhatIsOpen) {
  OpenMock();
  const std::string report = cudnn_rnn_gpu_report();
  for (const char* part : {"cuDNN 9.13.0", "libmock_cudnn.so", "CUDA 12.8"}) {
    EXPECT(report.find(part) != std::string::npos, part, " in ", report);
  }
}

TEST(CApiErrorsNameTheArgument) {
  cudnn_rnn_model* model = nullptr;
  cudnn_rnn_model_config config = SmallLstm();
  config.data_type = 9;
  EXPECT(cudnn_rnn_model_create(&config, 0, &model) == 3 && model == nullptr);
  EXPECT(std::strstr(cudnn_rnn_last_error(), "data_type must be between 0 and 3") != nullptr,
         cudnn_rnn_last_error());
  config = SmallLstm();
  config.num_units = 0;
  EXPECT(cudnn_rnn_model_create(&config, 0, &model) == 3 && model == nullptr);
  config = SmallLstm();
  EXPECT(cudnn_rnn_model_create(&config, 0, &model) == 0);
  EXPECT(std::strlen(cudnn_rnn_last_error()) == 0, cudnn_rnn_last_error());
  cudnn_rnn_call call = TrainingCall();
  call.num_steps = -1;
  cudnn_rnn_sizes sizes;
  EXPECT(cudnn_rnn_prepare(model, &call, &sizes) == 3);
  EXPECT(std::strstr(cudnn_rnn_last_error(), "num_steps") != nullptr, cudnn_rnn_last_error());
  cudnn_rnn_model_destroy(model);
}

}  // namespace
}  // namespace cudnn_rnn
