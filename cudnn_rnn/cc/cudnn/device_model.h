// The model of a GPU: what decides which algorithms work on it and which is the fastest.
#ifndef CUDNN_RNN_CC_CUDNN_DEVICE_MODEL_H_
#define CUDNN_RNN_CC_CUDNN_DEVICE_MODEL_H_

#include <cstdint>
#include <string>

#include "cudnn_rnn/cc/cudnn/gpu_queue.h"

namespace cudnn_rnn {

struct DeviceModel {
  std::string name;
  int compute_capability_major = 0;
  int compute_capability_minor = 0;
  int num_multiprocessors = 0;  // of a part of a GPU (MIG), only that part's
  int64_t memory_bytes = 0;
};

// Reads the model of the queue's device.
Status ReadDeviceModel(const GpuQueue& queue, DeviceModel* device);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_DEVICE_MODEL_H_
