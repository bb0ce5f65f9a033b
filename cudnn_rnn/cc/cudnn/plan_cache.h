// The plans of one op kernel on a GPU, and what lives as long as the kernel: its dropout state.
#ifndef CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_
#define CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_

#include <memory>

#include "cudnn_rnn/cc/core/device_memory.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/algorithm.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"

namespace cudnn_rnn {

class CudnnPlanCache {
 public:
  // `runtime` must outlive the cache.
  explicit CudnnPlanCache(GpuRuntime* runtime);
  ~CudnnPlanCache();

  struct Found {
    std::shared_ptr<const RnnPlan> plan;
    Algorithm algorithm = Algorithm::kAuto;
  };

  // Finds or makes the plan for this model, this shape and these lengths on the stream's device. A
  // Backward asks with the options of its Forward, `is_training` included, and gets a plan of the
  // same algorithm, also from another cache. Plans made here share one dropout state, which starts
  // from the config's seeds and, like the scratch memory of trials, comes from `allocator`.
  // Any thread may call; two calls on one plan queue their work one after the other.
  Status Find(const RnnConfig& config, const SequenceShape& shape, const CallOptions& call,
              const CudnnOptions& options, const Execution& execution, DeviceAllocator* allocator,
              Found* found);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_
