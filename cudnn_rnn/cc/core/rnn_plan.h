// How to compute one model on one shape of data; implemented once for each kind of device.
//
// Shapes (row-major), with T steps, batch B, D directions, L layers, H = num_units:
//   input [T, B, input_size], output [T, B, D * H] (forward direction first),
//   states [L * D, B, H] (index layer * D + direction), params [ParamLayout::size()].
// Buffers of a gradient have the shape of what they are the gradient of. Pointers are to elements
// of RnnConfig::data_type; a pointer to an empty buffer may be null. The caller owns all memory,
// workspace included; outputs do not overlap inputs. The cell state pointers (*_c) are read and
// written for LSTM only.
#ifndef CUDNN_RNN_CC_CORE_RNN_PLAN_H_
#define CUDNN_RNN_CC_CORE_RNN_PLAN_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

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
  // As Forward left it; not modified, so several Backward calls on one Forward agree.
  const void* reserve_space = nullptr;
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

  virtual int64_t ReserveSpaceBytes() const = 0;
  virtual int64_t ForwardWorkspaceBytes(bool is_training) const = 0;
  virtual int64_t BackwardWorkspaceBytes() const = 0;

  // `dropout_call` numbers the calls that must not share a dropout pattern; the pattern is a
  // function of it and the config's seeds. Without training it is not used.
  virtual Status Forward(const ForwardBuffers& buffers, bool is_training, int64_t dropout_call,
                         ParallelRunner* runner) const = 0;

  // Fails where the reserve space is not that of a training Forward of this plan with this output.
  virtual Status Backward(const BackwardBuffers& buffers, ParallelRunner* runner) const = 0;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_RNN_PLAN_H_
