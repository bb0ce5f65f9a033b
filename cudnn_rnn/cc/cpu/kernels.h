// Micro-kernels, compiled once for each instruction set and chosen at run time.
#ifndef CUDNN_RNN_CC_CPU_KERNELS_H_
#define CUDNN_RNN_CC_CPU_KERNELS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cpu/float_mode.h"
#include "cudnn_rnn/cc/cpu/instruction_set.h"

namespace cudnn_rnn {

// Maximum lanes of a vector and maximum vectors of a tile, over all instruction sets.
constexpr int64_t kMaxLanes = 16;
constexpr int64_t kMaxTileVectors = 4;
constexpr int64_t kMaxPlanes = 2;
// Maximum depth_block over all instruction sets: 768 floats or 384 doubles.
template <typename T>
constexpr int64_t MaxDepthBlock() {
  return 3072 / static_cast<int64_t>(sizeof(T));
}

// A right-hand operand [depth, columns] is packed into panels of one vector of columns: panel p
// holds columns [p * lanes, (p + 1) * lanes) as [depth, lanes], padded with zeros. A tile of a
// product has several panels side by side, which need not be adjacent in the operand.
//
// For bfloat16 products a panel holds pairs of terms adjacent in depth (VNNI pairs), one per
// element: [ceil(depth / 2), lanes]. The left-hand operand is rounded to bfloat16 as well, once for
// all products with it: see RoundedMatrix.
//
// With two planes, each factor x is the sum of two bfloat16 numbers: x rounded, and the rest
// rounded. A product is the sum of three products of bfloat16 numbers; that of both rests, which is
// at most 2^-18 of the whole, is left out. In a panel the planes alternate after each block of
// depth_multiple terms.

// A matrix view: element (row, column) is at data[row * row_stride + column * column_stride].
template <typename T>
struct StridedMatrix {
  const T* data;
  int64_t row_stride;
  int64_t column_stride;
};

// A left-hand operand rounded to bfloat16, row by row: element (row, k) is at
// data[row * row_stride + k], with zeros from the depth up to the next multiple of depth_multiple.
struct RoundedMatrix {
  // Returns the part of the matrix that begins at an element; without data, none.
  RoundedMatrix At(int64_t row, int64_t column) const {
    const int64_t offset = data == nullptr ? 0 : row * row_stride + column;
    return {data + offset, row_stride, plane_stride};
  }
  void ClearRows(int64_t begin, int64_t end) const {
    const auto clear = [&](uint16_t* plane) {
      std::fill(plane + begin * row_stride, plane + end * row_stride, uint16_t{0});
    };
    clear(data);
    if (plane_stride > 0) clear(data + plane_stride);
  }

