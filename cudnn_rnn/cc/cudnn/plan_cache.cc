#include "cudnn_rnn/cc/cudnn/plan_cache.h"

#include <algorithm>
#include <cstring>

#include "cudnn_rnn/cc/cudnn/bfloat16_check.h"
#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

namespace cudnn_rnn {
namespace {

// Programs with many sequence lengths need many plans; a plan takes some kilobytes of host memory.
constexpr size_t kMaxPlans = 256;

int64_t BitsOf(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Rounds the number of steps in an algorithm's key. The fastest algorithm hardly depends on it, and
// a program whose batches all differ in length should not run a trial for each.
int64_t RoundUpToPowerOfTwo(int64_t value) {
  int64_t power = 1;
  while (power < value && power < (int64_t{1} << 40)) power *= 2;
  return power;
}

// Returns everything that the choice of the algorithm depends on.
AlgorithmCache::Key AlgorithmKey(const Trial& trial, void* context, const CudnnOptions& options) {
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
          UsesDropout(config, trial.choices.is_training) ? 1 : 0,
          RoundUpToPowerOfTwo(trial.shape.num_steps),
          trial.shape.batch_size,
          trial.choices.is_training ? 1 : 0,
          options.allow_tf32 ? 1 : 0};
}

Status CheckDataType(DataType data_type, size_t cudnn_version) {
  if (data_type != DataType::kBfloat16 || cudnn_version >= kMinCudnnVersionForBfloat16) {
    return Status();
  }
  return Unimplemented(Concatenate(
      "cuDNN ", CudnnVersionText(cudnn_version), " does not support RNNs in bfloat16; cuDNN ",
      CudnnVersionText(kMinCudnnVersionForBfloat16),
      " and newer versions do. Install one of these, or use float16 or float32."));
}

}  // namespace

Status CudnnPlanCache::Find(const RnnConfig& config, const SequenceShape& shape,
                            const CallOptions& call, const CudnnOptions& options,
                            const Execution& execution, DeviceAllocator* allocator, Found* found) {
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
  const bool draws_dropout = UsesDropout(config, call.is_training) && !call.is_backward;
  Key key = AlgorithmKey(trial, context, options);
  key.insert(key.end(),
             {shape.num_steps, draws_dropout ? 1 : 0, shape.time_major ? 1 : 0,
              choices.is_padded ? 1 : 0, static_cast<int64_t>(options.algorithm),
              options.deterministic ? 1 : 0, BitsOf(config.dropout), config.seed, config.seed2});

  std::lock_guard<std::mutex> lock(mutex_);
  const auto known = plans_.find(key);
  if (known != plans_.end()) {
    known->second.last_use = ++num_uses_;
    *found = known->second.found;
    return Status();
  }
  CUDNN_RNN_RETURN_IF_ERROR(CreatePlan(trial, context, options, draws_dropout, found));
  if (plans_.size() >= kMaxPlans) EvictLeastRecentlyUsed();
  plans_[key] = {*found, ++num_uses_};
  return Status();
}

void CudnnPlanCache::EvictLeastRecentlyUsed() {
  using Item = std::pair<const Key, Entry>;
  plans_.erase(std::min_element(plans_.begin(), plans_.end(), [](const Item& a, const Item& b) {
    return a.second.last_use < b.second.last_use;
  }));
}

Status CudnnPlanCache::CreatePlan(Trial trial, void* context, const CudnnOptions& options,
                                  bool draws_dropout, Found* found) {
  CUDNN_RNN_RETURN_IF_ERROR(Validate(trial.config));
  CUDNN_RNN_RETURN_IF_ERROR(
      CheckDataType(trial.config.data_type, runtime_->libraries->cudnn_version));
  if (trial.config.data_type == DataType::kBfloat16 && !IsEmpty(trial.shape)) {
    CUDNN_RNN_RETURN_IF_ERROR(CheckBfloat16(trial, context));
  }
  CUDNN_RNN_RETURN_IF_ERROR(ResolveAlgorithm(trial, context, options, &trial.choices.algorithm));

  GpuQueue queue(runtime_, trial.stream, "preparing " + Describe(trial.config));
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  std::shared_ptr<DropoutState> dropout;
  if (!IsEmpty(trial.shape)) {
    CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
    if (draws_dropout) CUDNN_RNN_RETURN_IF_ERROR(FindDropoutState(queue, trial, &dropout));
  }
  std::shared_ptr<CudnnPlan> plan;
  const Status created =
      CudnnPlan::Create(queue, trial.config, trial.shape, trial.choices, std::move(dropout), &plan);
  if (!created.ok() && options.algorithm != Algorithm::kAuto) {
    return Status(created.code(),
                  Concatenate(created.message(), " The algorithm ", Name(options.algorithm),
                              " was requested; request ", Name(Algorithm::kAuto),
                              " to use one that supports this model."));
  }
  CUDNN_RNN_RETURN_IF_ERROR(created);
  *found = {std::move(plan), trial.choices.algorithm};
  return Status();
}

Status CudnnPlanCache::ResolveAlgorithm(const Trial& trial, void* context,
                                        const CudnnOptions& options, Algorithm* algorithm) {
  *algorithm = options.algorithm;
  if (options.algorithm != Algorithm::kAuto) return Status();
  *algorithm = Algorithm::kStandard;
  // cuDNN's other algorithms support neither padding nor projections.
  if (options.deterministic || trial.choices.is_padded || trial.config.has_projection() ||
      IsEmpty(trial.shape)) {
    return Status();
  }
  return runtime_->algorithms.FindOrChoose(
      AlgorithmKey(trial, context, options),
      [&trial](Algorithm* chosen) { return ChooseAlgorithm(trial, chosen); }, algorithm);
}

Status CudnnPlanCache::FindDropoutState(const GpuQueue& queue, const Trial& trial,
                                        std::shared_ptr<DropoutState>* state) {
  const RnnConfig& config = trial.config;
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

}  // namespace cudnn_rnn
