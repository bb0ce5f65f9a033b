// Interface between the op kernels, which are the same for all devices, and a device. One
// implementation is for CPUs, one for cuDNN.
#ifndef CUDNN_RNN_CC_TF_DEVICE_BACKEND_H_
#define CUDNN_RNN_CC_TF_DEVICE_BACKEND_H_

#include <functional>
#include <memory>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/tf/compat.h"

namespace cudnn_rnn {

struct BufferCopy {
  void* target;
  const void* source;
  int64_t bytes;
};

// One call of a kernel. Pointers are to device memory.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;

  virtual Status FindPlan(const RnnConfig& config, const SequenceShape& shape,
                          const CallOptions& options, std::shared_ptr<const RnnPlan>* plan) = 0;
  // Returns whether the host may read the device's memory.
  virtual bool has_host_memory() const = 0;
  // Returns where the plan runs this call's work.
  virtual Execution execution() = 0;
  virtual Status Clear(void* target, int64_t bytes) = 0;
  virtual Status Copy(const std::vector<BufferCopy>& copies) = 0;
};

// Lives as long as its kernel; any thread may start calls.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  // The call must not outlive the context.
  virtual std::unique_ptr<DeviceCall> Start(::tensorflow::OpKernelContext* context) = 0;
};

// Called once by the constructor of each kernel that reads or writes device memory.
using BackendFactory = std::function<Status(std::unique_ptr<DeviceBackend>*)>;

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_DEVICE_BACKEND_H_
