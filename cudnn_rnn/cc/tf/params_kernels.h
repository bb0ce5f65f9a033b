// Op kernels of the parameter buffer, for any device: CudnnRNNParamsSize,
// CudnnRNNParamsToCanonical, CudnnRNNCanonicalToParams and the later versions of the last two.
#ifndef CUDNN_RNN_CC_TF_PARAMS_KERNELS_H_
#define CUDNN_RNN_CC_TF_PARAMS_KERNELS_H_

#include <memory>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/tf/adapter.h"
#include "cudnn_rnn/cc/tf/engine_device.h"

namespace cudnn_rnn {

// Scalars num_layers, num_units, input_size -> params_size [1], the number of elements in the
// parameter buffer; all in host memory.
class ParamsSizeKernel : public StatusKernel {
 public:
  explicit ParamsSizeKernel(::tensorflow::OpKernelConstruction* context);

 private:
  TfStatus Run(::tensorflow::OpKernelContext* context) override;

  RnnConfig attributes_;
  ::tensorflow::DataType size_type_ = ::tensorflow::DT_INT32;
};

// params [params_size] -> weights [num_units, width] and biases [num_units].
class ParamsToCanonicalKernel : public StatusKernel {
 public:
  ParamsToCanonicalKernel(::tensorflow::OpKernelConstruction* context,
                          const DeviceFactory& create_device);

 private:
  TfStatus Run(::tensorflow::OpKernelContext* context) override;

  std::unique_ptr<EngineDevice> device_;
  RnnConfig attributes_;
};

// weights and biases of any shapes with the right number of elements in row-major order -> params
// [params_size].
class CanonicalToParamsKernel : public StatusKernel {
 public:
  CanonicalToParamsKernel(::tensorflow::OpKernelConstruction* context,
                          const DeviceFactory& create_device);

 private:
  TfStatus Run(::tensorflow::OpKernelContext* context) override;

  std::unique_ptr<EngineDevice> device_;
  RnnConfig attributes_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_PARAMS_KERNELS_H_
