// The parts of a cuDNN plan's workspace. A part that a call does not need is null.
#ifndef CUDNN_RNN_CC_CUDNN_CUDNN_PLAN_WORKSPACE_H_
#define CUDNN_RNN_CC_CUDNN_CUDNN_PLAN_WORKSPACE_H_

#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

namespace cudnn_rnn {

struct CudnnPlan::Workspace {
  void* cudnn;
  void* weights;  // cuDNN's weight space, if the parameter buffer is not already in its layout
  void* weight_gradients;
  int32_t* device_lengths;  // [B]
  void* reserve_space;      // a copy, if the caller's must be kept
  // Copies in which rows of length 0 are zero in the first step.
  void* input;
  void* output_backprop;
  // States in cuDNN's order [L * D, B, *]. In the backward pass, final_* are gradients.
  void* initial_h;
  void* initial_c;
  void* final_h;
  void* final_c;
  void* initial_h_backprop;
  void* initial_c_backprop;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_CUDNN_PLAN_WORKSPACE_H_
