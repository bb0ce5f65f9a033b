#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"

#include "cudnn_rnn/cc/core/exceptions.h"

namespace cudnn_rnn {

HandlePool::~HandlePool() {
  for (const auto& entry : idle_) {
    if (libraries_->cuCtxPushCurrent_v2(entry.first.context) != kCudaSuccess) continue;
    libraries_->cudnnDestroy(entry.second);
    void* context;
    libraries_->cuCtxPopCurrent_v2(&context);
  }
}

void* HandlePool::Take(const Key& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = idle_.find(key);
  if (found == idle_.end()) return nullptr;
  void* const handle = found->second;
  idle_.erase(found);
  return handle;
}

void HandlePool::Return(const Key& key, void* handle) {
  const Status kept = CatchExceptions([&] {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.emplace(key, handle);
    return Status();
  });
  if (!kept.ok()) libraries_->cudnnDestroy(handle);
}

namespace {

struct ProcessState {
  std::mutex mutex;
  bool tried = false;
  Status status;
  GpuRuntime* runtime = nullptr;
};

ProcessState& GetProcessState() {
  static ProcessState* state = new ProcessState();
  return *state;
}

}  // namespace

Status OpenProcessGpu(const LibrarySearch& search) {
  ProcessState& process = GetProcessState();
  std::lock_guard<std::mutex> lock(process.mutex);
  if (process.tried) return process.status;
  std::unique_ptr<GpuLibraries> libraries;
  process.status = OpenGpuLibraries(search, &libraries);
  if (process.status.ok()) process.runtime = new GpuRuntime(std::move(libraries));
  process.tried = true;  // Set last: after an exception, the next call tries again.
  return process.status;
}

GpuRuntime* ProcessGpu() {
  ProcessState& process = GetProcessState();
  std::lock_guard<std::mutex> lock(process.mutex);
  return process.runtime;
}

std::string ProcessGpuReport() {
  ProcessState& process = GetProcessState();
  std::lock_guard<std::mutex> lock(process.mutex);
  if (!process.tried) return "The CUDA driver and cuDNN have not been opened.";
  if (process.runtime == nullptr) return process.status.message();
  const GpuLibraries& libraries = *process.runtime->libraries;
  return Concatenate("cuDNN ", CudnnVersionText(libraries.cudnn_version), ": ",
                     libraries.cudnn_path, "\nNVIDIA driver for CUDA ",
                     DriverVersionText(libraries.driver_version), ": ", libraries.driver_path);
}

}  // namespace cudnn_rnn
