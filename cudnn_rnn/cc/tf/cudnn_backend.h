// The backend of cuDNN kernels: plans of cc/cudnn on TensorFlow's stream and memory. Python decides
// whether these kernels or TensorFlow's own run on a GPU (tf/gpu_registration.h).
#ifndef CUDNN_RNN_CC_TF_CUDNN_BACKEND_H_
#define CUDNN_RNN_CC_TF_CUDNN_BACKEND_H_

#include <memory>

#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"
#include "cudnn_rnn/cc/tf/device_backend.h"

namespace cudnn_rnn {

// Returns the CUstream on which a kernel queues its work: StreamOf, except in tests without a GPU.
using StreamFunction = void* (*)(::tensorflow::OpKernelContext*);

// `runtime` must outlive the backend.
Status CreateCudnnBackend(GpuRuntime* runtime, StreamFunction stream_of,
                          std::unique_ptr<DeviceBackend>* backend);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_CUDNN_BACKEND_H_
