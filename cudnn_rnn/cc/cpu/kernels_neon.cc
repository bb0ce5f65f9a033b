// Micro-kernels for 64-bit ARM processors, all of which have NEON.

#include "cudnn_rnn/cc/cpu/kernel_file.h"

#if defined(__aarch64__)
namespace cudnn_rnn {
namespace {

#include "cudnn_rnn/cc/cpu/vectors_neon.inc"

// Requires the definitions above.
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace

template <typename T>
const Kernels<T>* NeonKernels() {
  static const Kernels<T> kernels = MakeKernels<T>("neon");
  return &kernels;
}
template const Kernels<float>* NeonKernels();
template const Kernels<double>* NeonKernels();

}  // namespace cudnn_rnn
#endif
