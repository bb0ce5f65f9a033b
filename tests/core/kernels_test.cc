// Tests activations (all instruction sets of this processor), 16-bit types and dropout.

#include "cudnn_rnn/cc/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/dropout.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

// Returns the error of `found` in units in the last place of the exact result.
template <typename T>
double UnitsInTheLastPlace(T found, long double exact) {
  const T rounded = static_cast<T>(exact);
  const T unit =
      std::nextafter(std::abs(rounded), std::numeric_limits<T>::infinity()) - std::abs(rounded);
  return static_cast<double>(std::abs(static_cast<long double>(found) - exact) / unit);
}

// Computes activations through the cells: a simple cell without a recurrent product is its
// activation, and LSTM keeps the sigmoid of its first gate.
template <typename T>
std::vector<T> Activate(const Kernels<T>& kernels, RnnMode mode, std::vector<T> values) {
  const KernelThread<T> thread(kernels);
  ForwardTile<T> tile = ForwardTile<T>();
  tile.rows = 1;
  tile.keeps_gates = true;
  const std::vector<T> zeros(kMaxLanes, T(0));
  std::vector<T> gates(4 * kMaxLanes, T(0)), c(kMaxLanes), h(kMaxLanes);
  tile.recurrent.b = zeros.data();
  tile.recurrent.a = zeros.data();
  tile.gates = gates.data();
  tile.gate_stride = kMaxLanes;
  tile.previous_c = zeros.data();
  tile.c = c.data();
  tile.h = h.data();
  const CellKernels<T>& cell = mode == RnnMode::kLstm   ? kernels.lstm
                               : mode == RnnMode::kTanh ? kernels.tanh
                                                        : kernels.relu;
  for (size_t first = 0; first < values.size(); first += static_cast<size_t>(kernels.lanes)) {
    tile.units = std::min(kernels.lanes, static_cast<int64_t>(values.size() - first));
    std::copy_n(values.begin() + first, tile.units, gates.begin());
    cell.forward(tile);
    const std::vector<T>& results = mode == RnnMode::kLstm ? gates : h;
    std::copy_n(results.begin(), tile.units, values.begin() + first);
  }
  return values;
}

template <typename T>
void CheckActivations(const Kernels<T>& kernels, T step) {
  std::vector<T> values;
  for (T x = T(-30); x < T(30); x += step) values.push_back(x);
  for (T x = T(1e-7); x < T(1); x *= T(1.001)) values.push_back(x);
  const std::vector<T> sigmoids = Activate(kernels, RnnMode::kLstm, values);
  const std::vector<T> tanhs = Activate(kernels, RnnMode::kTanh, values);
  double worst_sigmoid = 0, worst_tanh = 0, worst_distance = 0;  // of sigmoid
  for (size_t i = 0; i < values.size(); ++i) {
    if (!testing::IsInSample(static_cast<int64_t>(i))) continue;
    const long double x = static_cast<long double>(values[i]);
    const long double sigmoid = 1 / (1 + std::exp(-x));
    worst_sigmoid = std::max(worst_sigmoid, UnitsInTheLastPlace(sigmoids[i], sigmoid));
    worst_tanh = std::max(worst_tanh, UnitsInTheLastPlace(tanhs[i], std::tanh(x)));
    worst_distance = std::max(worst_distance, static_cast<double>(std::abs(sigmoids[i] - sigmoid)));
    EXPECT(sigmoids[i] >= 0 && sigmoids[i] <= 1 && std::abs(tanhs[i]) <= 1, values[i]);
  }
  // The kernels that round factors with AVX-512 have activations of their own.
  const bool is_exact = !kernels.rounds() || kernels.lanes < 16;
  EXPECT(worst_sigmoid < (is_exact ? 3 : 32), kernels.instruction_set, " ", worst_sigmoid);
  EXPECT(worst_tanh < (is_exact ? 3 : 12), kernels.instruction_set, " ", worst_tanh);
  EXPECT(worst_distance < 1.3e-7, kernels.instruction_set, " ", worst_distance);

  const T infinity = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> special = {infinity, -infinity, T(0), T(-0.0), nan, T(2), T(-1), T(-1000)};
  const std::vector<T> sigmoid = Activate(kernels, RnnMode::kLstm, special);
  const std::vector<T> tanh = Activate(kernels, RnnMode::kTanh, special);
  const std::vector<T> relu = Activate(kernels, RnnMode::kRelu, special);
  EXPECT(tanh[0] == T(1) && tanh[1] == T(-1) && tanh[2] == T(0));
  EXPECT(sigmoid[0] == T(1) && sigmoid[1] < T(1e-37) && sigmoid[2] == T(0.5));
  EXPECT(relu[0] == infinity && relu[1] == T(0) && relu[5] == T(2) && relu[6] == T(0));
  EXPECT(std::isnan(tanh[4]) && std::isnan(sigmoid[4]) && std::isnan(relu[4]));
  // Nothing passes a closed gate.
  EXPECT(sigmoid[1] == T(0) && sigmoid[7] == T(0), kernels.instruction_set, " ", sigmoid[7]);
}

