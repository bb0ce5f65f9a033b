#include "cudnn_rnn/cc/tf/gpu_registration.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/tf/engine_device.h"
#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

// Above TensorFlow's own kernels, which have priority 0.
constexpr int kUnlabelledPriority = 1;

void RegisterGpuKernels(const std::vector<std::string>& unlabelled_ops) {
  const DeviceFactory create_device = [](std::unique_ptr<EngineDevice>* device) {
    return EngineDevice::CreateGpu(nullptr, StreamOf, device);
  };
  RegisterKernels({"GPU", kKernelLabel, 0}, create_device);
  RegisterKernels({"GPU", "", kUnlabelledPriority}, create_device, unlabelled_ops);
}

// Any address will do, because the mock runs all work at once.
void* MockStream(::tensorflow::OpKernelContext*) {
  static char stream;
  return &stream;
}

// Beside the process's GPU libraries, which are the real ones or known to be missing.
Status RegisterMockKernels(const char* mock_file, const char* label, int buffer_alignment) {
  const cudnn_rnn_library_search search = {mock_file, mock_file, nullptr, 0};
  cudnn_rnn_gpu* gpu;
  CUDNN_RNN_RETURN_IF_ERROR(
      FromEngine(cudnn_rnn_open_another_gpu(&search, buffer_alignment, &gpu)));
  RegisterKernels({"CPU", label, 0}, [gpu](std::unique_ptr<EngineDevice>* device) {
    return EngineDevice::CreateGpu(gpu, MockStream, device);
  });
  return Status();
}

}  // namespace
}  // namespace cudnn_rnn

int cudnn_rnn_register_gpu_kernels(const cudnn_rnn_library_search* search,
                                   const char* const* unlabelled_ops, int64_t num_unlabelled_ops) {
  using namespace cudnn_rnn;  // NOLINT: C functions are outside the namespace
  static std::once_flag once;
  const Status status = CatchExceptions([=] {
    CUDNN_RNN_RETURN_IF_ERROR(FromEngine(cudnn_rnn_open_driver(search)));
    const std::vector<std::string> ops(unlabelled_ops, unlabelled_ops + num_unlabelled_ops);
    std::call_once(once, RegisterGpuKernels, ops);
    return Status();
  });
  return static_cast<int>(status.code());
}

int cudnn_rnn_register_mock_kernels(const char* mock_file, const char* label,
                                    int buffer_alignment) {
  using namespace cudnn_rnn;  // NOLINT: C functions are outside the namespace
  const Status status =
      CatchExceptions([=] { return RegisterMockKernels(mock_file, label, buffer_alignment); });
  return static_cast<int>(status.code());
}
