// Buffers for measuring and testing plans without TensorFlow.
#ifndef CUDNN_RNN_TESTS_CORE_BUFFERS_H_
#define CUDNN_RNN_TESTS_CORE_BUFFERS_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/core/rnn_config.h"

namespace cudnn_rnn {

// Aligned memory, like that of tensor allocators, filled with NaN to expose uninitialized reads;
// its pages have been touched, so that measurements include no page faults. It ends with its last
// byte, so the address sanitizer finds every access beyond.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(bytes) {
    const size_t size = static_cast<size_t>(bytes);
    if (posix_memalign(&data_, 64, size) != 0) throw std::bad_alloc();
    std::memset(data_, 0xff, size);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(data_); }

  char* data() { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  const int64_t bytes_;
  void* data_ = nullptr;
};

// A buffer of elements of a data type, set and read as double.
class Buffer {
 public:
  Buffer(const std::vector<double>& values, DataType data_type)
      : size_(values.size()),
        data_type_(data_type),
        memory_(static_cast<int64_t>(values.size()) * SizeOf(data_type)) {
    for (size_t i = 0; i < size_; ++i) Set(i, values[i]);
  }

  void Fill(double value) {
    for (size_t i = 0; i < size_; ++i) Set(i, value);
  }
  // Null if empty.
  void* data() { return size_ == 0 ? nullptr : memory_.data(); }
  std::vector<double> Values() {
    std::vector<double> values(size_);
    for (size_t i = 0; i < size_; ++i) values[i] = Get(i);
    return values;
  }

 private:
  template <typename T>
  T* At(size_t i) {
    return reinterpret_cast<T*>(memory_.data()) + i;
  }
  void Set(size_t i, double value) {
    switch (data_type_) {
      case DataType::kHalf:
        *At<uint16_t>(i) = FloatToHalf(static_cast<float>(value));
        break;
      case DataType::kBfloat16:
        *At<uint16_t>(i) = FloatToBfloat16(static_cast<float>(value));
        break;
      case DataType::kFloat:
        *At<float>(i) = static_cast<float>(value);
        break;
      case DataType::kDouble:
        *At<double>(i) = value;
        break;
    }
  }
  double Get(size_t i) {
    switch (data_type_) {
      case DataType::kHalf:
        return HalfToFloat(*At<uint16_t>(i));
      case DataType::kBfloat16:
        return Bfloat16ToFloat(*At<uint16_t>(i));
      case DataType::kFloat:
        return *At<float>(i);
      case DataType::kDouble:
        break;
    }
    return *At<double>(i);
  }

  const size_t size_;
  const DataType data_type_;
  Memory memory_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_BUFFERS_H_
