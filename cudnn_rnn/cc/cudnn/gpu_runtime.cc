#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"

namespace cudnn_rnn {

StreamHandles::~StreamHandles() {
  for (const auto& entry : handles_) {
    if (entry.second.handle == nullptr) continue;
    const ContextForRelease context(*libraries_, entry.first.first);
    if (context.is_current()) libraries_->cudnnDestroy(entry.second.handle);
  }
}

StreamHandle* StreamHandles::Find(void* context, void* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  return &handles_[{context, stream}];
}

namespace {

constexpr char kNothingIsOpen[] = "The CUDA driver and cuDNN have not been opened.";

// The result of a step, once it was taken.
struct Step {
  bool is_done = false;
  Status status;

  // Takes the step; after an exception, the next call tries again.
  template <typename Function>
  Status DoOnce(const Function& function) {
    if (!is_done) {
      status = function();
      is_done = true;
    }
    return status;
  }
};

struct ProcessState {
  std::mutex mutex;
  LibrarySearch search;
  Step driver, cudnn;
  std::unique_ptr<GpuLibraries> libraries;  // until `runtime` has them
  GpuRuntime* runtime = nullptr;
};

ProcessState& GetProcessState() {
  static ProcessState* state = new ProcessState();
  return *state;
}

}  // namespace

Status OpenProcessDriver(const LibrarySearch& search) {
  ProcessState& process = GetProcessState();
  std::lock_guard<std::mutex> lock(process.mutex);
  return process.driver.DoOnce([&] {
    process.search = search;
    process.libraries.reset(new GpuLibraries());
    return OpenDriver(search, process.libraries.get());
  });
}

Status OpenProcessGpu(GpuRuntime** runtime) {
  ProcessState& process = GetProcessState();
  std::lock_guard<std::mutex> lock(process.mutex);
  if (!process.driver.is_done) return Status(StatusCode::kUnavailable, kNothingIsOpen);
  CUDNN_RNN_RETURN_IF_ERROR(process.driver.status);
  CUDNN_RNN_RETURN_IF_ERROR(process.cudnn.DoOnce([&] {
    CUDNN_RNN_RETURN_IF_ERROR(OpenCudnn(process.search, process.libraries.get()));
    process.runtime = new GpuRuntime(std::move(process.libraries));
    return Status();
  }));
  *runtime = process.runtime;
  return Status();
}

Status OpenProcessGpu(const LibrarySearch& search, GpuRuntime** runtime) {
  CUDNN_RNN_RETURN_IF_ERROR(OpenProcessDriver(search));
  return OpenProcessGpu(runtime);
}

std::string ProcessGpuReport() {
  ProcessState& process = GetProcessState();
  std::lock_guard<std::mutex> lock(process.mutex);
  if (!process.driver.is_done) return kNothingIsOpen;
  if (!process.driver.status.ok()) return process.driver.status.message();
  if (!process.cudnn.status.ok()) return process.cudnn.status.message();
  const bool has_cudnn = process.runtime != nullptr;
  const GpuLibraries& libraries = has_cudnn ? *process.runtime->libraries : *process.libraries;
  return Concatenate(has_cudnn ? Concatenate("cuDNN ", CudnnVersionText(libraries.cudnn_version),
                                             ": ", libraries.cudnn_path)
                               : "cuDNN: not opened yet; the first RNN on a GPU opens it",
                     "\nNVIDIA driver for CUDA ", DriverVersionText(libraries.driver_version), ": ",
                     libraries.driver_path);
}

}  // namespace cudnn_rnn
