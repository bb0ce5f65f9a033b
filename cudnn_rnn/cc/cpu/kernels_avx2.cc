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

constexpr int kVectorBytes = 32;
#include "cudnn_rnn/cc/cpu/vectors.inc"

// At most 12 of the 16 registers hold sums. Four vectors, LSTM's gates, are two register tiles side
// by side if there are enough rows: tiles of 2 x 4 are slow on Zen 3 (docs/engine_measurements.md).
constexpr int TileRows(int vectors) { return vectors == 1 ? 8 : vectors == 3 ? 4 : 6; }
constexpr int RegisterVectors(int rows, int vectors) {
  return vectors == 4 && rows > 3 ? 2 : vectors;
}

CUDNN_RNN_INLINE __m256i FirstLanes(float, int64_t count) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
}
CUDNN_RNN_INLINE __m256i FirstLanes(double, int64_t count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
CUDNN_RNN_INLINE Vector<float> LoadPart(const float* source, int64_t count) {
  return _mm256_maskload_ps(source, FirstLanes(float(), count));
}
CUDNN_RNN_INLINE Vector<double> LoadPart(const double* source, int64_t count) {
  return _mm256_maskload_pd(source, FirstLanes(double(), count));
}
CUDNN_RNN_INLINE void StorePart(const Vector<float>& value, float* target, int64_t count) {
  _mm256_maskstore_ps(target, FirstLanes(float(), count), value);
}
CUDNN_RNN_INLINE void StorePart(const Vector<double>& value, double* target, int64_t count) {
  _mm256_maskstore_pd(target, FirstLanes(double(), count), value);
}
CUDNN_RNN_INLINE Vector<float> MultiplyAdd(const Vector<float>& a, const Vector<float>& b,
                                           const Vector<float>& c) {
  return _mm256_fmadd_ps(a, b, c);
}
CUDNN_RNN_INLINE Vector<double> MultiplyAdd(const Vector<double>& a, const Vector<double>& b,
                                            const Vector<double>& c) {
  return _mm256_fmadd_pd(a, b, c);
}
CUDNN_RNN_INLINE Vector<float> Min(const Vector<float>& a, const Vector<float>& b) {
  return _mm256_min_ps(a, b);
}
CUDNN_RNN_INLINE Vector<double> Min(const Vector<double>& a, const Vector<double>& b) {
  return _mm256_min_pd(a, b);
}
CUDNN_RNN_INLINE Vector<float> Max(const Vector<float>& a, const Vector<float>& b) {
  return _mm256_max_ps(a, b);
}
CUDNN_RNN_INLINE Vector<double> Max(const Vector<double>& a, const Vector<double>& b) {
  return _mm256_max_pd(a, b);
}

#define CUDNN_RNN_UNROLLED_PANELS
#include "cudnn_rnn/cc/cpu/kernels.inc"

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
  static const Kernels<T> kernels = MakeKernels<T>("avx2");
  return &kernels;
#else
  return nullptr;
#endif
}
template const Kernels<float>* Avx2Kernels();
template const Kernels<double>* Avx2Kernels();

}  // namespace cudnn_rnn
