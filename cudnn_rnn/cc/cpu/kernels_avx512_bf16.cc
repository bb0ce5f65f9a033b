// Micro-kernels for factors rounded to bfloat16 on processors with AVX-512 (F, DQ, BW, VL, BF16).

#include <cstddef>
#include <utility>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

#if defined(CUDNN_RNN_HAS_AVX512_BF16)
#include <immintrin.h>
#endif

namespace cudnn_rnn {

#if defined(CUDNN_RNN_HAS_AVX512_BF16)

// See kernels_avx512.cc.
#if defined(__clang__)
#pragma clang attribute push(                                                          \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,avx2,fma"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,avx2,fma,prefer-vector-width=512")
#endif
namespace {

#include "cudnn_rnn/cc/cpu/vectors_avx512.inc"

// Requires the file above.
#include "cudnn_rnn/cc/cpu/bfloat16_pairs_avx512.inc"

#define CUDNN_RNN_BFLOAT16_PANELS
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

const Kernels<float>* Avx512Bf16Kernels() {
#if defined(CUDNN_RNN_HAS_AVX512_BF16)
  static const Kernels<float> kernels = MakeKernels<float>("avx512_bf16");
  return &kernels;
#else
  return nullptr;
#endif
}

}  // namespace cudnn_rnn
