// Op kernels of all versions of CudnnRNN and CudnnRNNBackprop, for any device. They only convert
// tensors and statuses.
#ifndef CUDNN_RNN_CC_TF_RNN_KERNELS_H_
#define CUDNN_RNN_CC_TF_RNN_KERNELS_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "cudnn_rnn/cc/tf/adapter.h"
#include "cudnn_rnn/cc/tf/engine_device.h"
#include "cudnn_rnn/cc/tf/kept_weights.h"
#include "cudnn_rnn/cc/tf/rnn_model.h"

namespace cudnn_rnn {

class ForwardKernel : public StatusKernel {
 public:
  ForwardKernel(::tensorflow::OpKernelConstruction* context, OpVersion version,
                const DeviceFactory& create_device);

 private:
  TfStatus Run(::tensorflow::OpKernelContext* context) override;

  const OpVersion version_;
  std::unique_ptr<EngineDevice> device_;
  RnnAttributes attributes_;
  bool is_training_ = true;
  bool repeats_dropout_pattern_ = false;
  std::atomic<int64_t> num_calls_{0};
  std::unique_ptr<KeptWeights> kept_weights_;  // null if this node keeps none
};

class BackwardKernel : public StatusKernel {
 public:
  BackwardKernel(::tensorflow::OpKernelConstruction* context, OpVersion version,
                 const DeviceFactory& create_device);

 private:
  TfStatus Run(::tensorflow::OpKernelContext* context) override;

  const OpVersion version_;
  std::unique_ptr<EngineDevice> device_;
  RnnAttributes attributes_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_RNN_KERNELS_H_
