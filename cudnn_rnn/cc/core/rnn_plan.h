// How to compute one model on one shape of data; implemented once for each kind of device.
//
// Shapes (row-major), with T steps, batch B, D directions, L layers, H = num_units and P =
// num_proj if there is a projection, else H:
//   input [T, B, input_size], output [T, B, D * P] (forward direction first),
//   input_h, output_h [L * D, B, P], input_c, output_c [L * D, B, H] (index layer * D + direction),
//   params [ParamLayout::size()].
// Batch-major: input [B, T, input_size], output [B, T, D * P], states [B, L * D, P or H].
// Buffers of a gradient have the shape of what they are the gradient of. Pointers are to elements
// of RnnConfig::data_type in the memory of the plan's device; a pointer to an empty buffer may be
// null. The caller owns all memory, workspace included; outputs do not overlap inputs. The cell
// state pointers (*_c) are read and written for LSTM only.
//
// A sequence shorter than T: its steps from its length on are not read (whatever they hold, NaN
// too), are 0 in the output and in input_backprop, and their output_backprop is not read. Its
// final states are those of its last step; the backward direction starts there. With length 0 the
// initial states pass through, and so do their gradients.
#ifndef CUDNN_RNN_CC_CORE_RNN_PLAN_H_
#define CUDNN_RNN_CC_CORE_RNN_PLAN_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

struct SequenceShape {
  int64_t num_steps = 0;   // T
  int64_t batch_size = 0;  // B
  bool time_major = true;
};

// Copies the lengths [B] from memory that another thread may write at the same time, then checks
// the copy. `source` may be null: all lengths are T, and the copy is empty.
Status CopySequenceLengths(const int32_t* source, const SequenceShape& shape,
                           std::vector<int32_t>* lengths);

// Fails unless there are B lengths, each in 0..T, or none: all are T.
Status CheckSequenceLengths(const std::vector<int32_t>& lengths, const SequenceShape& shape);

// Whether a sequence ends before step T.
bool HasPadding(const std::vector<int32_t>& lengths, const SequenceShape& shape);

// What a call chooses beside its buffers.
struct CallOptions {
  bool is_training = false;  // of Forward
  // Numbers the training calls that must not share a dropout pattern; the pattern is a function of
  // it and the config's seeds. A device whose generator has a state starts anew at call 0 and goes
  // on at any other.
  int64_t dropout_call = 0;
  // [B], or empty where all are T. A copy that belongs to the call: sizes, checks and fingerprints
  // must all see the same lengths, and a framework's tensor may change while the call runs.
  std::vector<int32_t> sequence_lengths;
  // Of Backward. If false it may overwrite the reserve space, which saves some plans a copy.
  bool keeps_reserve_space = true;
};

// Where the work of a call runs.
struct Execution {
  ParallelRunner* runner = nullptr;  // plans of the CPU
  void* stream = nullptr;            // plans of cuDNN: a CUstream, on which all work is queued
};

struct ForwardBuffers {
  const void* input = nullptr;
  const void* input_h = nullptr;
  const void* input_c = nullptr;
  const void* params = nullptr;
  void* output = nullptr;
  void* output_h = nullptr;
  void* output_c = nullptr;
  // Training only: ReserveSpaceBytes() bytes, aligned to 64, read by Backward.
  void* reserve_space = nullptr;
  // ForwardWorkspaceBytes() bytes, aligned to 64.
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
  // As Forward left it. See CallOptions::keeps_reserve_space.
  void* reserve_space = nullptr;
  int64_t reserve_space_bytes = 0;
  void* input_backprop = nullptr;
  void* input_h_backprop = nullptr;
  void* input_c_backprop = nullptr;
  void* params_backprop = nullptr;
  // BackwardWorkspaceBytes() bytes, aligned to 64.
  void* workspace = nullptr;
};

class RnnPlan {
 public:
  virtual ~RnnPlan() = default;

  // Independent of the lengths.
  virtual int64_t ReserveSpaceBytes() const = 0;
  virtual int64_t ForwardWorkspaceBytes(const CallOptions& options) const = 0;
  virtual int64_t BackwardWorkspaceBytes(const CallOptions& options) const = 0;

  virtual Status Forward(const ForwardBuffers& buffers, const CallOptions& options,
                         const Execution& execution) const = 0;

  // With the lengths of the Forward call. Fails where the reserve space is seen not to be that of a
  // training Forward of this plan with this output: always on a CPU; elsewhere only by its size.
  virtual Status Backward(const BackwardBuffers& buffers, const CallOptions& options,
                          const Execution& execution) const = 0;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_RNN_PLAN_H_
