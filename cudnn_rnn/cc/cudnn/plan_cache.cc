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

std::string Activity(const Trial& trial) { return "preparing " + Describe(trial.config); }

bool UsesDropout(const Trial& trial) {
  return UsesDropout(trial.config, trial.choices.is_training);
}

// Rounds the number of steps in a group's key. The fastest algorithm hardly depends on it, and a
// program whose batches all differ in length should not time the algorithms for each. Rounds down,
// so that limits just below a power of two lie between groups.
int64_t RoundDownToPowerOfTwo(int64_t value) {
  int64_t power = 1;
  while (power <= value / 2) power *= 2;
  return power;
}

// Returns everything that a call depends on besides device, algorithm, padding and the number of
// steps; also besides the dropout pattern if `model` is a key without dropout.
std::vector<int64_t> CallKey(const ConfigKey& model, const Trial& trial) {
  std::vector<int64_t> key(model.begin(), model.end());
  key.insert(key.end(), {UsesDropout(trial) ? 1 : 0, trial.shape.batch_size,
                         trial.choices.is_training ? 1 : 0, trial.choices.allow_tf32 ? 1 : 0});
  return key;
}

// Returns everything that the choice of the algorithm depends on. Devices of one model share it.
AlgorithmCache::Key AlgorithmKey(const Trial& trial, int64_t num_steps) {
  const DeviceModel& device = trial.device;
  AlgorithmCache::Key key = CallKey(KeyOf(WithoutDropout(trial.config)), trial);
  key.insert(key.end(),
             {num_steps, device.compute_capability_major, device.compute_capability_minor,
              device.num_multiprocessors, device.memory_bytes});
  key.insert(key.end(), device.name.begin(), device.name.end());
  return key;
}

// Makes a gradient compute like its forward pass, whatever the options say by now.
Status RepeatChoice(const ForwardChoice& choice, CudnnOptions* options) {
  options->algorithm = static_cast<Algorithm>(choice.algorithm);
  options->allow_tf32 = choice.allow_tf32;
  options->deterministic = false;  // would matter to kAuto only
  if (options->algorithm >= Algorithm::kStandard &&
      options->algorithm <= Algorithm::kPersistDynamic) {
    return Status();
  }
  return InvalidArgument(
      "reserve_space was not made by a forward call on this device: its number of elements names "
      "algorithm ",
      choice.algorithm,
      ", which does not exist. Pass the reserve_space that the "
      "forward call with is_training=True returned on the same device.");
}

