// The inner loops, compiled once for each instruction set and chosen at run time.
#ifndef CUDNN_RNN_CC_CPU_KERNELS_H_
#define CUDNN_RNN_CC_CPU_KERNELS_H_

#include <cstdint>
#include <string>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"

// Where the compiler knows the products of bfloat16 of AVX-512, and those of AMX.
#if defined(__x86_64__) && \
    ((defined(__clang__) && __clang_major__ >= 10) || (!defined(__clang__) && __GNUC__ >= 11))
#define CUDNN_RNN_HAS_AVX512_BF16
#endif
#if defined(CUDNN_RNN_HAS_AVX512_BF16) && (!defined(__clang__) || __clang_major__ >= 12)
#define CUDNN_RNN_HAS_AMX_BF16
#endif

namespace cudnn_rnn {

// Columns of a vector at most, in any instruction set; vectors of a tile likewise.
constexpr int64_t kMaxLanes = 16;
constexpr int64_t kMaxTileVectors = 4;

// A right-hand operand [depth, columns] is packed into panels of one vector of columns: panel p
// holds columns [p * lanes, (p + 1) * lanes) as [depth, lanes], padded with zeros. A tile of a
// product has several panels side by side, which need not be neighbours in the operand.
//
// Where products are of bfloat16, a panel holds pairs of neighbours in depth, [depth / 2, lanes]
// with depth rounded up, a pair in each element. There the left-hand operand is rounded as well.

// Element (row, column) at data[row * row_stride + column * column_stride].
template <typename T>
struct StridedMatrix {
  const T* data;
  int64_t row_stride;
  int64_t column_stride;
};

// Some of the terms of a sum over k: a[m, k] * b[k, n].
template <typename T>
struct Factors {
  const T* a;  // a[m, k] at a[m * a_row_stride + k * a_depth_stride]; one of them is 1
  int64_t a_row_stride;
  int64_t a_depth_stride;
  const T* b;  // the first panel, at its first k
  int64_t b_panel_stride;
  int64_t depth;
  // What is wanted next, panels laid out as b or what these will be packed from, or null. While the
  // rows of this tile pass by its own panels, as much of that comes to the second-level cache. It
  // is not read otherwise, and may lie beyond an end.
  const T* next_b;
};

// c[m, n] (+)= bias[n] + the sum of factors, for m < rows, n < columns. Every element is the sum of
// chains of multiply-adds in the order of k, wherever tiles begin and end.
template <typename T>
struct ProductTile {
  Factors<T> factors;
  int64_t rows;
  int64_t columns;  // at most `tile_vectors` vectors
  T* c;             // c[m, n] at c[m * c_row_stride + n]
  int64_t c_row_stride;
  bool accumulate;
  const T* bias;  // [columns], or null
  // Of a chain at most, an even number; 0 for one chain, which those of amx_bf16 always are.
  int64_t chain_terms;
};

// c[m, n] (+)= bias[n] + sum over k of a[m, k] * b[n, k]: a product with an operand that is used
// too rarely to be worth packing. Of each sum the terms of each lane are added up first.
template <typename T>
struct UnpackedProduct {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  const T* a;  // a[m, k] at a[m * a_row_stride + k]
  int64_t a_row_stride;
  const T* b;  // b[n, k] at b[n * b_row_stride + k]
  int64_t b_row_stride;
  T* c;
  int64_t c_row_stride;
  bool accumulate;
  const T* bias;  // [columns], or null
};

// One step of a cell for some rows of the batch and some of the units. Each pointer is at the
// first of these rows and units; neighbouring units are neighbours in memory. A gate's values are
// `gate_stride` apart, a row's `..._row_stride`.
template <typename T>
struct ForwardTile {
  int64_t rows;
  int64_t units;  // at most `forward_vectors` vectors
  // R h': the panels of a tile are those of the gates for these units, or for a cell of one gate
  // those of neighbouring units. With depth 0 it is in `gates` already, and GRU's R_n h' in
  // candidate_product.
  Factors<T> recurrent;
  // In: W x and the biases (of GRU's n only that of W). Out, if keeps_gates: the gates'
  // activations.
  T* gates;
  int64_t gate_stride;
  int64_t gate_row_stride;
  bool keeps_gates;
  const T* previous_h;
  int64_t previous_h_row_stride;
  T* h;
  int64_t h_row_stride;
  // LSTM.
  const T* previous_c;
  T* c;
  // GRU: bias of R_n, and where to leave R_n h' + bias if keeps_gates. Null only if it is neither
  // read nor written.
  const T* candidate_bias;
  T* candidate_product;
  // Of previous_c, c and candidate_product.
  int64_t unit_row_stride;
};

template <typename T>
struct BackwardTile {
  int64_t rows;
  int64_t units;  // at most `tile_vectors` vectors
  // Gradient of h from this step's output, and from the next step's gates: [rows, units] of
  // `product_row_stride`.
  const T* output_gradient;
  int64_t output_gradient_row_stride;
  const T* product;
  int64_t product_row_stride;
  // In: gradient of h that reaches it past the gates. Out: the same for the previous h.
  T* h_gradient;
  int64_t h_gradient_row_stride;
  // What the forward pass left.
  const T* gates;
  int64_t gate_stride;
  int64_t gate_row_stride;
  const T* previous_h;
  int64_t previous_h_row_stride;
  const T* h;
  int64_t h_row_stride;
  const T* previous_c;
  const T* c;
  const T* candidate_product;
  // LSTM. In: gradient of c from the next step. Out: gradient of the previous c.
  T* c_gradient;
  // Out: gradients of the gates before activation, laid out as `gates`.
  T* gate_gradients;
  // Out, GRU: gradient of R_n h' + bias.
  T* candidate_gradient;
  // Of previous_c, c, candidate_product, c_gradient and candidate_gradient.
  int64_t unit_row_stride;
};

template <typename T>
struct CellKernels {
  // Vectors of units that `forward` takes.
  int64_t forward_vectors;
  void (*forward)(const ForwardTile<T>&);
  void (*backward)(const BackwardTile<T>&);
};

template <typename T>
struct Kernels {
  const char* instruction_set;
  int64_t lanes;         // columns of a vector
  int64_t tile_vectors;  // vectors of a product's tile
  int64_t packed_terms;  // terms of a sum in one element of a panel: 1, or 2 of bfloat16
  void (*product)(const ProductTile<T>&);
  void (*unpacked_product)(const UnpackedProduct<T>&);
  // Packs rows [0, depth) of up to `lanes` columns to a panel.
  void (*pack)(const StridedMatrix<T>& source, int64_t depth, int64_t columns, T* packed);
  // sums[n] = the sum over rows of matrix[row * row_stride + n], in double, for n < columns.
  void (*sum_rows)(const T* matrix, int64_t row_stride, int64_t rows, int64_t columns, T* sums);
  CellKernels<T> lstm;
  CellKernels<T> gru;
  CellKernels<T> relu;
  CellKernels<T> tanh;
};

// Elements of a panel of that depth; within a deeper one, how far it is to that depth if it is
// even.
template <typename T, typename Size>
Size PanelSize(const Kernels<T>& kernels, Size depth) {
  return (depth + (kernels.packed_terms - 1)) / kernels.packed_terms * kernels.lanes;
}

// Where a user names an instruction set; whoever makes a plan reads it.
constexpr char kInstructionSetVariable[] = "CUDNN_RNN_CPU_INSTRUCTION_SET";

// The kernels named portable, avx2, avx512, avx512_bf16 or amx_bf16, or for an empty name the best
// that this processor runs, but not amx_bf16, which nobody has measured yet. avx512_bf16 and
// amx_bf16 are those of avx512 unless models are of bfloat16. Fails where the processor lacks them
// or the name is unknown.
template <typename T>
Status ChooseKernels(const std::string& instruction_set, DataType data_type,
                     const Kernels<T>** kernels);

// One set each; null where the compiler does not build for that processor.
const Kernels<float>* PortableKernels(float);
const Kernels<double>* PortableKernels(double);
const Kernels<float>* Avx2Kernels(float);
const Kernels<double>* Avx2Kernels(double);
const Kernels<float>* Avx512Kernels(float);
const Kernels<double>* Avx512Kernels(double);
const Kernels<float>* Avx512Bf16Kernels();
const Kernels<float>* AmxBf16Kernels();

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_KERNELS_H_
