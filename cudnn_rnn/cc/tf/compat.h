// The one place that knows how TensorFlow's C++ API differs between releases (1.14 to 2.21).
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

// `code` is not 0. The enumeration is another one in newer releases; the numbers are the same in
// all.
inline TfStatus MakeTfStatus(int code, const std::string& message) {
  using Code = decltype(TfStatus().code());
  return TfStatus(static_cast<Code>(code), message);
}

// What TensorFlow's own Status holds, under names that all releases have.
inline int CodeOf(const TfStatus& status) { return static_cast<int>(status.code()); }
std::string MessageOf(const TfStatus& status);

// The CUstream on which the device queues the work of kernels; null on a CPU.
void* StreamOf(::tensorflow::OpKernelContext* context);

// A tensor of int8 whose memory is just a convenience: fails at once and without a warning.
bool AllocateWithoutRetry(::tensorflow::OpKernelContext* context,
                          const ::tensorflow::TensorShape& shape, ::tensorflow::Tensor* tensor);

// tf.config.experimental.enable_tensor_float_32_execution; false where TensorFlow has no such
// switch.
bool TensorFloat32IsAllowed();

// tf.config.experimental.enable_op_determinism; false where TensorFlow has no such switch.
bool OpDeterminismIsRequired();

// Whether the op's attribute T may be bfloat16.
bool OpTakesBfloat16(const char* op);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_COMPAT_H_
