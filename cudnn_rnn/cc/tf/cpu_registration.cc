// Registers the CPU kernels when the library is loaded: TensorFlow has none of its own.

#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

[[maybe_unused]] const bool kRegistered = [] {
  RegisterKernels({"CPU", "", 0}, EngineDevice::CreateCpu);
  RegisterKernels({"CPU", kKernelLabel, 0}, EngineDevice::CreateCpu);
  return true;
}();

}  // namespace
}  // namespace cudnn_rnn
