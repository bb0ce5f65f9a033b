#include "cudnn_rnn/cc/cudnn/algorithm_trial.h"

#include <algorithm>
#include <limits>

#include "cudnn_rnn/cc/cudnn/algorithm_candidates.h"

namespace cudnn_rnn {
namespace {

class Event {
 public:
  explicit Event(const GpuQueue& queue) : queue_(queue) {}
  ~Event() {
    if (event_ != nullptr) queue_.libraries().cuEventDestroy_v2(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Status Create() { return CUDNN_RNN_DRIVER_CALL(queue_, cuEventCreate, &event_, 0); }
  Status Record() { return CUDNN_RNN_DRIVER_CALL(queue_, cuEventRecord, event_, queue_.stream()); }
  Status MillisecondsTo(const Event& end, float* milliseconds) const {
    CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(queue_, cuEventSynchronize, end.event_));
    return CUDNN_RNN_DRIVER_CALL(queue_, cuEventElapsedTime, milliseconds, event_, end.event_);
  }

 private:
  const GpuQueue& queue_;
  void* event_ = nullptr;
};

// Allocates at most `limit` bytes.
class BoundedAllocator : public DeviceAllocator {
 public:
  BoundedAllocator(DeviceAllocator* allocator, int64_t limit)
      : allocator_(allocator), limit_(limit), remaining_(limit) {}

  Status Allocate(int64_t bytes, MemoryNeed need, std::unique_ptr<DeviceMemory>* memory) override {
    if (bytes > remaining_) {
      return Status(StatusCode::kResourceExhausted,
                    Concatenate("The trial of an algorithm needs more than ", limit_,
                                " bytes of GPU memory, 1/", kTrialMemoryShare, " of the GPU's."));
    }
    CUDNN_RNN_RETURN_IF_ERROR(allocator_->Allocate(bytes, need, memory));
    remaining_ -= bytes;
    return Status();
  }

 private:
  DeviceAllocator* const allocator_;
  const int64_t limit_;
  int64_t remaining_;
};

// A plan and zero-filled buffers for one call.
class TrialRun {
 public:
  explicit TrialRun(const Trial& trial)
      : trial_(trial), allocator_(trial.allocator, trial.device.memory_bytes / kTrialMemoryShare) {
    options_.is_training = trial.choices.is_training;
    options_.dropout_call_index = 1;
    options_.keeps_reserve_space = false;
    execution_.stream = trial.stream;
    execution_.allocator = &allocator_;
  }

  Status Prepare(Algorithm algorithm) {
    GpuQueue queue(
        trial_.runtime, trial_.stream,
        Concatenate("trying ", Describe(trial_.config), ", algorithm ", Name(algorithm)));
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    std::shared_ptr<DropoutState> dropout;
    if (UsesDropout(trial_.config, options_.is_training)) {
      CUDNN_RNN_RETURN_IF_ERROR(DropoutState::Create(&queue, trial_.config, MemoryNeed::kOptional,
                                                     &allocator_, &dropout));
    }
    CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
    CudnnPlan::Choices choices = trial_.choices;
    choices.algorithm = algorithm;
    std::shared_ptr<ModelDescriptor> model;
    CUDNN_RNN_RETURN_IF_ERROR(CudnnPlan::Create(queue, trial_.config, trial_.shape, choices,
                                                std::move(dropout), &model, &plan_));
    CUDNN_RNN_RETURN_IF_ERROR(AllocateForward(queue));
    return options_.is_training ? AllocateBackward(queue) : Status();
  }

  Status Run() const {
    CUDNN_RNN_RETURN_IF_ERROR(plan_->Forward(forward_, options_, execution_));
    if (!options_.is_training) return Status();
    return plan_->Backward(backward_, options_, execution_);
  }

  // Measures kRounds rounds of kCalls calls each; returns the time per call in the fastest round.
  Status Time(float* milliseconds) const {
    constexpr int kRounds = 3, kCalls = 3;
    CUDNN_RNN_RETURN_IF_ERROR(Run());  // warm-up: loads and compiles kernels
    *milliseconds = std::numeric_limits<float>::max();
    for (int round = 0; round < kRounds; ++round) {
      GpuQueue queue(trial_.runtime, trial_.stream, "timing " + Describe(trial_.config));
      CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
      Event start(queue), end(queue);
      CUDNN_RNN_RETURN_IF_ERROR(start.Create());
      CUDNN_RNN_RETURN_IF_ERROR(end.Create());
      CUDNN_RNN_RETURN_IF_ERROR(start.Record());
      for (int call = 0; call < kCalls; ++call) CUDNN_RNN_RETURN_IF_ERROR(Run());
      CUDNN_RNN_RETURN_IF_ERROR(end.Record());
      float elapsed = 0;
      CUDNN_RNN_RETURN_IF_ERROR(start.MillisecondsTo(end, &elapsed));
      *milliseconds = std::min(*milliseconds, elapsed / kCalls);
    }
    return Status();
  }

 private:
  template <typename Pointer>
  Status Allocate(const GpuQueue& queue, int64_t bytes, Pointer* pointer) {
    *pointer = nullptr;
    if (bytes == 0) return Status();
    std::unique_ptr<DeviceMemory> memory;
    CUDNN_RNN_RETURN_IF_ERROR(allocator_.Allocate(bytes, MemoryNeed::kOptional, &memory));
    CUDNN_RNN_RETURN_IF_ERROR(queue.Clear(memory->data(), bytes));
    *pointer = memory->data();
    memories_.push_back(std::move(memory));
    return Status();
  }

