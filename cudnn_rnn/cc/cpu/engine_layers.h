// What one layer's passes need at hand; shared by engine.cc and engine_backward.cc.
//
// T steps, B rows, H units, G gates, D directions; [d] is a direction's own.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_LAYERS_H_
#define CUDNN_RNN_CC_CPU_ENGINE_LAYERS_H_

#include "cudnn_rnn/cc/cpu/engine.h"

namespace cudnn_rnn {

constexpr int64_t kMaxGates = 4;
// Rows of the batch that one work item of a step computes, and at a time within it.
constexpr int64_t kStepRows = 32;
constexpr int64_t kTileRows = 8;

// Of one layer.
template <typename T>
struct Engine<T>::ReserveSpace {
  T* gates[2];  // [T, B, G * H] activations; null for simple RNNs
  T* units[2];  // [T, B, H] LSTM: c; GRU: R_n h' + bias; null for simple RNNs
  T* output;    // [T, B, D * H]; null for the last layer
};

template <typename T>
struct Engine<T>::ForwardWorkspace {
  T* packed_inputs;     // W of one direction
  T* packed_recurrent;  // R of each direction and gate
  T* gates[2];          // [T, B, G * H], where the reserve space has none
  T* units[2];          // [B, H] for GRU's recurrent candidate product, likewise
  T* outputs[2];        // [T, B, D * H] of inner layers in turn, likewise
  T* dropped;           // [T, B, D * H] a layer's input after dropout
};

template <typename T>
struct Engine<T>::ForwardLayer {
  int64_t index;
  const ForwardTensors<T>* tensors;
  const ForwardWorkspace* workspace;
  const T* input;  // [T, B, LayerInputSize]
  T* output;       // [T, B, D * H]
  T* gates[2];     // [T, B, G * H]
  T* units[2];     // [T, B, H] where keeps_units, else [B, H]
  bool keeps_units;
};

template <typename T>
struct Engine<T>::BackwardWorkspace {
  T* packed_recurrent;        // R^T of each direction and gate
  T* packed;                  // one operand of a large product
  T* gate_gradients[2];       // [T, B, G * H]
  T* candidate_gradients[2];  // [T, B, H], GRU only
  T* output_gradients[2];     // [T, B, D * H] of inner layers in turn
  T* dropped;                 // [T, B, D * H] a layer's input after dropout
};

template <typename T>
struct Engine<T>::BackwardLayer {
  int64_t index;
  const BackwardTensors<T>* tensors;
  const BackwardWorkspace* workspace;
  ReserveSpace reserve;      // read only
  const T* input;            // [T, B, LayerInputSize], after dropout
  const T* output;           // [T, B, D * H]
  const T* output_gradient;  // [T, B, D * H]
  T* input_gradient;         // [T, B, LayerInputSize]
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_LAYERS_H_
