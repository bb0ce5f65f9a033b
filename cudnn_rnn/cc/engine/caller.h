// The caller's threads and allocator, behind the core's interfaces.
#ifndef CUDNN_RNN_CC_ENGINE_CALLER_H_
#define CUDNN_RNN_CC_ENGINE_CALLER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/device_memory.h"
#include "cudnn_rnn/cc/engine/engine.h"

namespace cudnn_rnn {

class CallerThreads : public ParallelRunner {
 public:
  // Null: the calling thread only.
  explicit CallerThreads(const cudnn_rnn_threads* threads) : threads_(threads) {}

  int64_t num_threads() const override {
    return threads_ == nullptr || threads_->num_threads < 1 ? 1 : threads_->num_threads;
  }
  // Throws std::bad_alloc if the caller refuses the task.
  void Schedule(std::function<void()> task) override;
  std::shared_ptr<TeamRecruiter> recruiter() override;

 private:
  const cudnn_rnn_threads* const threads_;
};

class CallerAllocator : public DeviceAllocator {
 public:
  explicit CallerAllocator(const cudnn_rnn_allocator* allocator) : allocator_(allocator) {}
  Status Allocate(int64_t bytes, MemoryNeed need, std::unique_ptr<DeviceMemory>* memory) override;

 private:
  const cudnn_rnn_allocator* const allocator_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_ENGINE_CALLER_H_
