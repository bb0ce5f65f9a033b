// The inner loops for any processor: 16-byte vectors, which the compiler emulates where there are
// none.

#include "cudnn_rnn/cc/cpu/activations.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kTileRows = 4;
#include "cudnn_rnn/cc/cpu/kernels.inc"

}  // namespace

const Kernels<float>* PortableKernels(float) {
  static const Kernels<float> kernels = MakeKernels<float>("portable");
  return &kernels;
}

const Kernels<double>* PortableKernels(double) {
  static const Kernels<double> kernels = MakeKernels<double>("portable");
  return &kernels;
}

}  // namespace cudnn_rnn