TEST(ActivationsFloat) {
  for (const Kernels<float>* kernels : AllKernels<float>()) CheckActivations(*kernels, 1e-4f);
}
TEST(ActivationsDouble) {
  for (const Kernels<double>* kernels : AllKernels<double>()) CheckActivations(*kernels, 1e-4);
}

struct Format {
  const char* name;
  int mantissa_bits;
  float (*to_float)(uint16_t);
  uint16_t (*from_float)(float);

  int bias() const { return (1 << (14 - mantissa_bits)) - 1; }
  int infinity() const { return 0x8000 - (1 << mantissa_bits); }
  // Returns the magnitude of a number, or the power of two that infinity stands for.
  double Magnitude(int bits) const {
    const int exponent = (bits & 0x7fff) >> mantissa_bits;
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias() - mantissa_bits);
  }
};
constexpr Format kFormats[] = {{"half", 10, HalfToFloat, FloatToHalf},
                               {"bfloat16", 7, Bfloat16ToFloat, FloatToBfloat16}};

TEST(Every16BitNumberThereAndBack) {
  for (const Format& format : kFormats) {
    for (int bits = 0; bits < 65536; ++bits) {
      const float value = format.to_float(static_cast<uint16_t>(bits));
      const int magnitude = bits & 0x7fff;
      EXPECT(std::signbit(value) == ((bits & 0x8000) != 0), format.name, " ", bits);
      EXPECT(std::isnan(value) == (magnitude > format.infinity()), format.name, " ", bits);
      EXPECT(std::isinf(value) == (magnitude == format.infinity()), format.name, " ", bits);
      EXPECT(magnitude >= format.infinity() || std::abs(value) == format.Magnitude(bits),
             format.name, " ", bits);
      if (std::isnan(value)) {
        const int mantissa = magnitude - format.infinity();
        EXPECT((BitsFromFloat(value) & 0x7fffffu) == static_cast<uint32_t>(mantissa)
                                                         << (23 - format.mantissa_bits),
               format.name, " ", bits);
      }
      const uint16_t back = format.from_float(value);
      EXPECT(std::isnan(value) ? std::isnan(format.to_float(back)) : back == bits, format.name, " ",
             bits);
    }
  }
}

// A third of the numbers are halfway between two 16-bit numbers, or infinity.
TEST(SixteenBitTypesRoundToNearestEven) {
  std::mt19937 generator(5);
  for (const Format& format : kFormats) {
    for (int i = 0; i < 200000; ++i) {
      const int bits = static_cast<int>(generator() % static_cast<unsigned>(format.infinity()));
      const double low = format.Magnitude(bits), high = format.Magnitude(bits + 1);
      const double fraction = i % 3 == 0 ? 0.5 : static_cast<double>(generator() % 65536) / 65536;
      const float between = static_cast<float>(low + (high - low) * fraction);
      const double middle = (low + high) / 2;
      const bool is_down = between < middle || (between == middle && bits % 2 == 0);
      const int expected = is_down ? bits : bits + 1;
      EXPECT(format.from_float(between) == expected, format.name, " ", between);
      EXPECT(format.from_float(-between) == (expected | 0x8000), format.name, " ", between);
    }
  }
  EXPECT(FloatToHalf(65519.996f) == 0x7bff);
  EXPECT(FloatToHalf(65520.0f) == 0x7c00);
  EXPECT(FloatToHalf(1e30f) == 0x7c00);
  EXPECT(FloatToHalf(1e-30f) == 0);
  EXPECT(FloatToBfloat16(std::numeric_limits<float>::max()) == 0x7f80);
  // The first NaN has only a mantissa bit that is cut off; the second has all bits set.
  EXPECT((FloatToBfloat16(FloatFromBits(0x7f800001u)) & 0x7fff) > 0x7f80);
  EXPECT((FloatToBfloat16(FloatFromBits(0xffffffffu)) & 0x7fff) > 0x7f80);
}

