// Buffers and parameters of one layer's passes; shared by the engine's files.
//
// N: packed rows (T * B are allocated); B: sequences; H: units; P: width of h; G: gates; D:
// directions. Arrays of two elements are indexed by direction, unless noted otherwise.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_LAYERS_H_
#define CUDNN_RNN_CC_CPU_ENGINE_LAYERS_H_

#include <algorithm>

#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/engine.h"

namespace cudnn_rnn {

// Minimum rows of a step for prefetching the next tile's panels. With fewer rows a step is limited
// by the bandwidth of reading the weights, and prefetching slows it down.
constexpr int64_t kPrefetchingRows = 16;

// Returns how many rows from `row` on to compute at a time: up to `end`, and not across any
// boundary, beyond which operands are in other buffers.
inline int64_t RowsUpTo(int64_t row, int64_t end) { return end - row; }
template <typename... Boundaries>
int64_t RowsUpTo(int64_t row, int64_t end, int64_t boundary, Boundaries... others) {
  return RowsUpTo(row, row < boundary ? std::min(boundary, end) : end, others...);
}

// Returns part number `index` of a buffer of parts of `size` elements; null for a null buffer.
template <typename T>
T* PartOf(T* buffer, int64_t index, int64_t size) {
  return buffer == nullptr ? nullptr : buffer + index * size;
}

// The part of the reserve space that belongs to one layer.
template <typename T>
struct Engine<T>::ReserveSpace {
  T* gates[2];        // [N, G * H] activations; null for simple RNNs
  T* units[2];        // [N, H] LSTM: c; GRU: R_n h' + bias; null for simple RNNs
  T* unprojected[2];  // [N, H] o * tanh(c); null without a projection
  T* output;          // [N, D * P]; null for the last layer
};

template <typename T>
struct Engine<T>::ForwardWorkspace {
  // One of each per layers_at_once_. The first three are null if weights are read in place.
  T* packed_input_weights;  // W of one direction
  T* packed_recurrent;      // R of each direction and gate; the memory of W if layers_at_once_ is 1
  T* packed_projection;     // of each direction
  T* bias;                  // [G * H] of one direction, added to x W^T
  // Shared by the layers; null if the reserve space holds them.
  T* gates[2];        // [N, G * H]
  T* unprojected[2];  // [B, H], but one per layers_at_once_
  T* candidates[2];   // [B, H] GRU's R_n h' if R is read in place
  T* outputs[2];      // [N, D * P] of inner layers, alternating by layer
  T* dropped;         // [N, D * P] a layer's output after dropout; training only
};

template <typename T>
struct Engine<T>::ForwardLayer {
  int64_t index;
  const PackedSequences* sequences;
  const ForwardTensors<T>* tensors;
  // This layer's parts of the workspace.
  T* packed_input_weights;
  T* packed_recurrent;
  T* packed_projection;
  T* bias;
  const T* input;     // [N, LayerInputSize]
  T* output;          // [N, D * P]
  T* dropped;         // [N, D * P] `output` after dropout, or null
  T* gates[2];        // [N, G * H]
  T* units[2];        // [N, H] if keeps_units, otherwise the workspace's candidates
  T* unprojected[2];  // [N, H] if keeps_units, otherwise [B, H]
  bool keeps_units;
  DropoutPattern dropout;
};

template <typename T>
struct Engine<T>::BackwardWorkspace {
  // One of each per layers_at_once_.
  T* packed_recurrent;        // R of each direction, all gates as one operand [G * H, P]
  T* packed_projection;       // the projection of each direction, as an operand [P, H]
  T* packed_input_weights;    // W, as an operand [G * H, I]; null if layers_at_once_ is 1
  T* gate_gradients[2];       // [N, G * H]; null if they overwrite the reserve space's gates
  T* candidate_gradients[2];  // [N, H], GRU only; likewise
  T* projected_gradients[2];  // [N, P] of h, with a projection only
  // Shared by all layers.
  T* packed;               // one operand of a large product; the memory of packed_recurrent
  T* output_gradients[2];  // [N, D * P] of inner layers, alternating by layer
  T* dropped;              // [N, D * P] a layer's input after dropout
};

template <typename T>
struct Engine<T>::BackwardLayer {
  int64_t index;
  const PackedSequences* sequences;
  const BackwardTensors<T>* tensors;
  const BackwardWorkspace* workspace;
  ReserveSpace reserve;
  // This layer's parts of the workspace.
  T* packed_recurrent;
  T* packed_projection;
  T* packed_input_weights;  // or the shared `packed`
  T* projected_gradients[2];
  T* gate_gradients[2];       // [N, G * H], in the workspace or over the reserve space's gates
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
