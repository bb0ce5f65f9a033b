// Trial runs that show whether an algorithm supports a model, and how fast it is.
//
// Unlike an ordinary call, a trial waits for the device. It also allocates all buffers of a call:
// in training, those of a forward and a backward pass.
#ifndef CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_
#define CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_

#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"
#include "cudnn_rnn/cc/cudnn/device_memory.h"

namespace cudnn_rnn {

// The model to try, and the stream and allocator to try it with.
struct Trial {
  GpuRuntime* runtime;
  void* stream;
  DeviceAllocator* allocator;
  RnnConfig config;
  SequenceShape shape;
  CudnnPlan::Choices choices;  // the trial sets `algorithm`
};

// Measures the milliseconds of one call: forward and, in training, backward. Fails if the algorithm
// does not support the model or if there is too little memory for a trial.
Status TimeAlgorithm(const Trial& trial, Algorithm algorithm, float* milliseconds);

// Chooses the fastest algorithm, or kStandard if no other can be tried.
Status ChooseAlgorithm(const Trial& trial, Algorithm* algorithm);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_
