// The engine (engine/engine.h) as op kernels use it: a device for each kernel, which does not know
// whether it is a CPU or a GPU.
#ifndef CUDNN_RNN_CC_TF_ENGINE_DEVICE_H_
#define CUDNN_RNN_CC_TF_ENGINE_DEVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/engine/conversions.h"
#include "cudnn_rnn/cc/engine/engine.h"
#include "cudnn_rnn/cc/tf/compat.h"

namespace cudnn_rnn {

// Converts what a function of the engine returned.
Status FromEngine(int code);

// Returns the CUstream on which a kernel queues its work: StreamOf, except in tests without a GPU.
using StreamFunction = void* (*)(::tensorflow::OpKernelContext*);

// Lives as long as its kernel; any thread may start calls.
class EngineDevice {
 public:
  static Status CreateCpu(std::unique_ptr<EngineDevice>* device);
  // `gpu`: the process's if null. The process's driver must have been opened.
  static Status CreateGpu(cudnn_rnn_gpu* gpu, StreamFunction stream_of,
                          std::unique_ptr<EngineDevice>* device);
  ~EngineDevice() { cudnn_rnn_destroy_planner(planner_); }
  EngineDevice(const EngineDevice&) = delete;
  EngineDevice& operator=(const EngineDevice&) = delete;

  bool is_gpu() const { return stream_of_ != nullptr; }

 private:
  friend class EngineCall;
  EngineDevice() = default;

  cudnn_rnn_planner* planner_ = nullptr;
  // GPU only; the options are CudnnOptions (cudnn/algorithm.h).
  StreamFunction stream_of_ = nullptr;
  int32_t algorithm_ = 0;
  std::string algorithm_name_;  // as the environment has it
  bool deterministic_ = false;
};

// Called once by the constructor of each kernel that reads or writes device memory.
using DeviceFactory = std::function<Status(std::unique_ptr<EngineDevice>*)>;

// One call of a kernel. Pointers are to device memory.
class EngineCall {
 public:
  // The call must not outlive the device and the context.
  EngineCall(EngineDevice* device, ::tensorflow::OpKernelContext* context);
  ~EngineCall() { cudnn_rnn_release_call(prepared_); }
  EngineCall(const EngineCall&) = delete;
  EngineCall& operator=(const EngineCall&) = delete;

  // Returns whether the host may read the device's memory.
  bool has_host_memory() const { return !device_->is_gpu(); }

  // Must be called once, before the functions below.
  Status Prepare(const RnnConfig& config, const SequenceShape& shape, const CallOptions& options);
  const cudnn_rnn_sizes& sizes() const { return sizes_; }
  ForwardChoice choice() const { return FromC(sizes_.choice); }
  PackedWeightsSpec PackedWeights() const;
  Status Forward(const cudnn_rnn_forward_buffers& buffers);
  Status Backward(const cudnn_rnn_backward_buffers& buffers);

  // Need no Prepare.
  Status Clear(void* target, int64_t bytes);
  Status Copy(const std::vector<cudnn_rnn_copy>& copies);
  Status Transpose(DataType data_type, const std::vector<cudnn_rnn_transposition>& transpositions);

 private:
  EngineDevice* const device_;
  void* const stream_;
  const cudnn_rnn_threads threads_;
  const cudnn_rnn_allocator allocator_;
  cudnn_rnn_prepared_call* prepared_ = nullptr;
  cudnn_rnn_sizes sizes_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_ENGINE_DEVICE_H_