// Every instruction set converts arrays as the functions above convert numbers, bit for bit.
TEST(ArraysOf16BitNumbers) {
  std::vector<uint16_t> numbers(65536);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint16_t>(i);
  std::vector<float> values;
  std::mt19937 generator(6);
  for (int i = 0; i < 200000; ++i) {
    values.push_back(FloatFromBits(static_cast<uint32_t>(generator())));
    // Near the smallest halves, where few of those above are.
    values.push_back(FloatFromBits(0x33000000u + generator() % 0x06000000u));
  }
  for (const Kernels<float>* kernels : AllKernels<float>()) {
    for (const Format& format : kFormats) {
      const std::string name = Concatenate(kernels->instruction_set, " ", format.name);
      const bool is_half = format.from_float == FloatToHalf;
      const Conversions<float>& conversions = is_half ? kernels->half : kernels->bfloat16;
      std::vector<float> read(numbers.size());
      conversions.read(numbers.data(), static_cast<int64_t>(numbers.size()), read.data());
      for (size_t i = 0; i < numbers.size(); ++i) {
        EXPECT(BitsFromFloat(read[i]) == BitsFromFloat(format.to_float(numbers[i])), name, " ", i);
      }
      std::vector<uint16_t> written(values.size());
      conversions.write(values.data(), static_cast<int64_t>(values.size()), written.data());
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT(written[i] == format.from_float(values[i]), name, " ", BitsFromFloat(values[i]));
      }
      // Any length, and nothing beyond.
      for (int64_t count = 0; count < 70; ++count) {
        std::vector<float> floats(71, 7.0f);
        conversions.read(numbers.data() + 15360, count, floats.data());
        EXPECT(floats[static_cast<size_t>(count)] == 7.0f, name, " ", count);
        std::vector<uint16_t> halves(71, uint16_t{7});
        conversions.write(read.data() + 15360, count, halves.data());
        EXPECT(halves[static_cast<size_t>(count)] == 7, name, " ", count);
        for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
          EXPECT(floats[i] == read[15360 + i] && halves[i] == 15360 + i, name, " ", count, " ", i);
        }
      }
    }
  }
}

#if defined(__x86_64__)
unsigned FloatingPointMode() { return __builtin_ia32_stmxcsr(); }
void SetFloatingPointMode(unsigned mode) { __builtin_ia32_ldmxcsr(mode); }
constexpr unsigned kFlushesSubnormals = 0x8040;  // results and operands
#elif defined(__aarch64__)
uint64_t FloatingPointMode() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void SetFloatingPointMode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
constexpr uint64_t kFlushesSubnormals = uint64_t(1) << 24;
#endif

#if defined(__x86_64__) || defined(__aarch64__)
// TensorFlow's threads flush subnormal numbers; the conversions must keep them.
TEST(SixteenBitTypesWhereSubnormalsAreFlushed) {
  for (const Format& format : kFormats) {
    const auto before = FloatingPointMode();
    SetFloatingPointMode(before | kFlushesSubnormals);
    volatile float smallest = std::numeric_limits<float>::min();
    EXPECT(smallest / 2 == 0.0f, "subnormals are not flushed");
    int errors = 0;
    for (int bits = 0; bits < 65536; ++bits) {
      const uint16_t given = static_cast<uint16_t>(bits);
      const bool is_finite = (bits & 0x7fff) < format.infinity();
      if (is_finite && format.from_float(format.to_float(given)) != given) ++errors;
    }
    SetFloatingPointMode(before);
    EXPECT(errors == 0, format.name, " ", errors);
  }
}
#endif

std::vector<float> Mask(const DropoutPattern& pattern, int64_t size, int64_t num_threads) {
  const std::vector<float> ones(static_cast<size_t>(size), 1.0f);
  std::vector<float> mask(ones.size());
  ThreadRunner runner(num_threads);
  RunTeam(&runner, int64_t(1) << 40, [&](TeamMember* member) {
    ApplyDropoutToRows(pattern, nullptr, 0, size, /*width=*/1, ones.data(), mask.data(), member);
  });
  return mask;
}

TEST(DropoutRateAndScale) {
  const int64_t size = 1000003;
  for (float dropout : {0.0f, 0.1f, 0.5f, 0.9f, 1.0f}) {
    const std::vector<float> mask = Mask({dropout, 1, 2, 3, 4}, size, 1);
    int64_t dropped = 0;
    for (float value : mask) {
      EXPECT(value == 0.0f || value == 1.0f / (1.0f - dropout), value);
      dropped += value == 0.0f;
    }
    const double rate = static_cast<double>(dropped) / size;
    const double deviation = std::sqrt(dropout * (1 - dropout) / size);
    EXPECT(std::abs(rate - dropout) <= 5 * deviation, dropout, " gave ", rate);
  }
}

