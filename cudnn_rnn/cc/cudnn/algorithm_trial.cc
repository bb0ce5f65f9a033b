#include "cudnn_rnn/cc/cudnn/algorithm_trial.h"

#include <algorithm>
#include <limits>

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

// A plan and zero-filled buffers for one call.
class TrialRun {
 public:
  explicit TrialRun(const Trial& trial) : trial_(trial) {
    options_.is_training = trial.choices.is_training;
    options_.dropout_call_index = 1;
    options_.keeps_reserve_space = false;
    execution_.stream = trial.stream;
  }

  Status Prepare(Algorithm algorithm) {
    GpuQueue queue(
        trial_.runtime, trial_.stream,
        Concatenate("trying ", Describe(trial_.config), ", algorithm ", Name(algorithm)));
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    CUDNN_RNN_RETURN_IF_ERROR(queue.CheckNotCapturing("trying an algorithm"));
    CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
    std::shared_ptr<DropoutState> dropout;
    if (UsesDropout(trial_.config, options_.is_training)) {
      CUDNN_RNN_RETURN_IF_ERROR(DropoutState::Create(queue, trial_.config, MemoryNeed::kOptional,
                                                     trial_.allocator, &dropout));
    }
    CudnnPlan::Choices choices = trial_.choices;
    choices.algorithm = algorithm;
    CUDNN_RNN_RETURN_IF_ERROR(
        CudnnPlan::Create(queue, trial_.config, trial_.shape, choices, std::move(dropout), &plan_));
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
    CUDNN_RNN_RETURN_IF_ERROR(trial_.allocator->Allocate(bytes, MemoryNeed::kOptional, &memory));
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
    b.input = forward_.input;
    b.input_h = forward_.input_h;
    b.input_c = forward_.input_c;
    b.params = forward_.params;
    b.output = forward_.output;
    b.output_h = forward_.output_h;
    b.reserve_space = forward_.reserve_space;
    b.reserve_space_bytes = plan_->ReserveSpaceBytes();
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
  CallOptions options_;
  Execution execution_;
  std::shared_ptr<CudnnPlan> plan_;
  std::vector<std::unique_ptr<DeviceMemory>> memories_;
  ForwardBuffers forward_;
  BackwardBuffers backward_;
};

}  // namespace

Status TimeAlgorithm(const Trial& trial, Algorithm algorithm, float* milliseconds) {
  TrialRun run(trial);
  CUDNN_RNN_RETURN_IF_ERROR(run.Prepare(algorithm));
  return run.Time(milliseconds);
}

Status ChooseAlgorithm(const Trial& trial, Algorithm* algorithm) {
  *algorithm = Algorithm::kStandard;
  float best = std::numeric_limits<float>::max(), milliseconds;
  const Status standard = TimeAlgorithm(trial, Algorithm::kStandard, &best);
  if (!standard.ok()) {
    // Out of memory is no failure here: the call itself needs less. Any other error would fail the
    // call, too.
    return standard.code() == StatusCode::kResourceExhausted ? Status() : standard;
  }
  bool has_persistent = false;
  for (const Algorithm other :
       {Algorithm::kPersistStatic, Algorithm::kPersistStaticSmallH, Algorithm::kPersistDynamic}) {
    // cuDNN compiles kPersistDynamic for each model, which takes seconds. Try it only if no other
    // persistent algorithm runs the model.
    if (other == Algorithm::kPersistDynamic && has_persistent) continue;
    if (!TimeAlgorithm(trial, other, &milliseconds).ok()) continue;
    has_persistent = true;
    if (milliseconds < best) {
      best = milliseconds;
      *algorithm = other;
    }
  }
  return Status();
}

}  // namespace cudnn_rnn
