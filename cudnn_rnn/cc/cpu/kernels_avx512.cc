// Micro-kernels for processors with AVX-512 (F, DQ, BW, VL).

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
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
namespace {

#include "cudnn_rnn/cc/cpu/vectors_avx512.inc"

// Requires the definitions above.
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

template <typename T>
const Kernels<T>* Avx512Kernels() {
#if defined(__x86_64__)
  static const Kernels<T> kernels = MakeKernels<T>("avx512");
  return &kernels;
#else
  return nullptr;
#endif
}
template const Kernels<float>* Avx512Kernels();
template const Kernels<double>* Avx512Kernels();

}  // namespace cudnn_rnn