// Adds to the error of a plan that cannot be created what the user can do.
Status WithAdvice(const Status& error, Algorithm algorithm, bool repeats_forward) {
  if (error.ok() || algorithm == Algorithm::kStandard) return error;
  const char* const standard = Name(Algorithm::kStandard);
  return Status(
      error.code(),
      repeats_forward
          ? Concatenate(error.message(), " The forward call ran the algorithm ", Name(algorithm),
                        ", so its gradient must run it, too; request ", standard,
                        " for the forward call.")
          : Concatenate(error.message(), " The algorithm ", Name(algorithm),
                        " was requested; request ", standard, ", which supports every model."));
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
                            const Execution& execution, Found* found) {
  CUDNN_RNN_RETURN_IF_ERROR(CheckSequenceLengths(call.sequence_lengths, shape));
  void* context = nullptr;
  const GpuLibraries& libraries = *runtime_->libraries;
  CUDNN_RNN_RETURN_IF_ERROR(CheckDriver(libraries,
                                        libraries.cuStreamGetCtx(execution.stream, &context),
                                        "cuStreamGetCtx", "looking for the stream's device"));
  CudnnOptions settings = options;
  const bool repeats_forward = call.forward_choice.algorithm != 0;
  if (repeats_forward) CUDNN_RNN_RETURN_IF_ERROR(RepeatChoice(call.forward_choice, &settings));
  CudnnPlan::Choices choices;
  choices.is_training = call.is_training;
  choices.is_padded = !shape.time_major || HasPadding(call.sequence_lengths, shape);
  choices.allow_tf32 = settings.allow_tf32;
  Request request;
  request.trial = {runtime_, execution.stream, execution.allocator, config,
                   shape,    choices,          DeviceModel()};
  request.options = settings;
  request.context = context;
  request.repeats_forward = repeats_forward;
  request.model_key = CallKey(KeyOf(config), request.trial);
  request.model_key.push_back(static_cast<int64_t>(reinterpret_cast<uintptr_t>(context)));
  request.model_key.push_back(choices.is_padded ? 1 : 0);
  Key key = request.model_key;
  key.insert(key.end(),
             {shape.num_steps, shape.time_major ? 1 : 0, static_cast<int64_t>(settings.algorithm),
              settings.deterministic ? 1 : 0, repeats_forward ? 1 : 0});

  std::lock_guard<std::mutex> lock(mutex_);
  const auto known = plans_.find(key);
  if (known != plans_.end()) {
    known->second.last_use = ++num_uses_;
    *found = known->second.found;
    return Status();
  }
  CUDNN_RNN_RETURN_IF_ERROR(CreatePlan(std::move(request), found));
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

Status CudnnPlanCache::CreatePlan(Request request, Found* found) {
  Trial& trial = request.trial;
  CUDNN_RNN_RETURN_IF_ERROR(Validate(trial.config));
  CUDNN_RNN_RETURN_IF_ERROR(
      CheckDataType(trial.config.data_type, runtime_->libraries->cudnn_version));
  if (!IsEmpty(trial.shape)) {
    GpuQueue queue(runtime_, trial.stream, Activity(trial));
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    // A CUDA graph must not record trials, new dropout states or the compilation of kernels.
    CUDNN_RNN_RETURN_IF_ERROR(queue.CheckNotCapturing("preparing a new model or shape"));
  }
  if (trial.config.data_type == DataType::kBfloat16 && !IsEmpty(trial.shape)) {
    CUDNN_RNN_RETURN_IF_ERROR(CheckBfloat16(trial, request.context, create_host_plan_));
  }
  CUDNN_RNN_RETURN_IF_ERROR(ResolveAlgorithm(request.options, &trial));

  std::shared_ptr<DropoutState> dropout;
  if (!IsEmpty(trial.shape) && UsesDropout(trial)) {
    CUDNN_RNN_RETURN_IF_ERROR(FindDropoutState(trial, request.context, &dropout));
  }
  std::shared_ptr<CudnnPlan> plan;
  Status created = CreatePlanWithModel(request, dropout, &plan);
  const bool is_chosen = request.options.algorithm == Algorithm::kAuto &&
                         trial.choices.algorithm != Algorithm::kStandard;
  if (!created.ok() && is_chosen) {
    runtime_->algorithms.UseStandard(AlgorithmKey(trial, trial.shape.num_steps));
    trial.choices.algorithm = Algorithm::kStandard;
    created = CreatePlanWithModel(request, dropout, &plan);
  }
  CUDNN_RNN_RETURN_IF_ERROR(WithAdvice(created, trial.choices.algorithm, request.repeats_forward));
  *found = {std::move(plan), trial.choices.algorithm};
  return Status();
}

Status CudnnPlanCache::CreatePlanWithModel(const Request& request,
                                           std::shared_ptr<DropoutState> dropout,
                                           std::shared_ptr<CudnnPlan>* plan) {
  const Trial& trial = request.trial;
  GpuQueue queue(runtime_, trial.stream, Activity(trial));
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  if (!IsEmpty(trial.shape)) CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
  Key key = request.model_key;
  key.push_back(static_cast<int64_t>(trial.choices.algorithm));
  const auto known = models_.find(key);
  std::shared_ptr<ModelDescriptor> model;
  if (known != models_.end()) model = known->second.lock();
  const bool is_new = model == nullptr;
  CUDNN_RNN_RETURN_IF_ERROR(CudnnPlan::Create(queue, trial.config, trial.shape, trial.choices,
                                              std::move(dropout), &model, plan));
  if (!is_new || model == nullptr) return Status();
  for (auto it = models_.begin(); it != models_.end();) {
    it = it->second.expired() ? models_.erase(it) : std::next(it);
  }
  models_[key] = model;
  return Status();
}

Status CudnnPlanCache::ResolveAlgorithm(const CudnnOptions& options, Trial* trial) {
  Algorithm* const algorithm = &trial->choices.algorithm;
  *algorithm = options.algorithm;
  if (options.algorithm != Algorithm::kAuto) return Status();
  *algorithm = Algorithm::kStandard;
  // cuDNN's other algorithms support no padding.
  if (options.deterministic || trial->choices.is_padded || IsEmpty(trial->shape)) return Status();
  {
    GpuQueue queue(runtime_, trial->stream, "reading the model of the GPU");
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    CUDNN_RNN_RETURN_IF_ERROR(ReadDeviceModel(queue, &trial->device));
  }
  const int64_t num_steps = trial->shape.num_steps;
  return runtime_->algorithms.FindOrChoose(
      AlgorithmKey(*trial, num_steps), AlgorithmKey(*trial, RoundDownToPowerOfTwo(num_steps)),
      [trial](Algorithm* chosen) { return ChooseAlgorithm(*trial, chosen); },
      [trial](Algorithm* chosen) { return ConfirmAlgorithm(*trial, chosen); }, algorithm);
}

Status CudnnPlanCache::FindDropoutState(const Trial& trial, void* context,
                                        std::shared_ptr<DropoutState>* state) {
  const RnnConfig& config = trial.config;
  const Key key = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(context)),
                   BitsOf(config.dropout), config.seed, config.seed2};
  std::shared_ptr<DropoutState>& known = dropout_states_[key];
  if (known == nullptr) {
    GpuQueue queue(runtime_, trial.stream, Activity(trial));
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    CUDNN_RNN_RETURN_IF_ERROR(
        DropoutState::Create(&queue, config, MemoryNeed::kRequired, trial.allocator, &known));
  }
  *state = known;
  return Status();
}

}  // namespace cudnn_rnn
