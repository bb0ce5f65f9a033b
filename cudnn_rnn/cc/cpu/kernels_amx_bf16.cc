// Micro-kernels on processors with AVX-512 (F, DQ, BW, VL, BF16) and AMX: for factors rounded to
// bfloat16, and with two planes (see kernels.h) for split factors.

#include <cstddef>
#include <utility>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

#if defined(CUDNN_RNN_HAS_AMX_BF16)
#include <immintrin.h>
#endif

namespace cudnn_rnn {

#if defined(CUDNN_RNN_HAS_AMX_BF16)

// See kernels_avx512.cc.
#if defined(__clang__)
#pragma clang attribute push(                                                                 \
    __attribute__((                                                                           \
        target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16,avx2,fma"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16,avx2,fma,prefer-vector-width=512")
#endif
namespace {

#define CUDNN_RNN_AMX_TILES
#define CUDNN_RNN_BFLOAT16_PANELS

namespace rounded {
#include "cudnn_rnn/cc/cpu/vectors_avx512.inc"
// Not sorted: each requires the file above.
#include "cudnn_rnn/cc/cpu/bfloat16_pairs_avx512.inc"
// Requires both.
#include "cudnn_rnn/cc/cpu/kernels.inc"
}  // namespace rounded

#define CUDNN_RNN_TWO_PLANES
namespace split {
#undef CUDNN_RNN_INLINE
#include "cudnn_rnn/cc/cpu/vectors_avx512.inc"
// Not sorted: each requires the file above.
#include "cudnn_rnn/cc/cpu/bfloat16_pairs_avx512.inc"
// Requires both.
#include "cudnn_rnn/cc/cpu/kernels.inc"
}  // namespace split

}  // namespace
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

const Kernels<float>* AmxBf16Kernels() {
#if defined(CUDNN_RNN_HAS_AMX_BF16)
  static const Kernels<float> kernels = rounded::MakeKernels<float>("amx_bf16");
  return &kernels;
#else
  return nullptr;
#endif
}

const Kernels<float>* AmxSplitKernels() {
#if defined(CUDNN_RNN_HAS_AMX_BF16)
  static const Kernels<float> kernels = split::MakeKernels<float>("amx_bf16");
  return &kernels;
#else
  return nullptr;
#endif
}

}  // namespace cudnn_rnn
