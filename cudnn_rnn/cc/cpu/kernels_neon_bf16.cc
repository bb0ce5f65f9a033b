// Micro-kernels for bfloat16 models on 64-bit ARM processors with BFDOT (FEAT_BF16).

#include <cstddef>
#include <utility>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

#if defined(CUDNN_RNN_HAS_NEON_BF16)
#include <arm_neon.h>
#endif

namespace cudnn_rnn {

#if defined(CUDNN_RNN_HAS_NEON_BF16)

// See kernels_avx2.cc. BFDOT requires Armv8.2.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=armv8.2-a+bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+bf16")
#endif
namespace {

#include "cudnn_rnn/cc/cpu/vectors_neon.inc"

// Requires the file above.
#include "cudnn_rnn/cc/cpu/bfloat16_pairs_neon.inc"

#define CUDNN_RNN_BFLOAT16_PANELS
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

const Kernels<float>* NeonBf16Kernels() {
#if defined(CUDNN_RNN_HAS_NEON_BF16)
  static const Kernels<float> kernels = MakeKernels<float>("neon_bf16");
  return &kernels;
#else
  return nullptr;
#endif
}

}  // namespace cudnn_rnn
