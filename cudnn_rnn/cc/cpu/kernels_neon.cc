// Micro-kernels for 64-bit ARM processors, all of which have NEON.

#include <cstddef>
#include <utility>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace cudnn_rnn {

#if defined(__aarch64__)
namespace {

#include "cudnn_rnn/cc/cpu/vectors_neon.inc"

// Requires the definitions above.
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace
#endif

template <typename T>
const Kernels<T>* NeonKernels() {
#if defined(__aarch64__)
  static const Kernels<T> kernels = MakeKernels<T>("neon");
  return &kernels;
#else
  return nullptr;
#endif
}
template const Kernels<float>* NeonKernels();
template const Kernels<double>* NeonKernels();

}  // namespace cudnn_rnn
