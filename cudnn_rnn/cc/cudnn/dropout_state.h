// State of cuDNN's random number generator, from which one op kernel draws its dropout patterns.
//
// The state takes some megabytes of device memory, advances with each training call and is slow to
// create. It is therefore created once, and a restart copies the initial state back. Calls on
// several streams use the state one after the other: an event orders them.
#ifndef CUDNN_RNN_CC_CUDNN_DROPOUT_STATE_H_
#define CUDNN_RNN_CC_CUDNN_DROPOUT_STATE_H_

#include <memory>
#include <mutex>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/cudnn/descriptors.h"
#include "cudnn_rnn/cc/cudnn/device_memory.h"

namespace cudnn_rnn {

// Returns whether dropout has an effect: it acts between layers, in training.
inline bool UsesDropout(const RnnConfig& config, bool is_training) {
  return is_training && config.dropout > 0 && config.num_layers > 1;
}

class DropoutState {
 public:
  ~DropoutState();
  DropoutState(const DropoutState&) = delete;
  DropoutState& operator=(const DropoutState&) = delete;

  // Holds the queue's handle at the end.
  static Status Create(GpuQueue* queue, const RnnConfig& config, MemoryNeed need,
                       DeviceAllocator* allocator, std::shared_ptr<DropoutState>* state);

  // Sets `descriptor` to this state, without work on the device.
  Status Attach(const GpuQueue& queue, DropoutDescriptor* descriptor) const;

  // Must precede each training call on the same queue. Restarts the generator if `restarts`. The
  // caller holds `lock` until EndCall. Fails if one of this call and the last one is recorded in a
  // CUDA graph and they are on different streams.
  Status BeginCall(const GpuQueue& queue, bool restarts, std::unique_lock<std::mutex>* lock);
  // Must follow each training call, even one that failed.
  Status EndCall(const GpuQueue& queue);

 private:
  DropoutState(const GpuQueue& queue, const RnnConfig& config);
  Status Allocate(GpuQueue* queue, MemoryNeed need, DeviceAllocator* allocator);
  Status Initialize(const GpuQueue& queue);

  const GpuLibraries& libraries_;
  void* const context_;
  void* const creation_stream_;
  const float dropout_;
  // cuDNN takes one seed. TensorFlow's kernels combine the op's two in the same way.
  const unsigned long long seed_;  // NOLINT: cuDNN's type
  size_t bytes_ = 0;
  std::unique_ptr<DeviceMemory> states_;
  std::unique_ptr<DeviceMemory> initial_states_;  // initial contents of states_
  void* last_use_ = nullptr;                      // event after the last call
  std::mutex mutex_;                              // guards the members below
  void* last_stream_;
  // Whether a CUDA graph recorded the last use. The graph's work runs whenever the program launches
  // it. No event outside tells when, and a graph cannot wait for an event outside.
  bool last_is_captured_ = false;
  bool is_used_ = false;  // states_ may differ from initial_states_
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_DROPOUT_STATE_H_
