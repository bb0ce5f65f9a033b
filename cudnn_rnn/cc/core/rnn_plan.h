// Interface that computes one model on one shape of data; implemented once per kind of device.
//
// Shapes (row-major), with T steps, batch B, D directions, L layers, H = num_units, and
// P = num_proj if there is a projection, otherwise H:
//   input [T, B, input_size], output [T, B, D * P] (forward direction first),
//   input_h, output_h [L * D, B, P], input_c, output_c [L * D, B, H] (index layer * D + direction),
//   params [ParamLayout::size()].
// Batch-major: input [B, T, input_size], output [B, T, D * P], states [B, L * D, P or H].
// Each gradient has the shape of the tensor that it belongs to. Pointers are to elements of
// RnnConfig::data_type in the memory of the plan's device; a pointer to an empty buffer may be
// null. The caller owns all memory, including the workspace; outputs must not overlap inputs. The
// cell state buffers (*_c) are read and written for LSTM only.
//
// If a sequence is shorter than T, the steps from its length on are padding: input and
// output_backprop are not read there (they may be NaN), and output and input_backprop are 0. The
// final states are those of the sequence's last step, where the backward direction starts. With
// length 0, the initial states and their gradients pass through.
#ifndef CUDNN_RNN_CC_CORE_RNN_PLAN_H_
#define CUDNN_RNN_CC_CORE_RNN_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

class DeviceAllocator;
struct RnnConfig;

struct SequenceShape {
  int64_t num_steps = 0;   // T
  int64_t batch_size = 0;  // B
  bool time_major = true;
};

// Copies the lengths [B], then checks the copy, since another thread may write to `source` at the
// same time. A null `source` means that all lengths are T; the copy is then empty.
Status CopySequenceLengths(const int32_t* source, const SequenceShape& shape,
                           std::vector<int32_t>* lengths);

// Fails unless `lengths` is empty (all lengths are T) or has B elements in 0..T.
Status CheckSequenceLengths(const std::vector<int32_t>& lengths, const SequenceShape& shape);

inline bool IsEmpty(const SequenceShape& shape) {
  return shape.num_steps == 0 || shape.batch_size == 0;
}

// Returns whether any sequence is shorter than T.
bool HasPadding(const std::vector<int32_t>& lengths, const SequenceShape& shape);

// How a plan computes, if the device offers a choice. A gradient must repeat the choice of its
// forward pass: the contents of the reserve space depend on it. CPU plans have no choice.
struct ForwardChoice {
  int32_t algorithm = 0;  // number of an Algorithm (cudnn/algorithm.h); 0: no choice, or not known
  bool allow_tf32 = false;
  bool uses_dropout = false;  // the forward pass has dropped elements between its layers
};

// The options of a call, besides its buffers.
struct CallOptions {
  bool is_training = false;  // of the forward pass
  // Differs between training calls that must not share a dropout pattern; the pattern is a function
  // of this number and the config's seeds. A device with a stateful generator resets it at call 0
  // and continues at any other call.
  int64_t dropout_call_index = 0;
  // [B], or empty if all are T. A copy owned by the call: a framework's tensor may change while the
  // call runs, but sizes, checks and fingerprints must all see the same lengths.
  std::vector<int32_t> sequence_lengths;
  // If false, Backward may overwrite the reserve space, which saves some plans a copy.
  bool keeps_reserve_space = true;
  // Of a Backward: RnnPlan::choice() of its Forward's plan, if the caller knows it.
  ForwardChoice forward_choice;
};

// Where a call's work runs.
struct Execution {
  ParallelRunner* runner = nullptr;  // CPU plans
  // cuDNN plans: the CUstream on which all work is queued, and memory for copies of buffers that
  // are not aligned as cuDNN requires.
  void* stream = nullptr;
  DeviceAllocator* allocator = nullptr;
};

// The memory in which a plan's inference calls find the weights in the form that they multiply.
struct PackedWeightsSpec {
  int64_t bytes = 0;  // 0: the plan has no use for it
  // Plans of the same layout, which identifies the model as well, share packed weights.
  std::vector<int64_t> layout;
};

struct ForwardBuffers {
  const void* input = nullptr;
  const void* input_h = nullptr;
  const void* input_c = nullptr;
  const void* params = nullptr;
  void* output = nullptr;
  void* output_h = nullptr;
  void* output_c = nullptr;
  // Training only: ReserveSpaceBytes() bytes, read by Backward; aligned to 64 on a CPU.
  void* reserve_space = nullptr;
  // Inference only, optional: PackedWeights().bytes bytes, aligned to 64. The call fills them, or
  // only reads them if a call with the same parameters has filled them. Results are the same bits
  // with and without.
  void* packed_weights = nullptr;
  bool packed_weights_are_ready = false;
  // ForwardWorkspaceBytes() bytes; aligned to 64 on a CPU.
  void* workspace = nullptr;
};

struct BackwardBuffers {
  const void* input = nullptr;
  const void* input_h = nullptr;
  const void* input_c = nullptr;
  const void* params = nullptr;
  const void* output = nullptr;
  const void* output_h = nullptr;
  const void* output_backprop = nullptr;
  const void* output_h_backprop = nullptr;
  const void* output_c_backprop = nullptr;
  // As written by Forward. See CallOptions::keeps_reserve_space.
  void* reserve_space = nullptr;
  int64_t reserve_space_bytes = 0;
  void* input_backprop = nullptr;
  void* input_h_backprop = nullptr;
  void* input_c_backprop = nullptr;
  void* params_backprop = nullptr;
  // BackwardWorkspaceBytes() bytes, aligned like the forward pass's.
  void* workspace = nullptr;
};

// Returns the buffers that the gradient of a forward pass shares with it; the others are null.
inline BackwardBuffers SharedWithForward(const ForwardBuffers& forward,
                                         int64_t reserve_space_bytes) {
  BackwardBuffers buffers;
  buffers.input = forward.input;
  buffers.input_h = forward.input_h;
  buffers.input_c = forward.input_c;
  buffers.params = forward.params;
  buffers.output = forward.output;
  buffers.output_h = forward.output_h;
  buffers.reserve_space = forward.reserve_space;
  buffers.reserve_space_bytes = reserve_space_bytes;
  return buffers;
}

class RnnPlan {
 public:
  virtual ~RnnPlan() = default;

  virtual ForwardChoice choice() const { return ForwardChoice(); }
  // Does not depend on the sequence lengths.
  virtual int64_t ReserveSpaceBytes() const = 0;
  virtual int64_t ForwardWorkspaceBytes(const CallOptions& options) const = 0;
  virtual int64_t BackwardWorkspaceBytes(const CallOptions& options) const = 0;
  // Of an inference call; training calls and calls without any step have none.
  virtual PackedWeightsSpec PackedWeights(const CallOptions&) const { return PackedWeightsSpec(); }

  virtual Status Forward(const ForwardBuffers& buffers, const CallOptions& options,
                         const Execution& execution) const = 0;

  // Needs the lengths of the Forward call. Fails unless the reserve space comes from a training
  // Forward of this plan with this output; only CPU plans check more than its size.
  virtual Status Backward(const BackwardBuffers& buffers, const CallOptions& options,
                          const Execution& execution) const = 0;
};

// Creates a plan.
using PlanFactory = Status (*)(const RnnConfig& config, const SequenceShape& shape,
                               std::unique_ptr<RnnPlan>* plan);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_RNN_PLAN_H_
