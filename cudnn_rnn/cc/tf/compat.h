// The one place that knows how TensorFlow's C++ API differs between releases (1.15 to 2.21).
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

inline TfStatus TfInvalidArgument(const std::string& message) {
  // The enumeration is another one in newer releases; the number is the same in all.
  using Code = decltype(TfStatus().code());
  constexpr int kInvalidArgument = 3;
  return TfStatus(static_cast<Code>(kInvalidArgument), message);
}

// `item_cost` is in processor cycles.
inline void ParallelFor(::tensorflow::thread::ThreadPool* pool, int64_t num_items,
                        int64_t item_cost, const std::function<void(int64_t, int64_t)>& work) {
// Newer releases prefer an overload that older ones do not have.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  pool->ParallelFor(num_items, item_cost,
                    [&work](int64_t begin, int64_t end) { work(begin, end); });
#pragma GCC diagnostic pop
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_COMPAT_H_
