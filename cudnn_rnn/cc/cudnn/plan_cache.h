// Cache of the GPU plans of one op kernel, and of their dropout state.
#ifndef CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_
#define CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/algorithm.h"
#include "cudnn_rnn/cc/cudnn/algorithm_trial.h"
#include "cudnn_rnn/cc/cudnn/device_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"

namespace cudnn_rnn {

class CudnnPlanCache {
 public:
  // `runtime` must outlive the cache.
  explicit CudnnPlanCache(GpuRuntime* runtime) : runtime_(runtime) {}
  CudnnPlanCache(const CudnnPlanCache&) = delete;
  CudnnPlanCache& operator=(const CudnnPlanCache&) = delete;

  struct Found {
    std::shared_ptr<const RnnPlan> plan;
    Algorithm algorithm = Algorithm::kAuto;
  };

  // Finds or creates the plan for this model, shape and lengths on the stream's device. For a
  // Backward, `call` must hold the options of its Forward, including `is_training`; its plan then
  // has the same algorithm, even if another cache created the Forward's plan. The Forward plans of
  // a cache share one dropout state, which starts from the config's seeds. The dropout state and
  // the scratch memory of trials come from `allocator`. Thread-safe; two calls on one plan queue
  // their work one after the other.
  Status Find(const RnnConfig& config, const SequenceShape& shape, const CallOptions& call,
              const CudnnOptions& options, const Execution& execution, DeviceAllocator* allocator,
              Found* found);

 private:
  using Key = std::vector<int64_t>;
  struct Entry {
    Found found;
    int64_t last_use;
  };

  Status CreatePlan(Trial trial, void* context, const CudnnOptions& options, bool draws_dropout,
                    Found* found);
  Status ResolveAlgorithm(const Trial& trial, void* context, const CudnnOptions& options,
                          Algorithm* algorithm);
  Status FindDropoutState(const GpuQueue& queue, const Trial& trial,
                          std::shared_ptr<DropoutState>* state);
  void EvictLeastRecentlyUsed();

  GpuRuntime* const runtime_;
  std::mutex mutex_;
  std::map<Key, Entry> plans_;
  int64_t num_uses_ = 0;
  std::map<Key, std::shared_ptr<DropoutState>> dropout_states_;  // by context, rate and seeds
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_
