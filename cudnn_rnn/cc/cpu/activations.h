// exp, sigmoid and tanh as branch-free arithmetic that the compiler turns into vector code.
// NaN gives NaN; infinities give the limits.
#ifndef CUDNN_RNN_CC_CPU_ACTIVATIONS_H_
#define CUDNN_RNN_CC_CPU_ACTIVATIONS_H_

#include <cstdint>
#include <cstring>

namespace cudnn_rnn {

template <typename T>
struct ExponentTraits;

template <>
struct ExponentTraits<float> {
  using Bits = uint32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kOne = 0x3f800000u;  // the bits of 1.0f
  static constexpr Bits kSign = 0x80000000u;
  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits.
  static constexpr float kRounder = 12582912.0f;
  static constexpr float kLog2E = 1.44269504088896340736f;
  // ln(2) in two parts, the first with enough trailing zeros for exact products.
  static constexpr float kLn2High = 0.693359375f;
  static constexpr float kLn2Low = -2.12194440054690583e-4f;
  static constexpr float kLowest = -87.0f;
  static constexpr float kHighest = 88.0f;
  // tanh(x) rounds to 1 from half of this on.
  static constexpr float kTanhSaturation = 40.0f;
};

template <>
struct ExponentTraits<double> {
  using Bits = uint64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kOne = 0x3ff0000000000000ull;
  static constexpr Bits kSign = 0x8000000000000000ull;
  static constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kLog2E = 1.44269504088896340736;
  static constexpr double kLn2High = 6.93147180369123816490e-01;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kLowest = -708.0;
  static constexpr double kHighest = 709.0;
  static constexpr double kTanhSaturation = 90.0;
};

// exp(r) - 1 for |r| <= ln(2) / 2: the Taylor series, whose remainder there is below a tenth of
// a unit in the last place.
inline float ExpMinusOneSeries(float r) {
  float sum = 1.0f / 40320;
  sum = sum * r + 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  return r + r * r * sum;
}

inline double ExpMinusOneSeries(double r) {
  double sum = 1.0 / 87178291200.0;
  sum = sum * r + 1.0 / 6227020800.0;
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  return r + r * r * sum;
}

// exp(x) = scale * (1 + series) with scale a power of two; x within [kLowest, kHighest].
template <typename T>
inline void SplitExponential(T x, T* scale, T* series) {
  using Traits = ExponentTraits<T>;
  using Bits = typename Traits::Bits;
  const T shifted = x * Traits::kLog2E + Traits::kRounder;
  const T multiple = shifted - Traits::kRounder;
  const T remainder = (x - multiple * Traits::kLn2High) - multiple * Traits::kLn2Low;
  Bits bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << Traits::kMantissaBits) + Traits::kOne;
  std::memcpy(scale, &bits, sizeof(bits));
  *series = ExpMinusOneSeries(remainder);
}

// 1 / (1 + exp(-x)).
template <typename T>
inline T Sigmoid(T x) {
  using Traits = ExponentTraits<T>;
  T negated = -x;
  // In this form a NaN stays a NaN.
  negated = negated < Traits::kLowest ? Traits::kLowest : negated;
  negated = negated > Traits::kHighest ? Traits::kHighest : negated;
  T scale, series;
  SplitExponential(negated, &scale, &series);
  return T(1) / (T(1) + (scale + scale * series));
}

// tanh(|x|) = e / (e + 2) with e = exp(2|x|) - 1, which keeps its relative precision near zero.
template <typename T>
inline T Tanh(T x) {
  using Traits = ExponentTraits<T>;
  using Bits = typename Traits::Bits;
  Bits bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const Bits sign = bits & Traits::kSign;
  bits ^= sign;
  T twice;
  std::memcpy(&twice, &bits, sizeof(bits));
  twice = twice + twice;
  twice = twice > Traits::kTanhSaturation ? Traits::kTanhSaturation : twice;
  T scale, series;
  SplitExponential(twice, &scale, &series);
  const T e = scale * series + (scale - T(1));
  T result = e / (e + T(2));
  std::memcpy(&bits, &result, sizeof(bits));
  bits |= sign;
  std::memcpy(&result, &bits, sizeof(bits));
  return result;
}

// max(x, 0); a NaN stays a NaN.
template <typename T>
inline T Relu(T x) {
  return x < T(0) ? T(0) : x;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ACTIVATIONS_H_
