#include "cudnn_rnn/cc/tf/gpu_registration.h"

#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"
#include "cudnn_rnn/cc/tf/cudnn_backend.h"
#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

std::vector<std::string> SplitAtColons(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) parts.push_back(part);
  return parts;
}

// Above TensorFlow's own kernels, which have priority 0.
constexpr int kUnlabelledPriority = 1;

void RegisterGpuKernels(const std::vector<std::string>& unlabelled_ops) {
  const BackendFactory create_backend = [](std::unique_ptr<DeviceBackend>* backend) {
    GpuRuntime* runtime;
    CUDNN_RNN_RETURN_IF_ERROR(OpenProcessGpu(&runtime));
    return CreateCudnnBackend(runtime, StreamOf, backend);
  };
  RegisterKernels({"GPU", kKernelLabel, 0}, create_backend);
  RegisterKernels({"GPU", "", kUnlabelledPriority}, create_backend, unlabelled_ops);
}

// Any address will do, because the mock runs all work at once.
void* MockStream(::tensorflow::OpKernelContext*) {
  static char stream;
  return &stream;
}

// Beside the process's runtime, which has the real libraries or knows that there are none.
Status RegisterMockKernels(const char* mock_file, const char* label, int buffer_alignment) {
  LibrarySearch search;
  search.driver_name = search.cudnn_file = mock_file;
  std::unique_ptr<GpuLibraries> libraries;
  CUDNN_RNN_RETURN_IF_ERROR(OpenGpuLibraries(search, &libraries));
  CUDNN_RNN_RETURN_IF_ERROR(InitializeDriver(*libraries));
  // Kernels outlive any owner.
  GpuRuntime* const runtime = new GpuRuntime(std::move(libraries), buffer_alignment);
  RegisterKernels({"CPU", label, 0}, [runtime](std::unique_ptr<DeviceBackend>* backend) {
    return CreateCudnnBackend(runtime, MockStream, backend);
  });
  return Status();
}

LibrarySearch SearchFor(const char* cudnn_file, const char* wheel_folders) {
  LibrarySearch search;
  if (cudnn_file != nullptr) search.cudnn_file = cudnn_file;
  if (wheel_folders != nullptr) search.wheel_folders = SplitAtColons(wheel_folders);
  return search;
}

}  // namespace
}  // namespace cudnn_rnn

int cudnn_rnn_register_gpu_kernels(const char* cudnn_file, const char* wheel_folders,
                                   const char* unlabelled_ops) {
  using namespace cudnn_rnn;  // NOLINT: C functions are outside the namespace
  static std::once_flag once;
  const Status status = CatchExceptions([=] {
    CUDNN_RNN_RETURN_IF_ERROR(OpenProcessDriver(SearchFor(cudnn_file, wheel_folders)));
    const std::vector<std::string> ops =
        SplitAtColons(unlabelled_ops == nullptr ? "" : unlabelled_ops);
    std::call_once(once, RegisterGpuKernels, ops);
    return Status();
  });
  return static_cast<int>(status.code());
}

int cudnn_rnn_open_gpu_libraries(const char* cudnn_file, const char* wheel_folders) {
  using namespace cudnn_rnn;  // NOLINT: C functions are outside the namespace
  const Status status = CatchExceptions([=] {
    GpuRuntime* runtime;
    return OpenProcessGpu(SearchFor(cudnn_file, wheel_folders), &runtime);
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

const char* cudnn_rnn_gpu_report(void) {
  using namespace cudnn_rnn;  // NOLINT: C functions are outside the namespace
  static thread_local std::string text;
  const Status status = CatchExceptions([] {
    text = ProcessGpuReport();
    return Status();
  });
  return status.ok() ? text.c_str() : kOutOfHostMemoryText;
}
