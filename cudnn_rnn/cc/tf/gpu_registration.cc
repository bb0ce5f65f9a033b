#include "cudnn_rnn/cc/tf/gpu_registration.h"

#include <mutex>

#include "cudnn_rnn/cc/cudnn/c_api_return.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"
#include "cudnn_rnn/cc/tf/cudnn_backend.h"
#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

void RegisterGpuKernels(int unlabelled_priority) {
  const BackendFactory create_backend = [](std::unique_ptr<DeviceBackend>* backend) {
    return CreateCudnnBackend(ProcessGpu(), StreamOf, backend);
  };
  RegisterKernels({"GPU", kKernelLabel, 0}, create_backend);
  if (unlabelled_priority > 0) RegisterKernels({"GPU", "", unlabelled_priority}, create_backend);
}

}  // namespace
}  // namespace cudnn_rnn

int cudnn_rnn_register_gpu_kernels(const char* cudnn_file, const char* wheel_folders,
                                   int unlabelled_priority) {
  static std::once_flag once;
  const int code = cudnn_rnn_open_gpu(nullptr, cudnn_file, wheel_folders);
  if (code != 0) return code;
  return cudnn_rnn::ReturnFromC([=] {
    std::call_once(once, [=] { cudnn_rnn::RegisterGpuKernels(unlabelled_priority); });
    return cudnn_rnn::Status();
  });
}
