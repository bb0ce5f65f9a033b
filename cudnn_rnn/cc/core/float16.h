// Conversions between float and the 16-bit types (half: IEEE 754 binary16; bfloat16: the upper half
// of a float). Rounds to nearest, ties to even. Works on bits, because threads may flush subnormal
// numbers.
#ifndef CUDNN_RNN_CC_CORE_FLOAT16_H_
#define CUDNN_RNN_CC_CORE_FLOAT16_H_

#include <cstdint>
#include <cstring>

namespace cudnn_rnn {

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t BitsFromFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity and NaN
    return FloatFromBits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude < 0x400u) {
    // Subnormal half: a multiple of 2^-24. The floats here are normal, as threads may flush others.
    const float value = static_cast<float>(magnitude) * (1.0f / 16777216.0f);
    return FloatFromBits(BitsFromFloat(value) | sign);
  }
  return FloatFromBits(((magnitude << 13) + 0x38000000u) | sign);  // the exponent grows by 112
}

inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = BitsFromFloat(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 rounds. The low 16 bits of the sum are the subnormal half.
    const float sum = FloatFromBits(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(BitsFromFloat(sum));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

inline float Bfloat16ToFloat(uint16_t bfloat16) {
  return FloatFromBits(static_cast<uint32_t>(bfloat16) << 16);
}

inline uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = BitsFromFloat(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {  // NaN; without its low bits it may be infinity
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  const uint32_t odd = (bits >> 16) & 1u;
  return static_cast<uint16_t>((bits + 0x7fffu + odd) >> 16);
}

// Rearranges the bits of a float that is kept in the memory of a 16-bit tensor, where tools that
// look for NaN and infinity read it as two 16-bit numbers. Both numbers are finite if the float's
// magnitude is below 2^113 for half (kExponentBits = 5), or below 2^127 for bfloat16 (8). For any
// other float one of them may not be, but no bit is lost: the function is its own inverse.
//
// `high` and `low` are the exponent fields of the two numbers; all ones (kTop) mean NaN or
// infinity. The function exchanges (high, low) = (x, kTop) with (kSecond, x), for every x < kSecond
// = kTop - 1. Floats below these limits have high < kSecond, so they never need the patterns on the
// right.
template <int kExponentBits>
inline uint32_t MakeHalvesFinite(uint32_t bits) {
  constexpr uint32_t kTop = ((1u << kExponentBits) - 1) << (31 - kExponentBits);
  constexpr uint32_t kSecond = kTop & (kTop << 1);
  const uint32_t high = bits & kTop;
  const uint32_t low = (bits << 16) & kTop;
  const bool is_left = low == kTop && high < kSecond;
  const bool is_right = high == kSecond && low < kSecond;
  const uint32_t x = is_left ? high : low;
  const uint32_t difference = (x ^ kSecond) | ((x ^ kTop) >> 16);  // of (x, kTop) and (kSecond, x)
  return is_left || is_right ? bits ^ difference : bits;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_FLOAT16_H_
