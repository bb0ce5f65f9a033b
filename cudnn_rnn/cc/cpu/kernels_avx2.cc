// Micro-kernels for processors with AVX2 and FMA.

#include <cstddef>
#include <utility>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cudnn_rnn {

#if defined(__x86_64__)

// Only the code between push and pop is compiled for these processors. Functions shared with other
// files, such as those of headers, must stay outside.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
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
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

template <typename T>
const Kernels<T>* Avx2Kernels() {
#if defined(__x86_64__)
  static const Kernels<T> kernels = exact::MakeKernels<T>("avx2");
  return &kernels;
#else
  return nullptr;
#endif
}
template const Kernels<float>* Avx2Kernels();
template const Kernels<double>* Avx2Kernels();

const Kernels<float>* Avx2RoundedKernels() {
#if defined(__x86_64__)
  static const Kernels<float> kernels = rounded::MakeKernels<float>("avx2");
  return &kernels;
#else
  return nullptr;
#endif
}

}  // namespace cudnn_rnn
