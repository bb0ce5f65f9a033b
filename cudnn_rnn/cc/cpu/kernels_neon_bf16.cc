// Micro-kernels for factors rounded to bfloat16 on 64-bit ARM processors with BFDOT (FEAT_BF16).

#include "cudnn_rnn/cc/cpu/kernel_file.h"

#if defined(CUDNN_RNN_HAS_NEON_BF16)
namespace cudnn_rnn {

CUDNN_RNN_BEGIN_TARGET("arch=armv8.2-a+bf16")  // BFDOT requires Armv8.2
namespace {

#include "cudnn_rnn/cc/cpu/vectors_neon.inc"

// Requires the file above.
#include "cudnn_rnn/cc/cpu/bfloat16_pairs_neon.inc"

#define CUDNN_RNN_BFLOAT16_PANELS
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
CUDNN_RNN_END_TARGET

const Kernels<float>* NeonBf16Kernels() {
  static const Kernels<float> kernels = MakeKernels<float>("neon_bf16");
  return &kernels;
}

}  // namespace cudnn_rnn
#endif
