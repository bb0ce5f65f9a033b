// The engine's memory: what the reserve space and the workspaces contain, and their sizes.
//
// Each constructor takes its buffers from an arena. Without memory, the arena only adds up their
// sizes, so sizes and places are computed by the same code.
//
// N: packed rows (T * B are allocated); B: sequences; H: units; P: width of h; G: gates; D:
// directions. Arrays of two elements are indexed by direction, unless noted otherwise.
#ifndef CUDNN_RNN_CC_CPU_WORKSPACE_H_
#define CUDNN_RNN_CC_CPU_WORKSPACE_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/arena.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"

namespace cudnn_rnn {

// Parts of equal size of one buffer; null if there is no such buffer.
template <typename T>
struct Parts {
  T* data = nullptr;
  int64_t size = 0;
  T* operator[](int64_t index) const { return data == nullptr ? nullptr : data + index * size; }
};

// Matrices of equal size; null if there is no such buffer.
struct RoundedParts {
  Parts<uint16_t> parts;
  int64_t row_stride = 0;
  int64_t plane_stride = 0;
  RoundedMatrix operator[](int64_t index) const { return {parts[index], row_stride, plane_stride}; }
};

// A buffer of the reserve space: T * B rows of `width` elements, `row_stride` apart.
template <typename T>
struct KeptMatrix {
  T* data;
  int64_t width;
  int64_t row_stride;
  int64_t end_gap;  // elements between the last row and the next buffer
};

// The part of the reserve space that belongs to one layer.
template <typename T>
struct ReserveSpace {
  ReserveSpace() = default;
  ReserveSpace(const EngineModel<T>& model, int64_t layer, Arena* arena);

  // Returns all buffers below. They and their gaps are the whole memory of the layer.
  std::vector<KeptMatrix<T>> Matrices(const EngineModel<T>& model) const;

  T* gates[2] = {};               // [N, G * H] activations; null for simple RNNs
  T* cell_states[2] = {};         // [N, H] LSTM: c
  T* candidate_products[2] = {};  // [N, H] GRU: R_n h' + bias
  T* unprojected[2] = {};         // [N, H] o * tanh(c); null without a projection
  T* output = nullptr;            // [N, D * P]; null for the last layer
};

template <typename T>
CheckedSize ReserveSpaceBytes(const EngineModel<T>& model);
// Returns a layer's part of `reserve_space`.
template <typename T>
ReserveSpace<T> ReserveSpaceOf(const EngineModel<T>& model, int64_t layer, void* reserve_space);

template <typename T>
struct ForwardWorkspace {
  ForwardWorkspace(const EngineModel<T>& model, Pass pass, Arena* arena);

  // For each concurrent layer and direction. Panels are null unless weights are packed as a whole.
  Parts<T> input_weight_panels;  // W
  Parts<T> bias;                 // [G * H] added to x W^T
  Parts<T> recurrent_panels;
  Parts<T> projection_panels;  // null without a projection
  Parts<T> unprojected;        // [B, H]; null without a projection or if the reserve space holds it
  // For each concurrent layer and direction; null unless the kernels round.
  RoundedParts rounded_outputs;      // [2, B, P] h of even and of odd steps
  RoundedParts rounded_unprojected;  // [B, H] of one step, with a projection only
  RoundedParts rounded_input;        // one [N, I], with AMX: x
  // Shared by the layers; null if the reserve space holds them.
  T* gates[2] = {};               // [steps_per_block * B, G * H]; null for products in steps
  T* candidate_products[2] = {};  // [B, H] GRU's R_n h', only for a single step
  T* outputs[2] = {};             // [N, D * P] of inner layers, alternating by layer
  T* dropped = nullptr;           // [N, D * P] a layer's output after dropout; training only
};

// The panels of one layer's weights, by direction; null if there are none.
template <typename T>
struct LayerPanels {
  T* input_weights[2] = {};  // W; for decode steps, the panels of each gate
  T* recurrent[2] = {};
  T* projection[2] = {};
};

// The panels of all layers for inference, which the caller may keep between calls.
template <typename T>
struct PackedWeights {
  PackedWeights(const EngineModel<T>& model, Pass, Arena* arena);

  std::vector<LayerPanels<T>> layers;
};

template <typename T>
struct BackwardWorkspace {
  BackwardWorkspace(const EngineModel<T>& model, Pass pass, Arena* arena);

  // For each concurrent layer.
  Parts<T> input_weight_panels;  // W, as an operand [G * H, I]; `operand` if not concurrent
  // For each concurrent layer and direction.
  Parts<T> recurrent_panels;     // R, all gates as one operand [G * H, P]
  Parts<T> projection_panels;    // the projection, as an operand [P, H]
  Parts<T> gate_gradients;       // [N, G * H]; null if they overwrite the reserve space's gates
  Parts<T> candidate_gradients;  // [N, H], GRU only; likewise
  Parts<T> projected_gradients;  // [N, P] of h, with a projection only
  // Likewise; null unless the kernels round.
  RoundedParts rounded_gate_gradients;       // [2, B, G * H] of R h', of even and of odd steps
  RoundedParts rounded_projected_gradients;  // [B, P] of one step, with a projection only
  // Shared by all layers.
  T* operand = nullptr;         // panels of a large product; the memory of recurrent_panels
  T* output_gradients[2] = {};  // [N, D * P] of inner layers, alternating by layer
  T* dropped = nullptr;         // [N, D * P] a layer's input after dropout
};

// Returns the bytes of a workspace.
template <typename Workspace, typename T>
CheckedSize WorkspaceBytes(const EngineModel<T>& model, Pass pass) {
  Arena arena(nullptr);
  Workspace(model, pass, &arena);
  return arena.used();
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_WORKSPACE_H_
