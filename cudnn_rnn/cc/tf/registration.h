// Registers kernels with TensorFlow.
#ifndef CUDNN_RNN_CC_TF_REGISTRATION_H_
#define CUDNN_RNN_CC_TF_REGISTRATION_H_

#include <functional>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/tf/engine_device.h"

namespace cudnn_rnn {

// A node whose attribute `_kernel` has this value gets a kernel of this project on any device, even
// if TensorFlow has its own kernel for nodes without a label.
constexpr char kKernelLabel[] = "cudnn_rnn";

struct KernelTarget {
  std::string device_type;  // "CPU" or "GPU"
  std::string label;        // empty: for nodes without a label
  // If two kernels match a node, TensorFlow 2 takes the one with the higher priority. TensorFlow 1
  // has no such rule: at most one kernel may match there.
  int priority = 0;
};

// A kernel of an op. `host_arguments` are the inputs and outputs that are in host memory on every
// device.
struct OpKernelEntry {
  const char* op_name;
  std::vector<const char*> host_arguments;
  std::function<::tensorflow::OpKernel*(::tensorflow::OpKernelConstruction*)> create;
};

void RegisterKernel(const OpKernelEntry& entry, ::tensorflow::DataType type,
                    const KernelTarget& target);

// Registers the kernels of all ops, or of the ops named in `op_names`. Must be called at most once
// per target in a process.
void RegisterKernels(const KernelTarget& target, const DeviceFactory& create_device);
void RegisterKernels(const KernelTarget& target, const DeviceFactory& create_device,
                     const std::vector<std::string>& op_names);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_REGISTRATION_H_
