// Emulates the bfloat16 instructions of AVX512-BF16 and AMX in AVX-512 and plain C++, to test their
// users on processors that lack them, under the names of the compiler's intrinsics. Follows Intel's
// manual, except that subnormal sums are kept. Emulates the instruction sets whose macros are
// defined: CUDNN_RNN_EMULATES_AVX512_BF16, CUDNN_RNN_EMULATES_AMX_BF16.
#ifndef CUDNN_RNN_TESTS_CORE_EMULATED_BFLOAT16_INSTRUCTIONS_H_
#define CUDNN_RNN_TESTS_CORE_EMULATED_BFLOAT16_INSTRUCTIONS_H_

#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace cudnn_rnn {
namespace emulated {

// Vectors of 16 lanes, as large as the instructions' operands. The compiler vectorizes them.
typedef float Floats __attribute__((vector_size(64), may_alias));
typedef uint32_t Bits __attribute__((vector_size(64), may_alias));
typedef uint16_t Halves __attribute__((vector_size(32), may_alias));

// For functions of values and of emulated registers only, where sanitizers find nothing and would
// multiply the time.
#define CUDNN_RNN_EMULATED(inlining)                                           \
  __attribute__((target("avx512f,avx512bw"), inlining, no_sanitize("address"), \
                 no_sanitize("undefined"))) inline

CUDNN_RNN_EMULATED(always_inline) Bits WithoutSubnormals(Bits bits) {
  const Bits is_normal = reinterpret_cast<Bits>((bits & 0x7f800000u) != 0u);
  return bits & (is_normal | 0x80000000u);
}

// Return the lower or the upper half of each pair.
CUDNN_RNN_EMULATED(always_inline) Floats LowerHalves(Bits pairs) {
  return reinterpret_cast<Floats>(WithoutSubnormals(pairs << 16));
}
CUDNN_RNN_EMULATED(always_inline) Floats UpperHalves(Bits pairs) {
  return reinterpret_cast<Floats>(WithoutSubnormals(pairs & 0xffff0000u));
}

// Rounds to nearest even; a NaN stays a NaN.
CUDNN_RNN_EMULATED(always_inline) Halves RoundVector(Floats values) {
  const Bits bits = WithoutSubnormals(reinterpret_cast<Bits>(values));
  const Bits rounded = bits + (bits >> 16 & 1u) + 0x7fffu;
  const Bits is_nan = reinterpret_cast<Bits>(values != values);
  return __builtin_convertvector(((is_nan & (bits | 0x400000u)) | (~is_nan & rounded)) >> 16,
                                 Halves);
}

// VCVTNE2PS2BF16: the lanes of `lower`, then those of `upper`.
CUDNN_RNN_EMULATED(noinline) __m512i RoundTwoVectors(__m512 upper, __m512 lower) {
  const Halves halves[] = {RoundVector(reinterpret_cast<Floats>(lower)),
                           RoundVector(reinterpret_cast<Floats>(upper))};
  return _mm512_loadu_si512(halves);
}

// VDPBF16PS: adds, for each pair, first the product of the upper halves, then of the lower ones.
CUDNN_RNN_EMULATED(noinline) __m512 AddDotProducts(__m512 sums, __m512i left, __m512i right) {
  const Bits a = reinterpret_cast<Bits>(left), b = reinterpret_cast<Bits>(right);
  Floats result = reinterpret_cast<Floats>(sums) + UpperHalves(a) * UpperHalves(b);
  result += LowerHalves(a) * LowerHalves(b);
  return reinterpret_cast<__m512>(result);
}

// One row of TDPBF16PS: sums the products of lower and of upper halves separately.
CUDNN_RNN_EMULATED(noinline)
void AddRowOfDotProducts(const uint32_t* left, const uint32_t (*right)[16], int depth,
                         uint32_t* sums) {
  Floats lower = {}, upper = {};
  for (int k = 0; k < depth; ++k) {
    Bits row;
    std::memcpy(&row, right[k], sizeof(row));
    const Bits pair = left[k] - Bits{};
    lower += LowerHalves(pair) * LowerHalves(row);
    upper += UpperHalves(pair) * UpperHalves(row);
  }
  Floats total;
  std::memcpy(&total, sums, sizeof(total));
  total += lower + upper;
  std::memcpy(sums, &total, sizeof(total));
}

[[noreturn]] inline void Fault(const char* what) {
  std::fprintf(stderr, "AMX: %s\n", what);
  std::abort();
}

// A thread's tile registers. Aborts the program where the processor would fault, and if a thread
// ends without releasing them.
class TileRegisters {
 public:
  ~TileRegisters() {
    if (is_configured_) Fault("not released");
  }
  static TileRegisters& OfThread() {
    static thread_local TileRegisters registers;
    return registers;
  }

