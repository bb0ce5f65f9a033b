// Micro-kernels for processors with AVX-512 (F, DQ, BW, VL).

#include "cudnn_rnn/cc/cpu/kernel_file.h"

#if defined(__x86_64__)
namespace cudnn_rnn {

CUDNN_RNN_BEGIN_TARGET(CUDNN_RNN_AVX512_FEATURES)
namespace {

#include "cudnn_rnn/cc/cpu/vectors_avx512.inc"

// Requires the definitions above.
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
CUDNN_RNN_END_TARGET

template <typename T>
const Kernels<T>* Avx512Kernels() {
  static const Kernels<T> kernels = MakeKernels<T>("avx512");
  return &kernels;
}
template const Kernels<float>* Avx512Kernels();
template const Kernels<double>* Avx512Kernels();

}  // namespace cudnn_rnn
#endif
