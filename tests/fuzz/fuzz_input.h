// Turns the bytes of a fuzzer into numbers. When they run out, all further bytes are 0.
#ifndef CUDNN_RNN_TESTS_FUZZ_FUZZ_INPUT_H_
#define CUDNN_RNN_TESTS_FUZZ_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cudnn_rnn {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  // Returns a number from 0 to `count` - 1, from one byte.
  int64_t Choice(int64_t count) { return Bits<uint8_t>() % count; }
  bool Flag() { return Choice(2) == 1; }

  // Returns a value of any bits.
  template <typename T>
  T Bits() {
    unsigned char bytes[sizeof(T)] = {};
    for (size_t i = 0; i < sizeof(T) && size_ > 0; ++i, ++data_, --size_) bytes[i] = *data_;
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  }

  // Returns a size such as graphs and files contain them: mostly small, or near a power of two, or
  // any 64 bits.
  int64_t Size() {
    const int64_t kind = Choice(8);
    if (kind < 5) return Bits<uint8_t>();
    if (kind == 7) return Bits<int64_t>();
    const uint64_t power = uint64_t(1) << Choice(64);
    return static_cast<int64_t>(power + static_cast<uint64_t>(Choice(3)) - 1);
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_FUZZ_FUZZ_INPUT_H_
