// What all plans on GPUs share: the libraries, a pool of cuDNN handles, and what was found out by
// trying.
#ifndef CUDNN_RNN_CC_CUDNN_GPU_RUNTIME_H_
#define CUDNN_RNN_CC_CUDNN_GPU_RUNTIME_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/bfloat16_kernels.h"
#include "cudnn_rnn/cc/cudnn/gpu_libraries.h"

namespace cudnn_rnn {

// cuDNN handles that nobody uses at the moment, by CUDA context. Making one takes milliseconds, and
// one must not be used by two threads at a time.
class HandlePool {
 public:
  explicit HandlePool(const GpuLibraries* libraries) : libraries_(libraries) {}
  ~HandlePool();

  // A handle of the current context, which is `context`.
  Status Borrow(void* context, const std::string& what, void** handle);
  // The context is current. Throws nothing: without memory to remember the handle it is destroyed.
  void GiveBack(void* context, void* handle);

 private:
  const GpuLibraries* const libraries_;
  std::mutex mutex_;
  std::multimap<void*, void*> idle_;
};

// Answers to questions that cost a trial on the device, by everything they depend on. Never
// forgotten: a gradient must get the answer that its forward pass got.
class TrialMemory {
 public:
  using Question = std::vector<int64_t>;

  // Calls `find_out` unless the answer is known; an error is not remembered.
  template <typename Function>
  Status Answer(const Question& question, const Function& find_out, int* answer) {
    std::lock_guard<std::mutex> lock(mutex_);  // one trial at a time: they measure
    const auto known = answers_.find(question);
    if (known != answers_.end()) {
      *answer = known->second;
      return Status();
    }
    CUDNN_RNN_RETURN_IF_ERROR(find_out(answer));
    answers_[question] = *answer;
    return Status();
  }

 private:
  std::mutex mutex_;
  std::map<Question, int> answers_;
};

struct GpuRuntime {
  explicit GpuRuntime(std::unique_ptr<GpuLibraries> opened)
      : libraries(std::move(opened)), handles(libraries.get()), bfloat16_kernels(libraries.get()) {}

  const std::unique_ptr<const GpuLibraries> libraries;
  HandlePool handles;
  Bfloat16Kernels bfloat16_kernels;
  TrialMemory algorithms;
  TrialMemory bfloat16_support;
};

// The process's own, opened by the first call and never closed: at exit the driver may be gone.
// Later calls return what the first one did.
Status OpenProcessGpu(const LibrarySearch& search);
// Null where it was not opened or could not be.
GpuRuntime* ProcessGpu();
// Lines of text: the libraries and their versions, or why there are none.
std::string ProcessGpuReport();

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_GPU_RUNTIME_H_
