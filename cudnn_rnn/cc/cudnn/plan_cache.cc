#include "cudnn_rnn/cc/cudnn/plan_cache.h"

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "cudnn_rnn/cc/cudnn/algorithm_trial.h"
#include "cudnn_rnn/cc/cudnn/bfloat16_plan.h"
#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

namespace cudnn_rnn {
namespace {

// Programs with many sequence lengths need many plans; a plan takes some kilobytes of host memory.
constexpr size_t kMaxPlans = 256;

using Key = std::vector<int64_t>;

int64_t BitsOf(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Rounds the number of steps in a trial's key. The fastest algorithm hardly depends on it, and a
// program whose batches all differ in length should not run a trial for each.
int64_t RoundUpToPowerOfTwo(int64_t value) {
  int64_t power = 1;
  while (power < value && power < (int64_t{1} << 40)) power *= 2;
  return power;
}

// Returns everything that a trial's outcome depends on.
Key QuestionOf(const Trial& trial, void* context, const CudnnOptions& options) {
  const RnnConfig& config = trial.config;
  return {static_cast<int64_t>(reinterpret_cast<uintptr_t>(context)),
          static_cast<int64_t>(config.mode),
          config.skips_input_projection() ? 1 : 0,
          static_cast<int64_t>(config.direction),
          static_cast<int64_t>(config.data_type),
          config.num_layers,
          config.num_units,
          config.input_size,
          config.num_proj,
          DropsOut(config, trial.choices.is_training) ? 1 : 0,
          RoundUpToPowerOfTwo(trial.shape.num_steps),
          trial.shape.batch_size,
          trial.choices.is_training ? 1 : 0,
          options.allow_tf32 ? 1 : 0};
}

}  // namespace

class CudnnPlanCache::Impl {
 public:
  explicit Impl(GpuRuntime* runtime) : runtime_(runtime) {}

  Status Find(const RnnConfig& config, const SequenceShape& shape, const CallOptions& call,
              const CudnnOptions& options, const Execution& execution, DeviceAllocator* allocator,
              Found* found);

 private:
  struct Entry {
    Found found;
    int64_t last_use;
  };

