// For tests without a GPU: the kernels that call cuDNN, on TensorFlow's CPU device and under a
// label of their own, over the stand-in for the driver and cuDNN. Never part of the op library;
// tests/stand_in_kernels.py builds it.

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

// Any address: the stand-in does all work at once.
void* StandInStream(::tensorflow::OpKernelContext*) {
  static char stream;
  return &stream;
}

}  // namespace
}  // namespace cudnn_rnn

// Once in a process. Returns null or what went wrong.
extern "C" __attribute__((visibility("default"))) const char* register_stand_in_kernels(
    const char* stand_in_file, const char* label) {
  using namespace cudnn_rnn;  // NOLINT: the function cannot be in it
  LibrarySearch search;
  search.driver_name = stand_in_file;
  search.cudnn_file = stand_in_file;
  Status status = OpenProcessGpu(search);
  if (status.ok()) status = InitializeDriver(*ProcessGpu()->libraries);
  if (!status.ok()) {
    Report() = status.message();
    return Report().c_str();
  }
  RegisterKernels({"CPU", label, 0}, [](std::unique_ptr<DeviceBackend>* backend) {
    return CreateCudnnBackend(ProcessGpu(), StandInStream, backend);
  });
  return nullptr;
}
