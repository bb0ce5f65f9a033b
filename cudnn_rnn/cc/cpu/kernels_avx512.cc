// The inner loops for processors with AVX-512 (F, DQ, BW, VL).

#include <cstddef>
#include <utility>

#include "cudnn_rnn/cc/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cudnn_rnn {

#if defined(__x86_64__)

// Only what stands between push and pop is compiled for these processors, so no function that
// others share can be.
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
namespace {

constexpr int kVectorBytes = 64;
#include "cudnn_rnn/cc/cpu/vectors.inc"

// Of 32 registers, 24 hold sums.
constexpr int TileRows(int vectors) { return vectors == 4 ? 6 : 8; }

CUDNN_RNN_INLINE Vector<float> LoadPart(const float* source, int64_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), source);
}
CUDNN_RNN_INLINE Vector<double> LoadPart(const double* source, int64_t count) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1), source);
}
CUDNN_RNN_INLINE void StorePart(const Vector<float>& value, float* target, int64_t count) {
  _mm512_mask_storeu_ps(target, static_cast<__mmask16>((1u << count) - 1), value);
}
CUDNN_RNN_INLINE void StorePart(const Vector<double>& value, double* target, int64_t count) {
  _mm512_mask_storeu_pd(target, static_cast<__mmask8>((1u << count) - 1), value);
}
// Without a mask GCC 12 warns of its own header.
CUDNN_RNN_INLINE Vector<float> Smaller(const Vector<float>& a, const Vector<float>& b) {
  return _mm512_maskz_min_ps(0xffff, a, b);
}
CUDNN_RNN_INLINE Vector<double> Smaller(const Vector<double>& a, const Vector<double>& b) {
  return _mm512_maskz_min_pd(0xff, a, b);
}
CUDNN_RNN_INLINE Vector<float> Larger(const Vector<float>& a, const Vector<float>& b) {
  return _mm512_maskz_max_ps(0xffff, a, b);
}
CUDNN_RNN_INLINE Vector<double> Larger(const Vector<double>& a, const Vector<double>& b) {
  return _mm512_maskz_max_pd(0xff, a, b);
}

#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const Kernels<float>* Avx512Kernels(float) {
  static const Kernels<float> kernels = MakeKernels<float>("avx512");
  return &kernels;
}

const Kernels<double>* Avx512Kernels(double) {
  static const Kernels<double> kernels = MakeKernels<double>("avx512");
  return &kernels;
}

#else

const Kernels<float>* Avx512Kernels(float) { return nullptr; }
const Kernels<double>* Avx512Kernels(double) { return nullptr; }

#endif

}  // namespace cudnn_rnn
