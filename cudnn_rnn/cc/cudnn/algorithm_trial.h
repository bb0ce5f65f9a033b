// Trial runs that show whether an algorithm supports a model, and how fast it is.
//
// Unlike an ordinary call, a trial waits for the device: before it starts, so that errors of
// earlier work are not taken for its own, and before it ends, so that its errors reach no later
// call. It also allocates all buffers of a call, in training those of a forward and a backward
// pass, and frees them when it ends. If they would need more than 1/kTrialMemoryShare of the
// device's memory, the trial fails.
#ifndef CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_
#define CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_

#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"
#include "cudnn_rnn/cc/cudnn/device_memory.h"
#include "cudnn_rnn/cc/cudnn/device_model.h"

namespace cudnn_rnn {

constexpr int64_t kTrialMemoryShare = 8;

// The model to try, and the stream and allocator to try it with.
struct Trial {
  GpuRuntime* runtime;
  void* stream;
  DeviceAllocator* allocator;
  RnnConfig config;
  SequenceShape shape;
  CudnnPlan::Choices choices;  // the trial sets `algorithm`
  DeviceModel device;
};

// Chooses the fastest algorithm, forward and, in training, backward, or kStandard if no other can
// be tried. Fails only if kStandard does, or earlier work on the stream.
Status ChooseAlgorithm(const Trial& trial, Algorithm* algorithm);

// Keeps `algorithm`, which another number of steps has chosen, if it runs this one, too; otherwise
// sets it to kStandard. Fails only if earlier work on the stream did.
Status ConfirmAlgorithm(const Trial& trial, Algorithm* algorithm);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_ALGORITHM_TRIAL_H_
