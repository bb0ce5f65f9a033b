// Gives TensorFlow the kernels of all ops for one device.
#ifndef CUDNN_RNN_CC_TF_REGISTRATION_H_
#define CUDNN_RNN_CC_TF_REGISTRATION_H_

#include <string>

#include "cudnn_rnn/cc/tf/device_backend.h"

namespace cudnn_rnn {

// Nodes whose attribute `_kernel` says so get a kernel of this project wherever they run, also
// where TensorFlow has one of its own for nodes without a label.
constexpr char kKernelLabel[] = "cudnn_rnn";

struct KernelTarget {
  std::string device_type;  // "CPU" or "GPU"
  std::string label;        // empty: of nodes without a label
  // Of two kernels that fit a node TensorFlow 2 takes the one with the larger number; TensorFlow 1
  // has no such rule and must not see two.
  int priority = 0;
};

// Once for each target in a process.
void RegisterKernels(const KernelTarget& target, const BackendFactory& create_backend);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_REGISTRATION_H_
