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

// Ten rounds turn a counter into four independent random words.
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

// Every bit of the two seeds, of the call and of the layer changes the key.
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

}  // namespace

template <typename T>
void ApplyDropout(const DropoutPattern& pattern, int64_t num_elements, const T* source, T* target,
                  ParallelRunner* runner) {
  const PhiloxKey key = MakeKey(pattern);
  // Kept where a uniform 32-bit number is not below this; 2^32 keeps nothing.
  const uint64_t threshold =
      static_cast<uint64_t>(static_cast<double>(pattern.dropout) * 4294967296.0);
  const T scale = pattern.dropout < 1.0f ? T(1) / (T(1) - static_cast<T>(pattern.dropout)) : T(0);
  constexpr int64_t kItemElements = 4096;
  constexpr int64_t kCyclesPerElement = 10;
  const int64_t num_items = (num_elements + kItemElements - 1) / kItemElements;
  runner->Run(num_items, kItemElements * kCyclesPerElement, [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(end * kItemElements, num_elements);
    for (int64_t first = begin * kItemElements; first < last; first += 4) {
      const PhiloxBlock random = Philox(Words(static_cast<uint64_t>(first / 4), 0), key);
      const int64_t count = std::min<int64_t>(4, last - first);
      for (int64_t i = 0; i < count; ++i) {
        const bool keep = random.words[i] >= threshold;
        target[first + i] = keep ? source[first + i] * scale : T(0);
      }
    }
  });
}

template void ApplyDropout<float>(const DropoutPattern&, int64_t, const float*, float*,
                                  ParallelRunner*);
template void ApplyDropout<double>(const DropoutPattern&, int64_t, const double*, double*,
                                   ParallelRunner*);

}  // namespace cudnn_rnn
