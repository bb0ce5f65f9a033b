// The state of cuDNN's random number generator that one op kernel draws its dropout patterns from.
//
// It lives in device memory (some megabytes), goes on with each training call and is slow to make:
// so it is made once, and starting anew copies back what it was at first.
#ifndef CUDNN_RNN_CC_CUDNN_DROPOUT_STATE_H_
#define CUDNN_RNN_CC_CUDNN_DROPOUT_STATE_H_

#include <memory>
#include <mutex>

#include "cudnn_rnn/cc/core/device_memory.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/cudnn/descriptors.h"

namespace cudnn_rnn {

class DropoutState {
 public:
  static Status Create(const GpuQueue& queue, const RnnConfig& config, MemoryNeed need,
                       DeviceAllocator* allocator, std::shared_ptr<DropoutState>* state);

  // Sets a descriptor to this state; no work on the device.
  Status Attach(const GpuQueue& queue, DropoutDescriptor* descriptor) const;

  // Before a training call is queued on the same queue; until it is, the lock keeps others out.
  Status BeginCall(const GpuQueue& queue, bool starts_anew, std::unique_lock<std::mutex>* lock);

 private:
  explicit DropoutState(const RnnConfig& config);

  const float dropout_;
  const unsigned long long seed_;  // NOLINT: cuDNN's type
  size_t bytes_ = 0;
  std::unique_ptr<DeviceMemory> states_;
  std::unique_ptr<DeviceMemory> origin_;  // states_ as first made
  std::mutex mutex_;
  bool is_used_ = false;  // states_ differ from origin_
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_DROPOUT_STATE_H_
