#include "cudnn_rnn/cc/cpu/buffer_exchange.h"

#include <algorithm>

namespace cudnn_rnn {
namespace {

void ConvertAll(const Kernels<float>& kernels, const Half* source, int64_t count, float* target) {
  kernels.half.read(&source->bits, count, target);
}
void ConvertAll(const Kernels<float>& kernels, const float* source, int64_t count, Half* target) {
  kernels.half.write(source, count, &target->bits);
}
void ConvertAll(const Kernels<float>& kernels, const Bfloat16* source, int64_t count,
                float* target) {
  kernels.bfloat16.read(&source->bits, count, target);
}
void ConvertAll(const Kernels<float>& kernels, const float* source, int64_t count,
                Bfloat16* target) {
  kernels.bfloat16.write(source, count, &target->bits);
}
template <typename T>
void ConvertAll(const Kernels<T>&, const T* source, int64_t count, T* target) {
  std::copy_n(source, count, target);
}

constexpr int64_t kCyclesPerElement = 4;
constexpr int64_t kCyclesPerRow = 60;

// Calls function(first_row, num_rows) for ranges that together cover [0, num_rows).
template <typename Function>
void ForRows(int64_t num_rows, int64_t width, TeamMember* member, const Function& function) {
  member->ForEach(num_rows, width * kCyclesPerElement + kCyclesPerRow,
                  [&](int64_t begin, int64_t end) { function(begin, end - begin); });
}

}  // namespace

template <typename Storage, typename Real>
const Real* BufferExchange<Storage, Real>::Read(const void* buffer,
                                                const BufferShape& shape) const {
  if (!NeedsCopy(shape)) return static_cast<const Real*>(buffer);
  const int64_t width = shape.width;
  Real* values = copies_->Take<Real>(CheckedSize(shape.num_rows) * width);
  if (buffer == nullptr) return values;
  const Storage* source = static_cast<const Storage*>(buffer);
  ForRows(shape.engine_rows, width, member_, [&](int64_t first_row, int64_t num_rows) {
    if (shape.map.IsIdentity()) {
      ConvertAll(kernels_, source + first_row * width, num_rows * width,
                 values + first_row * width);
      return;
    }
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      ConvertAll(kernels_, source + shape.map(row) * width, width, values + row * width);
    }
  });
  return values;
}

template <typename Storage, typename Real>
Real* BufferExchange<Storage, Real>::OutputMemory(void* buffer, const BufferShape& shape) const {
  if (!NeedsCopy(shape)) return static_cast<Real*>(buffer);
  return copies_->Take<Real>(CheckedSize(shape.num_rows) * shape.width);
}

template <typename Storage, typename Real>
void BufferExchange<Storage, Real>::Store(const Real* values, const BufferShape& shape,
                                          void* buffer) const {
  if (!NeedsCopy(shape) || buffer == nullptr) return;
  const int64_t width = shape.width;
  Storage* target = static_cast<Storage*>(buffer);
  ForRows(shape.num_rows, width, member_, [&](int64_t first_row, int64_t num_rows) {
    if (shape.map.IsIdentity()) {
      ConvertAll(kernels_, values + first_row * width, num_rows * width,
                 target + first_row * width);
      return;
    }
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      Storage* target_row = target + shape.map(row) * width;
      if (row < shape.engine_rows) {
        ConvertAll(kernels_, values + row * width, width, target_row);
      } else {
        std::fill_n(target_row, width, Storage());
      }
    }
  });
}

template class BufferExchange<Half, float>;
template class BufferExchange<Bfloat16, float>;
template class BufferExchange<float, float>;
template class BufferExchange<double, double>;

}  // namespace cudnn_rnn
