// From TensorFlow's tensors, attributes and status to the core's, and back.
#ifndef CUDNN_RNN_CC_TF_ADAPTER_H_
#define CUDNN_RNN_CC_TF_ADAPTER_H_

#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/tf/compat.h"

namespace cudnn_rnn {

TfStatus ToTf(const Status& status);
Status FromTf(const TfStatus& status);

// A kernel whose work returns a status. TensorFlow's callers of Compute do not expect exceptions,
// so an exception becomes the context's error too.
class StatusKernel : public ::tensorflow::OpKernel {
 public:
  explicit StatusKernel(::tensorflow::OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(::tensorflow::OpKernelContext* context) final;

 private:
  virtual TfStatus Run(::tensorflow::OpKernelContext* context) = 0;
};

// TensorFlow's intra-op thread pool.
class IntraOpRunner : public ParallelRunner {
 public:
  explicit IntraOpRunner(::tensorflow::OpKernelContext* context);
  int64_t num_threads() const override;
  void Schedule(std::function<void()> task) override;
  std::shared_ptr<TeamRecruiter> recruiter() override;

 private:
  ::tensorflow::thread::ThreadPool* const pool_;
};

// The attribute T.
TfStatus ReadDataType(::tensorflow::OpKernelConstruction* context, DataType* data_type);

// The attributes that the op has of T, rnn_mode, input_mode, direction, dropout, seed, seed2 and
// num_proj (0 where it has none). Sizes stay unset.
TfStatus ReadAttributes(::tensorflow::OpKernelConstruction* context, RnnConfig* config);

// The int32 scalar inputs num_layers, num_units and input_size of the parameter ops.
TfStatus ReadSizes(::tensorflow::OpKernelContext* context, RnnConfig* config);

// "[2, 3, 5]"
std::string ShapeText(const std::vector<int64_t>& shape);
std::vector<int64_t> ShapeOf(const ::tensorflow::Tensor& tensor);

// Fails unless the tensor has this shape; `dimensions` names its axes in the message.
TfStatus CheckShape(const char* name, const ::tensorflow::Tensor& tensor,
                    const std::vector<int64_t>& expected, const char* dimensions);

TfStatus CheckRank(const char* name, const ::tensorflow::Tensor& tensor, int rank,
                   const char* dimensions);

// Fails where the shape has more elements than 64 bits can count.
TfStatus MakeShape(const std::vector<int64_t>& dimensions, ::tensorflow::TensorShape* shape);

const void* DataOf(const ::tensorflow::Tensor& tensor);
void* MutableDataOf(::tensorflow::Tensor* tensor);

// The value of an environment variable, empty where it is unset. For constructors of kernels only:
// a program may change its environment while kernels run.
std::string ReadEnvironment(const char* name);

// True for 1 and true, false for unset, empty, 0 and false (any case); else an error that names
// the variable.
Status ReadEnvironmentSwitch(const char* name, bool* value);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_ADAPTER_H_
