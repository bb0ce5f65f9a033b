// Micro-kernels for factors rounded to bfloat16 on processors with AVX-512 (F, DQ, BW, VL, BF16).

#include "cudnn_rnn/cc/cpu/kernel_file.h"

#if defined(CUDNN_RNN_HAS_AVX512_BF16)
namespace cudnn_rnn {

CUDNN_RNN_BEGIN_TARGET(CUDNN_RNN_AVX512_FEATURES ",avx512bf16")
namespace {

#include "cudnn_rnn/cc/cpu/vectors_avx512.inc"

// Requires the file above.
#include "cudnn_rnn/cc/cpu/bfloat16_pairs_avx512.inc"

#define CUDNN_RNN_BFLOAT16_PANELS
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
CUDNN_RNN_END_TARGET

const Kernels<float>* Avx512Bf16Kernels() {
  static const Kernels<float> kernels = MakeKernels<float>("avx512_bf16");
  return &kernels;
}

}  // namespace cudnn_rnn
#endif
