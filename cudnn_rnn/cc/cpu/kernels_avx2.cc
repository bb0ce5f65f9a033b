// The inner loops for processors with AVX2 and FMA.

#include "cudnn_rnn/cc/cpu/activations.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

#if defined(__x86_64__)

// Only what stands between push and pop is compiled for these processors, so no function that
// others share can be.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace {

constexpr int kVectorBytes = 32;
constexpr int kTileRows = 4;
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const Kernels<float>* Avx2Kernels(float) {
  static const Kernels<float> kernels = MakeKernels<float>("avx2");
  return &kernels;
}

const Kernels<double>* Avx2Kernels(double) {
  static const Kernels<double> kernels = MakeKernels<double>("avx2");
  return &kernels;
}

#else

const Kernels<float>* Avx2Kernels(float) { return nullptr; }
const Kernels<double>* Avx2Kernels(double) { return nullptr; }

#endif

}  // namespace cudnn_rnn
