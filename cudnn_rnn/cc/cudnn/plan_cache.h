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
  // Backward, `call` must hold the options of its Forward, including `is_training`, and say that it
  // is a Backward. With `call.forward_choice`, its plan computes like the Forward's, whatever
  // `options` says; without it, `options` must be the Forward's, too. The plans of a cache share
  // one dropout state, which starts from the config's seeds; Forward advances it. The dropout state
  // and the scratch memory of trials come from `allocator`. Thread-safe; calls on plans that differ
  // only in the number of steps queue their work one after the other.
  Status Find(const RnnConfig& config, const SequenceShape& shape, const CallOptions& call,
              const CudnnOptions& options, const Execution& execution, DeviceAllocator* allocator,
              Found* found);

 private:
  using Key = std::vector<int64_t>;
  struct Entry {
    Found found;
    int64_t last_use;
  };

  struct Request {
    Trial trial;
    CudnnOptions options;
    void* context;
    bool repeats_forward;  // is a gradient's; `options` repeats its forward call's choice
    Key model_key;         // everything that the plan depends on besides algorithm and steps
  };

  Status CreatePlan(Request request, Found* found);
  Status CreatePlanWithModel(const GpuQueue& queue, const Request& request,
                             std::shared_ptr<DropoutState> dropout,
                             std::shared_ptr<CudnnPlan>* plan);
  // Sets the trial's algorithm and, if the options leave the choice to trials, its device.
  Status ResolveAlgorithm(const CudnnOptions& options, Trial* trial);
  Status FindDropoutState(const GpuQueue& queue, const Trial& trial,
                          std::shared_ptr<DropoutState>* state);
  void EvictLeastRecentlyUsed();

  GpuRuntime* const runtime_;
  std::mutex mutex_;
  std::map<Key, Entry> plans_;
  std::map<Key, std::weak_ptr<ModelDescriptor>> models_;
  int64_t num_uses_ = 0;
  std::map<Key, std::shared_ptr<DropoutState>> dropout_states_;  // by context, rate and seeds
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_
