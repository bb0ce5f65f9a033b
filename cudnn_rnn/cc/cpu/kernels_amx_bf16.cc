// Micro-kernels on processors with AVX-512 (F, DQ, BW, VL, BF16) and AMX: for factors rounded to
// bfloat16, and with two planes (see kernels.h) for split factors.

#include "cudnn_rnn/cc/cpu/kernel_file.h"

#if defined(CUDNN_RNN_HAS_AMX_BF16)
namespace cudnn_rnn {

CUDNN_RNN_BEGIN_TARGET(CUDNN_RNN_AVX512_FEATURES ",avx512bf16,amx-tile,amx-bf16")
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
CUDNN_RNN_END_TARGET

const Kernels<float>* AmxBf16Kernels() {
  static const Kernels<float> kernels = rounded::MakeKernels<float>("amx_bf16");
  return &kernels;
}

const Kernels<float>* AmxSplitKernels() {
  static const Kernels<float> kernels = split::MakeKernels<float>("amx_bf16");
  return &kernels;
}

}  // namespace cudnn_rnn
#endif
