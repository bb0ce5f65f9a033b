// State shared by all GPU plans: the libraries, the cuDNN handles, and the chosen algorithms.
#ifndef CUDNN_RNN_CC_CUDNN_GPU_RUNTIME_H_
#define CUDNN_RNN_CC_CUDNN_GPU_RUNTIME_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/algorithm.h"
#include "cudnn_rnn/cc/cudnn/device_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_libraries.h"

namespace cudnn_rnn {

// Makes a context current on this thread, to release an object that belongs to it. That fails if
// the driver is gone, as it may be at exit; then the object must not be touched any more.
class ContextForRelease {
 public:
  ContextForRelease(const GpuLibraries& libraries, void* context)
      : libraries_(libraries),
        is_current_(libraries.cuCtxPushCurrent_v2(context) == kCudaSuccess) {}
  ~ContextForRelease() {
    void* context;
    if (is_current_) libraries_.cuCtxPopCurrent_v2(&context);
  }
  ContextForRelease(const ContextForRelease&) = delete;
  ContextForRelease& operator=(const ContextForRelease&) = delete;

  bool is_current() const { return is_current_; }

 private:
  const GpuLibraries& libraries_;
  const bool is_current_;
};

// The cuDNN handle of one stream. Only one thread at a time may use it, so a thread holds `mutex`
// while it queues the work of a call. The driver would serialize the launches on a stream anyway.
// The thread that holds the mutex may lock it again, so a call within a call cannot wait for
// itself.
struct StreamHandle {
  std::recursive_mutex mutex;
  void* handle = nullptr;  // guarded by `mutex`; the first call creates it
};

// The cuDNN handles of all streams. Creating a handle takes milliseconds, and each takes memory of
// the device that no framework accounts for. So there is one per stream, however many threads call.
class StreamHandles {
 public:
  explicit StreamHandles(const GpuLibraries* libraries) : libraries_(libraries) {}
  ~StreamHandles();
  StreamHandles(const StreamHandles&) = delete;
  StreamHandles& operator=(const StreamHandles&) = delete;

  // Returns the stream's handle, which lives as long as this object.
  StreamHandle* Find(void* context, void* stream);

 private:
  using Key = std::pair<void*, void*>;  // context, stream

  const GpuLibraries* const libraries_;
  std::mutex mutex_;
  std::map<Key, StreamHandle> handles_;
};

// The algorithms that trials chose. Entries are never evicted: a gradient must run the algorithm of
// its forward pass, even if nothing else tells which one that was.
class AlgorithmCache {
 public:
  using Key = std::vector<int64_t>;

  // Returns the algorithm of `call`. Keys have everything that the choice depends on; calls of one
  // `group` differ only in their numbers of steps, which are similar. `choose(Algorithm*)` chooses
  // for the first call of a group, and `confirm(Algorithm*)`, given that choice, for each other
  // one. Their results are kept unless they fail.
  template <typename Choose, typename Confirm>
  Status FindOrChoose(const Key& call, const Key& group, const Choose& choose,
                      const Confirm& confirm, Algorithm* algorithm) {
    std::lock_guard<std::mutex> lock(mutex_);  // one trial at a time: trials measure time
    const auto known = calls_.find(call);
    if (known != calls_.end()) {
      *algorithm = known->second;
      return Status();
    }
    const auto similar = groups_.find(group);
    if (similar == groups_.end()) {
      CUDNN_RNN_RETURN_IF_ERROR(choose(algorithm));
      groups_[group] = *algorithm;
    } else {
      *algorithm = similar->second;
      CUDNN_RNN_RETURN_IF_ERROR(confirm(algorithm));
    }
    calls_[call] = *algorithm;
    return Status();
  }

  // Sets the algorithm of a call whose plan cuDNN has refused in spite of the trial.
  void UseStandard(const Key& call) {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_[call] = Algorithm::kStandard;
  }

 private:
  std::mutex mutex_;
  std::map<Key, Algorithm> calls_;
  std::map<Key, Algorithm> groups_;
};

// What checks of bfloat16 have found (bfloat16_check.h).
class Bfloat16Results {
 public:
  using Key = std::tuple<void*, RnnMode, bool>;  // CUDA context, mode, whether in training

  // Returns the problem of this device, "" if there is none. Calls `check(std::string*)` if that is
  // not known, and keeps its result unless it fails.
  template <typename Function>
  Status FindOrCheck(const Key& key, const Function& check, std::string* problem) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = problems_.find(key);
    if (known == problems_.end()) {
      CUDNN_RNN_RETURN_IF_ERROR(check(problem));
      problems_[key] = *problem;
    } else {
      *problem = known->second;
    }
    return Status();
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::string> problems_;
};

struct GpuRuntime {
  explicit GpuRuntime(std::unique_ptr<GpuLibraries> opened, int64_t alignment = kDeviceAlignment)
      : libraries(std::move(opened)), buffer_alignment(alignment), handles(libraries.get()) {}

  const std::unique_ptr<const GpuLibraries> libraries;
  // What cuDNN requires of weights and reserve spaces. A mock on host memory may require less.
  const int64_t buffer_alignment;
  StreamHandles handles;
  AlgorithmCache algorithms;
  Bfloat16Results bfloat16;
};

// The process's GpuRuntime, which is never closed, because the driver may be gone at exit. Two
// steps open it, so that a program can register GPU kernels before the framework has loaded its
// cuDNN. Of each, later calls return the result of the first.
Status OpenProcessDriver(const LibrarySearch& search);
// Opens cuDNN. OpenProcessDriver must have succeeded.
Status OpenProcessGpu(GpuRuntime** runtime);
// Does both.
Status OpenProcessGpu(const LibrarySearch& search, GpuRuntime** runtime);
// Returns lines of text: the libraries and their versions, or why there are none.
std::string ProcessGpuReport();

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_GPU_RUNTIME_H_