  uint16_t* data;
  int64_t row_stride;    // RoundedRowStride(columns), or 0 without data
  int64_t plane_stride;  // from an element to its rest; 0 with one plane
};

// Returns an odd number of cache lines, so that rows are spread over the sets of the L1 cache.
template <typename Size>
Size RoundedRowStride(Size columns) {
  constexpr int64_t kPerLine = 32;
  return (columns + (2 * kPerLine - 1)) / (2 * kPerLine) * (2 * kPerLine) + kPerLine;
}

// The factors of a sum over k of a[m, k] * b[k, n], for a range of k.
template <typename T>
struct Factors {
  const T* a;  // a[m, k] at a[m * a_row_stride + k * a_depth_stride]; one of the strides is 1
  int64_t a_row_stride;
  int64_t a_depth_stride;
  RoundedMatrix rounded_a;  // replaces `a` for kernels that round
  const T* b;               // the first panel, at its first k
  int64_t b_panel_stride;
  int64_t depth;
  // The next tile's packed panels, laid out as b, or the matrix they will be packed from; or null.
  // While this tile is multiplied, as many bytes from there are prefetched into the L2 cache. Never
  // dereferenced, so the range may extend beyond the end of its buffer.
  const T* next_b;
};

// c[m, n] (+)= bias[n] + sum over k of a[m, k] * b[k, n], for m < rows, n < columns. Every element
// is a sum of chains of multiply-adds in the order of k, wherever tiles begin and end.
template <typename T>
struct ProductTile {
  Factors<T> factors;
  int64_t rows;
  int64_t columns;  // at most `tile_vectors` vectors
  T* c;             // c[m, n] at c[m * c_row_stride + n]
  int64_t c_row_stride;
  bool accumulate;
  bool prefetches_c;  // true for c that is probably not in the L1 cache
  const T* bias;      // [columns], or null
  // Maximum terms of a chain, even; 0 for a single chain. amx_bf16 always uses a single chain,
  // because the factors' 8 significant bits limit the precision anyway.
  int64_t chain_terms;
};

// c[m, n] (+)= bias[n] + sum over k of a[m, k] * b[n, k]: dot products with an operand that is used
// too rarely to be worth packing. Each lane accumulates its own terms; the lanes are added last.
template <typename T>
struct RowMajorProduct {
  int64_t rows;
  int64_t columns;
  int64_t depth;
  const T* a;  // a[m, k] at a[m * a_row_stride + k]
  int64_t a_row_stride;
  const T* b;  // b[n, k] at b[n * b_row_stride + k]
  int64_t b_row_stride;
  T* c;
  int64_t c_row_stride;
  bool accumulate = false;
  const T* bias = nullptr;  // [columns], or null
  // The rows of b that the next product reads, or null: prefetched while the last columns are
  // multiplied. Never dereferenced, as in Factors.
  const T* next_b = nullptr;
  // The panels of b, or null. Dot products do not read them.
  const T* panels = nullptr;
};

// One forward step of a cell for a range of the batch's rows and a range of units. Each pointer
// refers to the first row and unit of these ranges. Units are contiguous, gates are `gate_stride`
// apart, rows `..._row_stride`.
template <typename T>
struct ForwardTile {
  int64_t rows;
  int64_t units;  // at most `forward_vectors` vectors
  // R h'. A tile has one panel per gate for these units, or for a cell of one gate the panels of
  // adjacent units. With depth 0, R h' is already in `gates`, GRU's R_n h' in candidate_product.
  Factors<T> recurrent;
  // In: W x + biases (for GRU's n only W's bias). Out, if keeps_gates: the gates' activations.
  T* gates;
  int64_t gate_stride;
  int64_t gate_row_stride;
  bool keeps_gates;
  const T* previous_h;
  int64_t previous_h_row_stride;
  T* h;
  int64_t h_row_stride;
  RoundedMatrix rounded_h;  // out: h as the factor of products; without data if there are none
  // LSTM.
  const T* previous_c;
  T* c;
  // GRU: the bias of R_n; and the buffer for R_n h' + bias, written if keeps_gates and null only if
  // neither read nor written.
  const T* candidate_bias;
  T* candidate_product;
  // Applies to previous_c, c and candidate_product.
  int64_t unit_row_stride;
};

// One backward step of a cell; ranges and strides are as in ForwardTile. The gradient of h is the
// sum of output_gradient, product and h_gradient, each [rows, units].
template <typename T>
struct BackwardTile {
  int64_t rows;
  int64_t units;  // at most `tile_vectors` vectors
  // The gradient from this step's output, and from the next step's gates.
  const T* output_gradient;
  int64_t output_gradient_row_stride;
  const T* product;
  int64_t product_row_stride;
  // In: the gradient that bypasses the next step's gates. Out: the same for the previous h.
  T* h_gradient;
  int64_t h_gradient_row_stride;
  // Results of the forward pass.
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
  // Out: gradients of the gates' pre-activations, laid out as `gates`.
  T* gate_gradients;
  // Out, GRU: gradient of R_n h' + bias.
  T* candidate_gradient;
  // Applies to previous_c, c, candidate_product, c_gradient and candidate_gradient.
  int64_t unit_row_stride;
};

// Convert arrays between a 16-bit type and T; null if T is double.
template <typename T>
struct Conversions {
  void (*read)(const uint16_t* source, int64_t count, T* target);
  void (*write)(const T* source, int64_t count, uint16_t* target);
  // MakeHalvesFinite (float16.h) of this type; `target` may be `source`.
  void (*make_halves_finite)(const T* source, int64_t count, T* target);
};

template <typename T>
struct CellKernels {
  // Maximum vectors of units per `forward` tile.
  int64_t forward_vectors;
  void (*forward)(const ForwardTile<T>&);
  void (*backward)(const BackwardTile<T>&);
};

struct KernelTraits {
  const char* instruction_set;
  int64_t lanes;             // columns per vector
  int64_t tile_vectors;      // vectors per tile of a product
  int64_t vnni_factor;       // terms of a sum per element of a panel: 1, or 2 for bfloat16
  int64_t depth_multiple;    // products are computed in blocks of this many terms
  int64_t depth_block;       // maximum terms of a k-block of a large product
  int64_t row_multiple;      // rows per AMX register, or 1: blocks of rows are multiples of it
  int64_t planes;            // bfloat16 numbers per factor, or 1
  int64_t core_cache_bytes;  // of this processor, not of the instruction set: see instruction_set.h

