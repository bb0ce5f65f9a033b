// Registers the CPU kernels when the library is loaded: TensorFlow has none of its own.

#include "cudnn_rnn/cc/tf/cpu_backend.h"
#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

[[maybe_unused]] const bool kRegistered = [] {
  RegisterKernels({"CPU", "", 0}, CreateCpuBackend);
  RegisterKernels({"CPU", kKernelLabel, 0}, CreateCpuBackend);
  return true;
}();

}  // namespace
}  // namespace cudnn_rnn
