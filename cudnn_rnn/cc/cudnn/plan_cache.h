// The plans of one op kernel on a GPU, and what lives as long as the kernel: its dropout state.
#ifndef CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_
#define CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_

#include <memory>
#include <string>

#include "cudnn_rnn/cc/core/device_memory.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/gpu_libraries.h"

namespace cudnn_rnn {

enum class Algorithm {
  kAuto,
  kStandard,
  kPersistStatic,
  kPersistStaticSmallH,
  kPersistDynamic,
};

constexpr char kAlgorithmVariable[] = "CUDNN_RNN_ALGO";

// auto, standard, persist_static, persist_static_small_h or persist_dynamic; empty is auto.
Status ParseAlgorithm(const std::string& text, Algorithm* algorithm);
const char* Name(Algorithm algorithm);

struct CudnnOptions {
  Algorithm algorithm = Algorithm::kAuto;
  // Repeats results bit for bit: kAuto is then kStandard, and nothing is chosen by time.
  bool deterministic = false;
  // Lets float be computed with TF32's 10-bit mantissa.
  bool allow_tf32 = false;
};

class CudnnPlanCache {
 public:
  // `libraries` must outlive the cache.
  explicit CudnnPlanCache(const GpuLibraries* libraries);
  ~CudnnPlanCache();

  // Finds or makes the plan for this model, this shape and these lengths on the stream's device. A
  // Backward asks with the options of its Forward, `is_training` included, and gets a plan of the
  // same algorithm, also from another cache. Plans made here share one dropout state, which starts
  // from the config's seeds and, like the plans' scratch memory, comes from `allocator`.
  // Any thread may call; two calls on one plan queue their work one after the other.
  Status Find(const RnnConfig& config, const SequenceShape& shape, const CallOptions& call,
              const CudnnOptions& options, const Execution& execution, DeviceAllocator* allocator,
              std::shared_ptr<const RnnPlan>* plan);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_PLAN_CACHE_H_
