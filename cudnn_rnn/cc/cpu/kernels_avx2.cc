// Micro-kernels for processors with AVX2 and FMA.

#include "cudnn_rnn/cc/cpu/kernel_file.h"

#if defined(__x86_64__)
namespace cudnn_rnn {

CUDNN_RNN_BEGIN_TARGET("avx2,fma")
namespace {

namespace exact {
#include "cudnn_rnn/cc/cpu/vectors_avx2.inc"
#define CUDNN_RNN_UNROLLED_PANELS
// Requires both.
#include "cudnn_rnn/cc/cpu/kernels.inc"
}  // namespace exact

#define CUDNN_RNN_BFLOAT16_PANELS
namespace rounded {
#undef CUDNN_RNN_INLINE
#include "cudnn_rnn/cc/cpu/vectors_avx2.inc"
// Not sorted: each requires the file above.
#include "cudnn_rnn/cc/cpu/bfloat16_pairs_avx2.inc"
// Requires both.
#include "cudnn_rnn/cc/cpu/kernels.inc"
}  // namespace rounded

}  // namespace
CUDNN_RNN_END_TARGET

template <typename T>
const Kernels<T>* Avx2Kernels() {
  static const Kernels<T> kernels = exact::MakeKernels<T>("avx2");
  return &kernels;
}
template const Kernels<float>* Avx2Kernels();
template const Kernels<double>* Avx2Kernels();

const Kernels<float>* Avx2RoundedKernels() {
  static const Kernels<float> kernels = rounded::MakeKernels<float>("avx2");
  return &kernels;
}

}  // namespace cudnn_rnn
#endif
