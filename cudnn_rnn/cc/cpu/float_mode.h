// How a thread rounds, and what it does with subnormal numbers.
#ifndef CUDNN_RNN_CC_CPU_FLOAT_MODE_H_
#define CUDNN_RNN_CC_CPU_FLOAT_MODE_H_

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace cudnn_rnn {

// Whatever a thread's mode was, as long as this object exists, the thread rounds to nearest and
// takes subnormal factors and results as 0, as TensorFlow's pools do. The caller's thread and its
// helpers may differ: which of them computes an element must not change its bits. The other bits of
// the mode, such as those of traps, stay.
class FloatMode {
 public:
#if defined(__SSE2__)
  using Control = uint32_t;  // the register MXCSR
  static constexpr Control kZeroesResults = 1 << 15, kZeroesFactors = 1 << 6, kRounding = 3 << 13;
  static Control Read() { return _mm_getcsr(); }
  static void Write(Control control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
  using Control = uint64_t;  // the register FPCR
  static constexpr Control kZeroesResults = 1 << 24, kZeroesFactors = 0, kRounding = 3 << 22;
  static Control Read() {
    Control control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void Write(Control control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
#else
  using Control = uint32_t;
  static constexpr Control kZeroesResults = 0, kZeroesFactors = 0, kRounding = 0;
  static Control Read() { return 0; }
  static void Write(Control) {}
#endif

  FloatMode() : before_(Read()) { Write((before_ & ~kRounding) | kZeroesResults | kZeroesFactors); }
  ~FloatMode() { Write(before_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  const Control before_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_FLOAT_MODE_H_
