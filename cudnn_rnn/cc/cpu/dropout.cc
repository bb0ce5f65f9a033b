#include "cudnn_rnn/cc/cpu/dropout.h"

#include <algorithm>

namespace cudnn_rnn {
namespace {

struct PhiloxKey {
  uint32_t low;
  uint32_t high;
};

struct PhiloxBlock {
  uint32_t words[4];
};

// Returns four independent random words for a counter, after ten rounds.
PhiloxBlock Philox(PhiloxBlock block, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = 0xd2511f53ull * block.words[0];
    const uint64_t product1 = 0xcd9e8d57ull * block.words[2];
    block = {{static_cast<uint32_t>(product1 >> 32) ^ block.words[1] ^ key.low,
              static_cast<uint32_t>(product1),
              static_cast<uint32_t>(product0 >> 32) ^ block.words[3] ^ key.high,
              static_cast<uint32_t>(product0)}};
    key.low += 0x9e3779b9u;
    key.high += 0xbb67ae85u;
  }
  return block;
}

PhiloxBlock Words(uint64_t first, uint64_t second) {
  return {{static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32),
           static_cast<uint32_t>(second), static_cast<uint32_t>(second >> 32)}};
}

// Every bit of the two seeds, the call and the layer affects the key.
PhiloxKey MakeKey(const DropoutPattern& pattern) {
  PhiloxKey key = {0x243f6a88u, 0x85a308d3u};
  const PhiloxBlock parts[] = {
      Words(static_cast<uint64_t>(pattern.seed), static_cast<uint64_t>(pattern.seed2)),
      Words(static_cast<uint64_t>(pattern.call), static_cast<uint64_t>(pattern.layer))};
  for (const PhiloxBlock& part : parts) {
    const PhiloxBlock mixed = Philox(part, key);
    key = {mixed.words[0], mixed.words[1]};
  }
  return key;
}

constexpr int64_t kCyclesPerElement = 10;

// A pattern with its key, threshold and scale computed.
template <typename T>
class Mask {
 public:
  // Keeps an element if its uniform 32-bit number is at least the threshold; 2^32 keeps none.
  explicit Mask(const DropoutPattern& pattern)
      : key_(MakeKey(pattern)),
        threshold_(static_cast<uint64_t>(static_cast<double>(pattern.dropout) * 4294967296.0)),
        scale_(pattern.dropout < 1.0f ? T(1) / (T(1) - static_cast<T>(pattern.dropout)) : T(0)) {}

  // Applies elements [first, first + count) of the pattern.
  void Apply(int64_t first, int64_t count, const T* source, T* target) const {
    for (int64_t i = 0; i < count;) {
      const int64_t element = first + i;
      const PhiloxBlock random = Philox(Words(static_cast<uint64_t>(element / 4), 0), key_);
      const int64_t end = std::min(count, i + 4 - element % 4);
      for (int64_t word = element % 4; i < end; ++word, ++i) {
        target[i] = random.words[word] >= threshold_ ? source[i] * scale_ : T(0);
      }
    }
  }

 private:
  const PhiloxKey key_;
  const uint64_t threshold_;
  const T scale_;
};

}  // namespace

template <typename T>
void ApplyDropoutToRows(const DropoutPattern& pattern, const int64_t* positions, int64_t first_row,
                        int64_t end_row, int64_t width, const T* source, T* target,
                        TeamMember* member) {
  const Mask<T> mask(pattern);
  const auto apply = [&](int64_t begin, int64_t end) {
    for (int64_t row = first_row + begin; row < first_row + end; ++row) {
      const int64_t position = positions == nullptr ? row : positions[row];
      mask.Apply(position * width, width, source + row * width, target + row * width);
    }
  };
  member->ForEach(end_row - first_row, width * kCyclesPerElement, apply);
}

template void ApplyDropoutToRows(const DropoutPattern&, const int64_t*, int64_t, int64_t, int64_t,
                                 const float*, float*, TeamMember*);
template void ApplyDropoutToRows(const DropoutPattern&, const int64_t*, int64_t, int64_t, int64_t,
                                 const double*, double*, TeamMember*);

}  // namespace cudnn_rnn
