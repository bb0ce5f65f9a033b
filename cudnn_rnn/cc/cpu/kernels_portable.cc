// Micro-kernels for any processor.

#include "cudnn_rnn/cc/cpu/kernel_file.h"

namespace cudnn_rnn {
namespace {

constexpr int kVectorBytes = 16;
#include "cudnn_rnn/cc/cpu/vectors.inc"

// Requires the file above.
#include "cudnn_rnn/cc/cpu/partial_vectors.inc"

// At most 12 of the 16 registers hold sums.
constexpr int TileRows(int vectors) { return vectors == 1 ? 8 : 12 / vectors; }
constexpr int RegisterVectors(int, int vectors) { return vectors; }

// Rounds twice: not every processor has an instruction that rounds once.
template <typename V>
CUDNN_RNN_INLINE V MultiplyAdd(const V& a, const V& b, const V& c) {
  return a * b + c;
}
template <typename V>
CUDNN_RNN_INLINE V Min(const V& a, const V& b) {
  return a < b ? a : b;
}

#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace

template <typename T>
const Kernels<T>* PortableKernels() {
  static const Kernels<T> kernels = MakeKernels<T>("portable");
  return &kernels;
}
template const Kernels<float>* PortableKernels();
template const Kernels<double>* PortableKernels();

}  // namespace cudnn_rnn
