// The backend of CPU kernels: plans of cc/cpu on threads of TensorFlow's pool.
#ifndef CUDNN_RNN_CC_TF_CPU_BACKEND_H_
#define CUDNN_RNN_CC_TF_CPU_BACKEND_H_

#include <memory>

#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/tf/device_backend.h"

namespace cudnn_rnn {

Status CreateCpuBackend(std::unique_ptr<DeviceBackend>* backend);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_CPU_BACKEND_H_
