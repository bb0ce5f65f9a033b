// Conversion between bfloat16 and float on a GPU, for a cuDNN whose RNNs do not support bfloat16.
//
// The two kernels are PTX, which the driver compiles for the GPU in use.
#ifndef CUDNN_RNN_CC_CUDNN_BFLOAT16_KERNELS_H_
#define CUDNN_RNN_CC_CUDNN_BFLOAT16_KERNELS_H_

#include <map>
#include <mutex>

#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/gpu_libraries.h"

namespace cudnn_rnn {

class GpuQueue;

extern const char kBfloat16Ptx[];

// Loads the kernels into each CUDA context on first use.
class Bfloat16Kernels {
 public:
  explicit Bfloat16Kernels(const GpuLibraries* libraries) : libraries_(libraries) {}
  ~Bfloat16Kernels();

  // Converts `count` elements. `source` and `target` must not overlap.
  Status ToFloat(const GpuQueue& queue, const void* source, int64_t count, void* target);
  // The same in the other direction; rounds to nearest, ties to even. NaN stays NaN.
  Status FromFloat(const GpuQueue& queue, const void* source, int64_t count, void* target);

 private:
  struct Loaded {
    void* module = nullptr;
    void* to_float = nullptr;
    void* from_float = nullptr;
  };
  Status Load(const GpuQueue& queue, Loaded* loaded);

  const GpuLibraries* const libraries_;
  std::mutex mutex_;
  std::map<void*, Loaded> loaded_;  // by CUDA context
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_BFLOAT16_KERNELS_H_
