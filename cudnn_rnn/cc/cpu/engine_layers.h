// What one layer's passes need at hand; shared by the engine's files.
//
// N packed rows (T * B of them allocated), B sequences, H units, outputs of width P, G gates, D
// directions; [d] is a direction's own.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_LAYERS_H_
#define CUDNN_RNN_CC_CPU_ENGINE_LAYERS_H_

#include <algorithm>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine.h"

namespace cudnn_rnn {

// With fewer rows a step is bound by the weights' way from memory, and fetching ahead only hinders.
constexpr int64_t kPrefetchingRows = 16;

// How many rows from `row` on to compute at a time: none beyond `end`, and none on both sides of a
// boundary, where operands come from elsewhere.
inline int64_t RowsUpTo(int64_t row, int64_t end) { return end - row; }
template <typename... Boundaries>
int64_t RowsUpTo(int64_t row, int64_t end, int64_t boundary, Boundaries... others) {
  return RowsUpTo(row, row < boundary ? std::min(boundary, end) : end, others...);
}

// Part number `index` of a buffer of parts of `size` elements; null of null.
template <typename T>
T* PartOf(T* buffer, int64_t index, int64_t size) {
  return buffer == nullptr ? nullptr : buffer + index * size;
}

// Of one layer.
template <typename T>
struct Engine<T>::ReserveSpace {
  T* gates[2];        // [N, G * H] activations; null for simple RNNs
  T* units[2];        // [N, H] LSTM: c; GRU: R_n h' + bias; null for simple RNNs
  T* unprojected[2];  // [N, H] o * tanh(c); null without a projection
  T* output;          // [N, D * P]; null for the last layer
};

template <typename T>
struct Engine<T>::ForwardWorkspace {
  // Of each of layers_at_once_; none of the first three where weights are read in place.
  T* packed_inputs;      // W of one direction
  T* packed_recurrent;   // R of each direction and gate; of one layer at a time in W's place
  T* packed_projection;  // of each direction
  T* bias;               // [G * H] of one direction, added to W x
  T* gates[2];           // [N, G * H], where the reserve space has none
  T* unprojected[2];     // [B, H] likewise, of each of layers_at_once_
  T* candidates[2];      // [B, H] R_n h' of GRU where R is read in place, likewise
  T* outputs[2];         // [N, D * P] of inner layers in turn, likewise
  T* dropped;            // [N, D * P] a layer's input after dropout
};

template <typename T>
struct Engine<T>::ForwardLayer {
  int64_t index;
  const PackedSequences* sequences;
  const ForwardTensors<T>* tensors;
  // The workspace's, for this layer.
  T* packed_inputs;
  T* packed_recurrent;
  T* packed_projection;
  T* bias;
  const T* input;     // [N, LayerInputSize]
  T* output;          // [N, D * P]
  T* dropped;         // [N, D * P] its output after dropout, or null
  T* gates[2];        // [N, G * H]
  T* units[2];        // [N, H], where keeps_units; or the workspace's candidates
  T* unprojected[2];  // [N, H] where keeps_units, else [B, H]
  bool keeps_units;
  DropoutPattern dropout;
};

template <typename T>
struct Engine<T>::BackwardWorkspace {
  // Of each of layers_at_once_.
  T* packed_recurrent;        // R^T of each direction and gate
  T* packed_projection;       // the projection's transpose of each direction
  T* packed_inputs;           // W^T; null where one layer runs at a time
  T* gate_gradients[2];       // [N, G * H]; null where they replace the reserve space's gates
  T* candidate_gradients[2];  // [N, H], GRU only; likewise
  T* projected_gradients[2];  // [N, P] of h, with a projection only
  // One for all.
  T* packed;               // one operand of a large product, in place of R^T
  T* output_gradients[2];  // [N, D * P] of inner layers in turn
  T* dropped;              // [N, D * P] a layer's input after dropout
};

template <typename T>
struct Engine<T>::BackwardLayer {
  int64_t index;
  const PackedSequences* sequences;
  const BackwardTensors<T>* tensors;
  const BackwardWorkspace* workspace;
  ReserveSpace reserve;
  // The workspace's, for this layer.
  T* packed_recurrent;
  T* packed_projection;
  T* packed_inputs;  // or the common `packed`
  T* projected_gradients[2];
  T* gate_gradients[2];  // [N, G * H], the workspace's or, in place, those of the reserve space
  T* candidate_gradients[2];  // [N, H], GRU only; likewise
  const T* input;             // [N, LayerInputSize], before dropout
  const T* output;            // [N, D * P]
  const T* output_gradient;   // [N, D * P]
  T* input_gradient;          // [N, LayerInputSize]
  bool drops_input;
  DropoutPattern dropout;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_LAYERS_H_
