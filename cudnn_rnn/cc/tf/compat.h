// All differences between the C++ APIs of TensorFlow 1.14 to 2.21 are handled here.
#ifndef CUDNN_RNN_CC_TF_COMPAT_H_
#define CUDNN_RNN_CC_TF_COMPAT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/lib/core/threadpool.h"

namespace cudnn_rnn {

// absl::Status in newer releases, TensorFlow's own class in older ones.
using TfStatus = std::decay<decltype(std::declval<::tensorflow::OpKernelContext>().status())>::type;

// TensorFlow's int64: `long` in newer releases, `long long` in older ones.
using TfInt64 = decltype(std::declval<::tensorflow::Tensor>().NumElements());

// `code` must not be 0. The type of the enumeration differs between releases; the numbers do not.
inline TfStatus MakeTfStatus(int code, const std::string& message) {
  using Code = decltype(TfStatus().code());
  return TfStatus(static_cast<Code>(code), message);
}

// Return a TensorFlow status's code and message in every release.
inline int CodeOf(const TfStatus& status) { return static_cast<int>(status.code()); }
std::string MessageOf(const TfStatus& status);

// Returns the CUstream on which the device queues the kernels' work; null on a CPU.
void* StreamOf(::tensorflow::OpKernelContext* context);

// Allocates an int8 tensor in memory that is optional: fails at once and without a warning.
bool AllocateWithoutRetry(::tensorflow::OpKernelContext* context,
                          const ::tensorflow::TensorShape& shape, ::tensorflow::Tensor* tensor);

// Returns the setting of tf.config.experimental.enable_tensor_float_32_execution, or false if
// TensorFlow lacks it.
bool TensorFloat32IsAllowed();

// Returns tf.config.experimental.enable_op_determinism's setting; false if TensorFlow lacks it.
bool OpDeterminismIsRequired();

// Returns whether the op's attribute T may be bfloat16.
bool OpTakesBfloat16(const char* op);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_COMPAT_H_
