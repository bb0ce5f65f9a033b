// Converts buffers of the core to those of the engine's C interface.
#ifndef CUDNN_RNN_TESTS_CUDNN_ENGINE_BUFFERS_H_
#define CUDNN_RNN_TESTS_CUDNN_ENGINE_BUFFERS_H_

#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/engine/engine.h"

namespace cudnn_rnn {

inline cudnn_rnn_forward_buffers ToC(const ForwardBuffers& buffers) {
  cudnn_rnn_forward_buffers converted = {};
  converted.input = buffers.input;
  converted.input_h = buffers.input_h;
  converted.input_c = buffers.input_c;
  converted.params = buffers.params;
  converted.output = buffers.output;
  converted.output_h = buffers.output_h;
  converted.output_c = buffers.output_c;
  converted.reserve_space = buffers.reserve_space;
  converted.packed_weights = buffers.packed_weights;
  converted.packed_weights_are_ready = buffers.packed_weights_are_ready;
  converted.workspace = buffers.workspace;
  return converted;
}

inline cudnn_rnn_backward_buffers ToC(const BackwardBuffers& buffers) {
  cudnn_rnn_backward_buffers converted = {};
  converted.input = buffers.input;
  converted.input_h = buffers.input_h;
  converted.input_c = buffers.input_c;
  converted.params = buffers.params;
  converted.output = buffers.output;
  converted.output_h = buffers.output_h;
  converted.output_backprop = buffers.output_backprop;
  converted.output_h_backprop = buffers.output_h_backprop;
  converted.output_c_backprop = buffers.output_c_backprop;
  converted.reserve_space = buffers.reserve_space;
  converted.reserve_space_bytes = buffers.reserve_space_bytes;
  converted.input_backprop = buffers.input_backprop;
  converted.input_h_backprop = buffers.input_h_backprop;
  converted.input_c_backprop = buffers.input_c_backprop;
  converted.params_backprop = buffers.params_backprop;
  converted.workspace = buffers.workspace;
  return converted;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_ENGINE_BUFFERS_H_