  // Whether products round their factors to bfloat16.
  bool rounds() const { return vnni_factor > 1; }
};

template <typename T>
struct Kernels : KernelTraits {
  // Releases what `product` and the cells configured in the calling thread; null if nothing.
  void (*leave_thread)();
  // Rounds [rows, columns], with zeros up to `padded_columns`; null unless rounds(). One of the
  // source's strides is 1.
  void (*round_rows)(const StridedMatrix<T>& source, int64_t rows, int64_t columns,
                     int64_t padded_columns, const RoundedMatrix& target);
  void (*product)(const ProductTile<T>&);
  void (*dot_products)(const RowMajorProduct<T>&);
  // Packs up to `lanes` columns [depth, columns] into one panel.
  void (*pack_panel)(const StridedMatrix<T>& source, int64_t depth, int64_t columns, T* packed);
  // The same for bfloat16 values, which keep their bits; null unless rounds().
  void (*pack_bfloat16_panel)(const StridedMatrix<uint16_t>& source, int64_t depth, int64_t columns,
                              T* packed);
  // sums[n] = the sum over rows of matrix[row * row_stride + n], in double, for n < columns.
  void (*sum_rows)(const T* matrix, int64_t row_stride, int64_t rows, int64_t columns, T* sums);
  Conversions<T> half;
  Conversions<T> bfloat16;
  CellKernels<T> lstm;
  CellKernels<T> gru;
  CellKernels<T> relu;
  CellKernels<T> tanh;
};

// Every thread that calls kernels has one of these around the calls.
template <typename T>
class KernelThread {
 public:
  explicit KernelThread(const Kernels<T>& kernels) : kernels_(kernels) {}
  ~KernelThread() {
    if (kernels_.leave_thread != nullptr) kernels_.leave_thread();
  }
  KernelThread(const KernelThread&) = delete;
  KernelThread& operator=(const KernelThread&) = delete;

 private:
  const FloatMode mode_;
  const Kernels<T>& kernels_;
};

// Returns `depth` rounded up to whole blocks.
template <typename Size>
Size PaddedDepth(const KernelTraits& kernels, Size depth) {
  return (depth + (kernels.depth_multiple - 1)) / kernels.depth_multiple * kernels.depth_multiple;
}

// Returns the elements of a panel of `depth` terms. If `depth` is a multiple of depth_multiple,
// this is also the offset of term `depth` within a deeper panel.
template <typename Size>
Size PanelSize(const KernelTraits& kernels, Size depth) {
  return PaddedDepth(kernels, depth) / kernels.vnni_factor * (kernels.planes * kernels.lanes);
}

// Returns the number of panels needed for `columns` columns.
inline int64_t NumPanels(const KernelTraits& kernels, int64_t columns) {
  return (columns + kernels.lanes - 1) / kernels.lanes;
}

// Chooses the kernels that ChooseInstructionSet names for this processor. Those for double have
// exact factors.
template <typename T>
Status ChooseKernels(const std::string& instruction_set, FactorFormat factors,
                     const Kernels<T>** kernels);

// Returns kernels that round factors to bfloat16 in order to read half as many bytes of weights,
// for steps that are limited by reading weights; null if the instruction set of `exact` has none.
const Kernels<float>* KernelsForFewRows(const Kernels<float>& exact);
inline const Kernels<double>* KernelsForFewRows(const Kernels<double>&) { return nullptr; }

// Return the kernels of one instruction set for float or double. Each function is defined only in
// builds for processors that may have the instruction set.
template <typename T>
const Kernels<T>* PortableKernels();
template <typename T>
const Kernels<T>* Avx2Kernels();
template <typename T>
const Kernels<T>* Avx512Kernels();
template <typename T>
const Kernels<T>* NeonKernels();
const Kernels<float>* Avx2RoundedKernels();  // of FactorFormat::kRounded
const Kernels<float>* Avx512Bf16Kernels();
const Kernels<float>* AmxBf16Kernels();
const Kernels<float>* AmxSplitKernels();  // of FactorFormat::kSplit
const Kernels<float>* NeonBf16Kernels();

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_KERNELS_H_