  Status AllocateForward(const GpuQueue& queue) {
    const Sizes sizes(trial_);
    ForwardBuffers& b = forward_;
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.input, &b.input));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.h, &b.input_h));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.c, &b.input_c));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.params, &b.params));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.output, &b.output));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.h, &b.output_h));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.c, &b.output_c));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, plan_->ReserveSpaceBytes(), &b.reserve_space));
    return Allocate(queue, plan_->ForwardWorkspaceBytes(options_), &b.workspace);
  }

  Status AllocateBackward(const GpuQueue& queue) {
    const Sizes sizes(trial_);
    BackwardBuffers& b = backward_;
    b = SharedWithForward(forward_, plan_->ReserveSpaceBytes());
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.output, &b.output_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.h, &b.output_h_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.c, &b.output_c_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.input, &b.input_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.h, &b.input_h_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.c, &b.input_c_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(queue, sizes.params, &b.params_backprop));
    return Allocate(queue, plan_->BackwardWorkspaceBytes(options_), &b.workspace);
  }

  // Buffer sizes in bytes. They do not overflow: creating the plan has checked them.
  struct Sizes {
    explicit Sizes(const Trial& trial) {
      const RnnConfig& config = trial.config;
      const int64_t element = SizeOf(config.data_type);
      const int64_t rows = trial.shape.num_steps * trial.shape.batch_size;
      const int64_t states =
          config.num_layers * config.num_directions() * trial.shape.batch_size * element;
      ParamLayout layout;
      if (ParamLayout::Create(config, &layout).ok()) params = layout.size() * element;
      input = rows * config.input_size * element;
      output = rows * config.num_directions() * config.output_size() * element;
      h = states * config.output_size();
      c = config.has_cell_state() ? states * config.num_units : 0;
    }
    int64_t params = 0;
    int64_t input;
    int64_t output;
    int64_t h;
    int64_t c;
  };

  const Trial& trial_;
  BoundedAllocator allocator_;
  CallOptions options_;
  Execution execution_;
  std::shared_ptr<CudnnPlan> plan_;
  std::vector<std::unique_ptr<DeviceMemory>> memories_;
  ForwardBuffers forward_;
  BackwardBuffers backward_;
};

// Waits for all work on the stream and returns its error, if any.
Status Wait(const Trial& trial) {
  GpuQueue queue(trial.runtime, trial.stream, "trying algorithms for " + Describe(trial.config));
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  return CUDNN_RNN_DRIVER_CALL(queue, cuStreamSynchronize, trial.stream);
}

// Runs a call with the algorithm. Measures the milliseconds of one call unless the pointer is null.
// Fails if the algorithm does not support the call or if there is too little memory for a trial.
Status TryAlgorithm(const Trial& trial, Algorithm algorithm, float* milliseconds) {
  TrialRun run(trial);
  Status tried = run.Prepare(algorithm);
  if (tried.ok()) tried = milliseconds == nullptr ? run.Run() : run.Time(milliseconds);
  const Status finished = Wait(trial);
  return tried.ok() ? finished : tried;
}

std::vector<Algorithm> AlgorithmsToTry(const Trial& trial) {
  return AlgorithmsToTry(
      CandidateCall{trial.device, trial.config, trial.shape, trial.choices.is_training});
}

}  // namespace

// An algorithm has to be this much faster than kStandard, which supports every model.
constexpr float kRequiredSpeedup = 1.05f;

Status ChooseAlgorithm(const Trial& trial, Algorithm* algorithm) {
  *algorithm = Algorithm::kStandard;
  const std::vector<Algorithm> others = AlgorithmsToTry(trial);
  if (others.empty()) return Status();
  CUDNN_RNN_RETURN_IF_ERROR(Wait(trial));
  float standard, milliseconds;
  const Status tried = TryAlgorithm(trial, Algorithm::kStandard, &standard);
  if (!tried.ok()) {
    // Out of memory is no failure here: the call itself needs less. Any other error would fail the
    // call, too.
    return tried.code() == StatusCode::kResourceExhausted ? Status() : tried;
  }
  float best = std::numeric_limits<float>::max();
  for (const Algorithm other : others) {
    if (TryAlgorithm(trial, other, &milliseconds).ok() && milliseconds < best) {
      best = milliseconds;
      *algorithm = other;
    }
  }
  if (best * kRequiredSpeedup < standard) {
    // The first measurement may have found an idle GPU with a low clock.
    if (!TryAlgorithm(trial, Algorithm::kStandard, &milliseconds).ok()) return Status();
    standard = std::min(standard, milliseconds);
  }
  if (best * kRequiredSpeedup >= standard) *algorithm = Algorithm::kStandard;
  return Status();
}

Status ConfirmAlgorithm(const Trial& trial, Algorithm* algorithm) {
  if (*algorithm == Algorithm::kStandard) return Status();
  const std::vector<Algorithm> others = AlgorithmsToTry(trial);
  const bool is_candidate = std::find(others.begin(), others.end(), *algorithm) != others.end();
  CUDNN_RNN_RETURN_IF_ERROR(Wait(trial));
  if (!is_candidate || !TryAlgorithm(trial, *algorithm, nullptr).ok()) {
    *algorithm = Algorithm::kStandard;
  }
  return Status();
}

}  // namespace cudnn_rnn
