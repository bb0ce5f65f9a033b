// Converts tensors, attributes and statuses between TensorFlow and the core.
#ifndef CUDNN_RNN_CC_TF_ADAPTER_H_
#define CUDNN_RNN_CC_TF_ADAPTER_H_

#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/engine/engine.h"
#include "cudnn_rnn/cc/tf/compat.h"

namespace cudnn_rnn {

TfStatus ToTf(const Status& status);
// For the Status of a caught exception: leaves the message out if there is no memory for it.
TfStatus CaughtToTf(const Status& status) noexcept;
Status FromTf(const TfStatus& status);

// A kernel whose Run returns a status. Compute also converts exceptions to errors of the context,
// since TensorFlow does not expect Compute to throw.
class StatusKernel : public ::tensorflow::OpKernel {
 public:
  explicit StatusKernel(::tensorflow::OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(::tensorflow::OpKernelContext* context) final;

 private:
  virtual TfStatus Run(::tensorflow::OpKernelContext* context) = 0;
};

// Returns TensorFlow's intra-op thread pool.
cudnn_rnn_threads IntraOpThreads(::tensorflow::OpKernelContext* context);

// Reads the attribute T.
TfStatus ReadDataType(::tensorflow::OpKernelConstruction* context, DataType* data_type);

// Reads the attributes T, rnn_mode, input_mode, direction, dropout, seed, seed2 and num_proj (0 if
// the op lacks it). Leaves the sizes unset.
TfStatus ReadAttributes(::tensorflow::OpKernelConstruction* context, RnnConfig* config);

// Reads the int32 scalar inputs num_layers, num_units and input_size of the parameter ops.
TfStatus ReadSizeInputs(::tensorflow::OpKernelContext* context, RnnConfig* config);

// Returns text such as "[2, 3, 5]".
std::string ShapeText(const std::vector<int64_t>& shape);
std::vector<int64_t> ShapeOf(const ::tensorflow::Tensor& tensor);

// Fails unless the tensor has this shape; `dimensions` names its axes in the message.
TfStatus CheckShape(const char* name, const ::tensorflow::Tensor& tensor,
                    const std::vector<int64_t>& expected, const char* dimensions);

TfStatus CheckRank(const char* name, const ::tensorflow::Tensor& tensor, int rank,
                   const char* dimensions);

// Fails unless the parameter buffer has at least `params_size` elements, in any shape. As in
// TensorFlow's GPU kernels, the ops use the front of a longer buffer, in row-major order: some
// graphs run one layer on inputs of several widths.
TfStatus CheckParams(const ::tensorflow::Tensor& params, int64_t params_size);

// Fails if the shape has more elements than 64 bits can count.
TfStatus MakeShape(const std::vector<int64_t>& dimensions, ::tensorflow::TensorShape* shape);

const void* DataOf(const ::tensorflow::Tensor& tensor);
void* MutableDataOf(::tensorflow::Tensor* tensor);

// Sets `value` to true for 1 and true, and to false for 0, false, empty and unset, ignoring case.
// Fails for other values, naming the variable.
Status ReadEnvironmentSwitch(const char* name, bool* value);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_ADAPTER_H_
