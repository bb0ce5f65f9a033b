// Registers the cuDNN kernels on TensorFlow's CPU device, under their own label and with the mock
// of the driver and cuDNN, for tests without a GPU. Never part of the op library;
// tests/mock_kernels.py builds it.

#include <memory>
#include <string>

#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"
#include "cudnn_rnn/cc/tf/cudnn_backend.h"
#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

std::string& Report() {
  static std::string* report = new std::string();
  return *report;
}

// Any address will do, because the mock runs all work at once.
void* MockStream(::tensorflow::OpKernelContext*) {
  static char stream;
  return &stream;
}

}  // namespace
}  // namespace cudnn_rnn

// Must be called only once per process. Returns null, or the error message.
extern "C" __attribute__((visibility("default"))) const char* register_mock_kernels(
    const char* mock_file, const char* label) {
  using namespace cudnn_rnn;  // NOLINT: this function is outside the namespace
  LibrarySearch search;
  search.driver_name = mock_file;
  search.cudnn_file = mock_file;
  GpuRuntime* runtime;
  Status status = OpenProcessGpu(search, &runtime);
  if (status.ok()) status = InitializeDriver(*runtime->libraries);
  if (!status.ok()) {
    Report() = status.message();
    return Report().c_str();
  }
  RegisterKernels({"CPU", label, 0}, [runtime](std::unique_ptr<DeviceBackend>* backend) {
    return CreateCudnnBackend(runtime, MockStream, backend);
  });
  return nullptr;
}
