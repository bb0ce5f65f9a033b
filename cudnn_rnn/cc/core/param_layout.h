// The layout of the parameter buffer (cuDNN's dense layout).
//
// With G gates in the order of LstmGate and GruGate (simple cells: 1), D directions, H = num_units,
// P = num_proj if there is a projection, otherwise H, and I(layer) = input_size for layer 0 and
// D * P for later layers, the buffer contains, in this order:
//   for each layer, for each direction:
//     W of gate 0..G-1, each [H, I(layer)] row-major (absent in layer 0 with skipped input),
//     R of gate 0..G-1, each [H, P] row-major,
//     with a projection: its matrix [P, H] row-major;
//   for each layer, for each direction:
//     bias of W of gate 0..G-1, each [H],
//     bias of R of gate 0..G-1, each [H].
// Thus W of one (layer, direction) is one matrix [G * H, I], and R is one matrix [G * H, P].
//
// The canonical form lists the same regions in the same order: 2 * G weights (one more with a
// projection) and 2 * G biases for each (layer, direction).
#ifndef CUDNN_RNN_CC_CORE_PARAM_LAYOUT_H_
#define CUDNN_RNN_CC_CORE_PARAM_LAYOUT_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// The order of the gates in W, R and their biases.
enum LstmGate : int { kLstmInput, kLstmForget, kLstmCandidate, kLstmOutput, kNumLstmGates };
enum GruGate : int { kGruReset, kGruUpdate, kGruCandidate, kNumGruGates };

// A row-major matrix [rows, columns] within the buffer; a bias has one column.
struct ParamRegion {
  int64_t offset;
  int64_t rows;
  int64_t columns;
  int64_t size() const { return rows * columns; }
};

class ParamLayout {
 public:
  // Fails if the config is invalid or the buffer's size does not fit in 64 bits.
  static Status Create(const RnnConfig& config, ParamLayout* layout);

  // Number of elements in the buffer.
  int64_t size() const { return size_; }

  // Offset of W of gate 0: [G * H, I(layer)], or empty.
  int64_t InputWeights(int64_t layer, int64_t direction) const;
  // Offset of R of gate 0: [G * H, P].
  int64_t RecurrentWeights(int64_t layer, int64_t direction) const;
  // Offset of the projection: [P, H], or empty.
  int64_t ProjectionWeights(int64_t layer, int64_t direction) const;
  // Offset of the biases of W: [G * H]; those of R, [G * H], follow.
  int64_t InputBiases(int64_t layer, int64_t direction) const;
  int64_t RecurrentBiases(int64_t layer, int64_t direction) const;
  // Offset of the first bias; all matrices precede it.
  int64_t first_bias() const { return biases_offset_; }

  // Columns of W; 0 in layer 0 if its input is skipped.
  int64_t InputWeightColumns(int64_t layer) const {
    return layer == 0 ? first_input_columns_ : upper_input_columns_;
  }

  // Lengths of the canonical lists, per (layer, direction) and in total.
  int64_t weights_per_direction() const { return 2 * num_gates_ + (projection_rows_ > 0 ? 1 : 0); }
  int64_t biases_per_direction() const { return 2 * num_gates_; }
  int64_t num_canonical_weights() const {
    return num_layers_ * num_directions_ * weights_per_direction();
  }
  int64_t num_canonical_biases() const {
    return num_layers_ * num_directions_ * biases_per_direction();
  }
  // Returns tensor `index` of a canonical list; `index` must be below its length.
  ParamRegion CanonicalWeight(int64_t index) const;
  ParamRegion CanonicalBias(int64_t index) const;

 private:
  // Number of elements in the matrices of one (layer, direction).
  int64_t NumMatrixElements(int64_t layer) const {
    return gate_rows_ * (InputWeightColumns(layer) + recurrent_columns_) +
           projection_rows_ * num_units_;
  }

  int64_t gate_rows_ = 0;          // G * H
  int64_t num_units_ = 0;          // H
  int64_t recurrent_columns_ = 0;  // P
  int64_t projection_rows_ = 0;    // P with a projection, else 0
  int64_t num_gates_ = 0;          // G
  int64_t num_layers_ = 0;
  int64_t num_directions_ = 0;       // D
  int64_t first_input_columns_ = 0;  // columns of W in layer 0
  int64_t upper_input_columns_ = 0;  // columns of W in later layers
  int64_t biases_offset_ = 0;        // offset of the first bias
  int64_t size_ = 0;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_PARAM_LAYOUT_H_