  Status Make(Trial trial, void* context, const CudnnOptions& options, Found* found);
  Status IsBfloat16Native(const Trial& trial, void* context, bool* is_native);
  Status Resolve(const Trial& trial, void* context, const CudnnOptions& options,
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

Status CudnnPlanCache::Impl::Find(const RnnConfig& config, const SequenceShape& shape,
                                  const CallOptions& call, const CudnnOptions& options,
                                  const Execution& execution, DeviceAllocator* allocator,
                                  Found* found) {
  CUDNN_RNN_RETURN_IF_ERROR(CheckSequenceLengths(call.sequence_lengths, shape));
  void* context = nullptr;
  const GpuLibraries& libraries = *runtime_->libraries;
  CUDNN_RNN_RETURN_IF_ERROR(CheckDriver(libraries,
                                        libraries.cuStreamGetCtx(execution.stream, &context),
                                        "cuStreamGetCtx", "looking for the stream's device"));
  CudnnPlan::Choices choices;
  choices.is_training = call.is_training;
  choices.is_padded = !shape.time_major || HasPadding(call.sequence_lengths, shape);
  choices.allow_tf32 = options.allow_tf32;
  const Trial trial = {runtime_, execution.stream, allocator, config, shape, choices};
  Key key = QuestionOf(trial, context, options);
  const int64_t more[] = {shape.num_steps,
                          shape.time_major ? 1 : 0,
                          choices.is_padded ? 1 : 0,
                          static_cast<int64_t>(options.algorithm),
                          options.deterministic ? 1 : 0,
                          BitsOf(config.dropout),
                          config.seed,
                          config.seed2};
  key.insert(key.end(), std::begin(more), std::end(more));

  std::lock_guard<std::mutex> lock(mutex_);
  const auto known = plans_.find(key);
  if (known != plans_.end()) {
    known->second.last_use = ++num_uses_;
    *found = known->second.found;
    return Status();
  }
  CUDNN_RNN_RETURN_IF_ERROR(Make(trial, context, options, found));
  if (plans_.size() >= kMaxPlans) EvictLeastRecentlyUsed();
  plans_[key] = {*found, ++num_uses_};
  return Status();
}

void CudnnPlanCache::Impl::EvictLeastRecentlyUsed() {
  auto oldest = plans_.begin();
  for (auto entry = plans_.begin(); entry != plans_.end(); ++entry) {
    if (entry->second.last_use < oldest->second.last_use) oldest = entry;
  }
  plans_.erase(oldest);
}

Status CudnnPlanCache::Impl::Make(Trial trial, void* context, const CudnnOptions& options,
                                  Found* found) {
  const RnnConfig config = trial.config;
  CUDNN_RNN_RETURN_IF_ERROR(Validate(config));
  bool is_native = true;
  if (config.data_type == DataType::kBfloat16) {
    CUDNN_RNN_RETURN_IF_ERROR(IsBfloat16Native(trial, context, &is_native));
    if (!is_native) trial.config.data_type = DataType::kFloat;
  }
  CUDNN_RNN_RETURN_IF_ERROR(Resolve(trial, context, options, &trial.choices.algorithm));

  GpuQueue queue(runtime_, trial.stream, "preparing " + Describe(trial.config));
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  std::shared_ptr<DropoutState> dropout;
  CUDNN_RNN_RETURN_IF_ERROR(FindDropoutState(queue, trial, &dropout));
  std::shared_ptr<CudnnPlan> plan;
  const Status created =
      CudnnPlan::Create(queue, trial.config, trial.shape, trial.choices, std::move(dropout), &plan);
  if (!created.ok() && options.algorithm != Algorithm::kAuto) {
    return Status(
        created.code(),
        Concatenate(created.message(), " ", kAlgorithmVariable, "=", Name(options.algorithm),
                    " asks for this algorithm; unset it, and one that can run this model "
                    "is chosen."));
  }
  CUDNN_RNN_RETURN_IF_ERROR(created);
  found->algorithm = trial.choices.algorithm;
  found->plan = plan;
  if (is_native) return Status();
  return Bfloat16Plan::Create(runtime_, config, trial.shape, plan, &found->plan);
}

// Tries a small model with the same cell: cuDNN's kernels may reject what its descriptors accept.
Status CudnnPlanCache::Impl::IsBfloat16Native(const Trial& trial, void* context, bool* is_native) {
  Trial small = trial;
  small.config = RnnConfig();
  small.config.mode = trial.config.mode;
  small.config.data_type = DataType::kBfloat16;
  small.config.num_units = small.config.input_size = 16;
  small.shape = {2, 2, true};
  small.choices.is_padded = false;
  small.choices.is_training = true;
  int answer = 0;
  CUDNN_RNN_RETURN_IF_ERROR(runtime_->bfloat16_support.Answer(
      QuestionOf(small, context, CudnnOptions()),
      [&small](int* is_supported) {
        float milliseconds;
        const Status tried = TimeAlgorithm(small, Algorithm::kStandard, &milliseconds);
        if (tried.code() == StatusCode::kResourceExhausted) return tried;
        *is_supported = tried.ok() ? 1 : 0;
        return Status();
      },
      &answer));
  *is_native = answer == 1;
  return Status();
}

Status CudnnPlanCache::Impl::Resolve(const Trial& trial, void* context, const CudnnOptions& options,
                                     Algorithm* algorithm) {
  *algorithm = options.algorithm;
  if (options.algorithm != Algorithm::kAuto) return Status();
  *algorithm = Algorithm::kStandard;
  // cuDNN's other algorithms support neither padding nor projections.
  const bool is_empty = trial.shape.num_steps == 0 || trial.shape.batch_size == 0;
  if (options.deterministic || trial.choices.is_padded || trial.config.has_projection() ||
      is_empty) {
    return Status();
  }
  int answer = 0;
  CUDNN_RNN_RETURN_IF_ERROR(runtime_->algorithms.Answer(
      QuestionOf(trial, context, options),
      [&trial](int* choice) {
        Algorithm fastest;
        CUDNN_RNN_RETURN_IF_ERROR(ChooseAlgorithm(trial, &fastest));
        *choice = static_cast<int>(fastest);
        return Status();
      },
      &answer));
  *algorithm = static_cast<Algorithm>(answer);
  return Status();
}

Status CudnnPlanCache::Impl::FindDropoutState(const GpuQueue& queue, const Trial& trial,
                                              std::shared_ptr<DropoutState>* state) {
  state->reset();
  const RnnConfig& config = trial.config;
  if (!DropsOut(config, trial.choices.is_training)) return Status();
  const Key key = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(queue.context())),
                   BitsOf(config.dropout), config.seed, config.seed2};
  std::shared_ptr<DropoutState>& known = dropout_states_[key];
  if (known == nullptr) {
    CUDNN_RNN_RETURN_IF_ERROR(
        DropoutState::Create(queue, config, MemoryNeed::kRequired, trial.allocator, &known));
  }
  *state = known;
  return Status();
}

CudnnPlanCache::CudnnPlanCache(GpuRuntime* runtime) : impl_(new Impl(runtime)) {}
CudnnPlanCache::~CudnnPlanCache() = default;

Status CudnnPlanCache::Find(const RnnConfig& config, const SequenceShape& shape,
                            const CallOptions& call, const CudnnOptions& options,
                            const Execution& execution, DeviceAllocator* allocator, Found* found) {
  return impl_->Find(config, shape, call, options, execution, allocator, found);
}

}  // namespace cudnn_rnn
