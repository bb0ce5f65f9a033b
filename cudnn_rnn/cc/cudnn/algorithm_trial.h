// Finds out by trying: how fast an algorithm runs a model, and whether it runs it at all.
//
// Unlike everything else here, a trial waits for the device and takes scratch memory of the size of
// a whole training step.
#ifndef CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_
#define CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_

#include "cudnn_rnn/cc/core/device_memory.h"
#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

namespace cudnn_rnn {

// What to try, and where.
struct Trial {
  GpuRuntime* runtime;
  void* stream;
  DeviceAllocator* allocator;
  RnnConfig config;
  SequenceShape shape;
  CudnnPlan::Choices choices;  // its algorithm is the trial's to choose
};

// Milliseconds of one call, forward and, in training, backward. Fails where the algorithm cannot
// run the model, or where there is not enough memory to try.
Status TimeAlgorithm(const Trial& trial, Algorithm algorithm, float* milliseconds);

// The fastest; kStandard where no other can be tried.
Status ChooseAlgorithm(const Trial& trial, Algorithm* algorithm);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_