// Philox4x32-10, written from the paper's definition.
std::vector<uint32_t> Philox(std::vector<uint32_t> counter, std::vector<uint32_t> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{counter[0]} * 0xd2511f53u;
    const uint64_t right = uint64_t{counter[2]} * 0xcd9e8d57u;
    const auto high = [](uint64_t product) { return static_cast<uint32_t>(product >> 32); };
    counter = {high(right) ^ counter[1] ^ key[0], static_cast<uint32_t>(right),
               high(left) ^ counter[3] ^ key[1], static_cast<uint32_t>(left)};
    key = {key[0] + 0x9e3779b9u, key[1] + 0xbb67ae85u};
  }
  return counter;
}

// Known answers of the generator's authors, then dropout's pattern from the same function, also
// for elements whose numbers need more than 32 bits.
TEST(DropoutPatternsAreThoseOfPhilox) {
  using Words = std::vector<uint32_t>;
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT(Philox({0, 0, 0, 0}, {0, 0}) == (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
         (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
         (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  Words key = {0x243f6a88, 0x85a308d3};
  for (const Words& part : {Words{11, 1, 22, 2}, Words{33, 3, 44, 4}}) key = Philox(part, key);
  key.resize(2);
  const auto number = [](int64_t high, int64_t low) { return (high << 32) + low; };
  const DropoutPattern pattern = {0.25f, number(1, 11), number(2, 22), number(3, 33),
                                  number(4, 44)};
  constexpr int64_t kWidth = 12;  // of three blocks of random numbers
  const int64_t positions[] = {0, 1, int64_t{1} << 34};
  std::vector<float> found(3 * kWidth, 1.0f);
  TeamMember alone;
  ApplyDropoutToRows(pattern, positions, 0, 3, kWidth, found.data(), found.data(), &alone);
  for (int64_t i = 0; i < 3 * kWidth; ++i) {
    const int64_t element = positions[i / kWidth] * kWidth + i % kWidth, block = element / 4;
    const Words random = Philox(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, {key[0], key[1]});
    const bool is_kept = random[static_cast<size_t>(element % 4)] >= 0x40000000u;
    EXPECT(found[i] == (is_kept ? 1 / 0.75f : 0.0f), i, " ", found[i]);
  }
}

// Changing any part of the key gives another pattern, which matches the first only by chance.
TEST(DropoutPatternsAreIndependent) {
  const int64_t size = 400001;
  const DropoutPattern pattern = {0.5f, 11, 22, 33, 1};
  const std::vector<float> mask = Mask(pattern, size, 3);
  EXPECT(mask == Mask(pattern, size, 3));
  const int64_t high_bit = int64_t(1) << 40;
  const DropoutPattern others[] = {{0.5f, 12, 22, 33, 1},
                                   {0.5f, 11, 23, 33, 1},
                                   {0.5f, 11, 22, 34, 1},
                                   {0.5f, 11, 22, 33, 2},
                                   {0.5f, 11 + high_bit, 22, 33, 1},
                                   {0.5f, 22, 11, 33, 1},
                                   {0.5f, 11, 22 + high_bit, 33, 1},
                                   {0.5f, -11, 22, 33, 1}};
  for (const DropoutPattern& other : others) {
    const std::vector<float> other_mask = Mask(other, size, 3);
    int64_t equal = 0;
    for (int64_t i = 0; i < size; ++i) equal += mask[i] == other_mask[i];
    EXPECT(std::abs(equal - size / 2) < 5 * std::sqrt(size) / 2, equal);
  }
  int64_t neighbours = 0;
  for (int64_t i = 1; i < size; ++i) neighbours += mask[i] == mask[i - 1];
  EXPECT(std::abs(neighbours - size / 2) < 5 * std::sqrt(size) / 2, neighbours);
}

// A row has the pattern of its position, whatever the rows around it.
TEST(DropoutOfRows) {
  TeamMember alone;
  const DropoutPattern pattern = {0.5f, 1, 2, 3, 4};
  for (int64_t width : {1, 3, 4, 7, 130}) {
    const std::vector<float> whole = Mask(pattern, 6 * width, 3);
    const std::vector<int64_t> positions = {5, 0, 3, 2};
    std::vector<float> rows(static_cast<size_t>(4 * width), 1.0f);
    ApplyDropoutToRows(pattern, positions.data(), 0, 4, width, rows.data(), rows.data(), &alone);
    for (int64_t i = 0; i < 4 * width; ++i) {
      EXPECT(rows[i] == whole[positions[i / width] * width + i % width], width, " ", i);
    }
    std::vector<float> in_order(static_cast<size_t>(6 * width), 1.0f);
    ApplyDropoutToRows(pattern, nullptr, 0, 6, width, in_order.data(), in_order.data(), &alone);
    EXPECT(in_order == whole, width);
  }
}

}  // namespace
}  // namespace cudnn_rnn