  void Configure(const void* memory) {
    uint8_t bytes[64];
    std::memcpy(bytes, memory, sizeof(bytes));
    if (bytes[0] != 1 || bytes[1] != 0) Fault("palette or first row");
    for (int i = 2; i < 16; ++i) CheckIsZero(bytes[i]);
    for (int i = 0; i < kRegisters; ++i) {
      row_bytes_[i] = bytes[16 + 2 * i] + 256 * bytes[17 + 2 * i];
      rows_[i] = bytes[48 + i];
      if (row_bytes_[i] > 64 || rows_[i] > 16) Fault("shape of a register");
      if ((row_bytes_[i] == 0) != (rows_[i] == 0)) Fault("rows without columns");
    }
    for (int i = 32; i < 48; ++i) CheckIsZero(bytes[i]);
    for (int i = 56; i < 64; ++i) CheckIsZero(bytes[i]);
    is_configured_ = true;
    std::memset(data_, 0, sizeof(data_));
  }
  void Release() { is_configured_ = false; }

  void Zero(int to) {
    Check(to);
    std::memset(data_[to], 0, sizeof(data_[to]));
  }
  void Load(int to, const void* memory, int64_t stride) {
    Zero(to);
    for (int row = 0; row < rows_[to]; ++row) {
      std::memcpy(data_[to][row], static_cast<const char*>(memory) + row * stride,
                  static_cast<size_t>(row_bytes_[to]));
    }
  }
  void Store(int from, void* memory, int64_t stride) {
    Check(from);
    for (int row = 0; row < rows_[from]; ++row) {
      std::memcpy(static_cast<char*>(memory) + row * stride, data_[from][row],
                  static_cast<size_t>(row_bytes_[from]));
    }
  }

  void AddDotProducts(int to, int left, int right) {
    for (int i : {to, left, right}) Check(i);
    if (rows_[left] != rows_[to] || row_bytes_[left] != 4 * rows_[right] ||
        row_bytes_[right] != row_bytes_[to] || left == right || left == to || right == to) {
      Fault("shapes of the factors");
    }
    for (int row = 0; row < rows_[to]; ++row) {
      AddRowOfDotProducts(data_[left][row], data_[right], rows_[right], data_[to][row]);
    }
  }

 private:
  static constexpr int kRegisters = 8;

  static void CheckIsZero(uint8_t byte) {
    if (byte != 0) Fault("reserved bytes of the configuration");
  }
  void Check(int i) const {
    if (!is_configured_ || rows_[i] == 0) Fault("a register without a shape");
  }

  bool is_configured_ = false;
  int rows_[kRegisters] = {}, row_bytes_[kRegisters] = {};
  uint32_t data_[kRegisters][16][16];
};

}  // namespace emulated
}  // namespace cudnn_rnn

#if defined(CUDNN_RNN_EMULATES_AMX_BF16)
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(memory) emulated::TileRegisters::OfThread().Configure(memory)
#define _tile_release() emulated::TileRegisters::OfThread().Release()
#define _tile_zero(to) emulated::TileRegisters::OfThread().Zero(to)
#define _tile_loadd(to, memory, stride) emulated::TileRegisters::OfThread().Load(to, memory, stride)
#define _tile_stream_loadd(to, memory, stride) _tile_loadd(to, memory, stride)
#define _tile_stored(from, memory, stride) \
  emulated::TileRegisters::OfThread().Store(from, memory, stride)
#define _tile_dpbf16ps(to, left, right) \
  emulated::TileRegisters::OfThread().AddDotProducts(to, left, right)
#endif

#if defined(CUDNN_RNN_EMULATES_AVX512_BF16)
#define _mm512_cvtne2ps_pbh(upper, lower) emulated::RoundTwoVectors(upper, lower)
#define _mm512_dpbf16_ps(sums, left, right) \
  emulated::AddDotProducts(sums, reinterpret_cast<__m512i>(left), reinterpret_cast<__m512i>(right))
#endif

#endif  // CUDNN_RNN_TESTS_CORE_EMULATED_BFLOAT16_INSTRUCTIONS_H_
