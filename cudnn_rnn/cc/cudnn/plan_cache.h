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
  // `runtime` must outlive the cache. `create_host_plan` creates a plan that computes in float on
  // the host. A check compares cuDNN's results with the results of that plan (bfloat16_check.h).
  CudnnPlanCache(GpuRuntime* runtime, PlanFactory create_host_plan)
      : runtime_(runtime), create_host_plan_(create_host_plan) {}
  CudnnPlanCache(const CudnnPlanCache&) = delete;
  CudnnPlanCache& operator=(const CudnnPlanCache&) = delete;

  struct Found {
    std::shared_ptr<const RnnPlan> plan;
    Algorithm algorithm = Algorithm::kAuto;
  };

  // Finds or creates the plan for this model, shape and lengths on the stream's device.
  //
  // A Backward must find a plan that computes like the plan of its Forward. `call` therefore has
  // the CallOptions of the Forward, including `is_training`. If `call.forward_choice` is set, the
  // plan repeats that choice and ignores `options`; if not, `options` must be those of the Forward.
  //
  // Dropout: the plans of a cache share one dropout state. The state starts from the config's
  // seeds, and each Forward advances it.
  //
  // Memory: the execution's allocator provides the dropout state and the scratch memory of trials.
  //
  // Threads: any thread may call this function. Two calls queue their work one after the other if
  // they use one stream, or plans that differ only in the number of steps.
  Status Find(const RnnConfig& config, const SequenceShape& shape, const CallOptions& call,
              const CudnnOptions& options, const Execution& execution, Found* found);

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
  // Holds the stream's handle only while it runs: what CreatePlan does in between may wait.
  Status CreatePlanWithModel(const Request& request, std::shared_ptr<DropoutState> dropout,
                             std::shared_ptr<CudnnPlan>* plan);
  // Sets the trial's algorithm and, if the options leave the choice to trials, its device.
  Status ResolveAlgorithm(const CudnnOptions& options, Trial* trial);
  Status FindDropoutState(const Trial& trial, void* context, std::shared_ptr<DropoutState>* state);
  void EvictLeastRecentlyUsed();

  GpuRuntime* const runtime_;
  const PlanFactory create_host_plan_;
  std::mutex mutex_;
  std::map<Key, Entry> plans_;
  std::map<Key, std::weak_ptr<ModelDescriptor>> models_;
  int64_t num_uses_ = 0;
  std::map<Key, std::shared_ptr<DropoutState>> dropout_states_;  // by context, rate and seeds
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_
