#include "cudnn_rnn/cc/cudnn/bfloat16_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

namespace cudnn_rnn {
namespace {

constexpr int64_t kNumSteps = 2;
constexpr int64_t kBatchSize = 8;
constexpr int64_t kNumUnits = 32;  // also the input size
constexpr int64_t kNumStates = kBatchSize * kNumUnits;
// All elements of a tensor are equal, and exact in bfloat16. The sum of kNumUnits products with
// kWeight is then the other factor.
constexpr float kInput = 0.5f;
constexpr float kInitialH = 0.25f;
constexpr float kInitialC = 0.5f;
constexpr float kWeight = 1.0f / kNumUnits;
constexpr float kBias = 0.125f;
constexpr float kOutputGradient = 1.0f;
constexpr float kFinalHGradient = 0.5f;
constexpr float kFinalCGradient = 0.75f;
// Several times the rounding errors of values that have 8 bits, relative to 1 or a larger value. A
// gradient multiplies them: that of tanh at 0.9 has ten times the relative error of the 0.9.
constexpr float kTolerance = 0.02f;
constexpr float kGradientTolerance = 0.05f;

float Sigmoid(float value) { return 1 / (1 + std::exp(-value)); }

// A step of the test model. One number stands for a tensor, since its elements are equal; all gates
// but the candidate are equal, too.
struct Step {
  float h_before, c_before;
  float of_state;         // what R and its bias add to each gate
  float gate, candidate;  // a simple cell has only a candidate
  float h, c;
};

Step RunStep(RnnMode mode, float h, float c) {
  Step step = {h, c, h + kBias, 0, 0, 0, 0};
  const float of_input = kInput + kBias, sum = of_input + step.of_state;
  step.gate = Sigmoid(sum);
  step.candidate = std::tanh(sum);
  switch (mode) {
    case RnnMode::kRelu:
      step.h = step.candidate = std::max(sum, 0.0f);
      break;
    case RnnMode::kTanh:
      step.h = step.candidate;
      break;
    case RnnMode::kLstm:
      step.c = step.gate * c + step.gate * step.candidate;
      step.h = step.gate * std::tanh(step.c);
      break;
    case RnnMode::kGru:
      step.candidate = std::tanh(of_input + step.gate * step.of_state);
      step.h = (1 - step.gate) * step.candidate + step.gate * h;
      break;
  }
  return step;
}

// The gradients of what W, and of what R, with its bias, adds to a gate.
struct GateGradient {
  float of_input, of_state;
};

// Returns the gradients of the gates, in the order of the parameter buffer. Changes the gradients
// of the states from those after the step to those before it, without what flows through R.
std::vector<GateGradient> GateGradients(RnnMode mode, const Step& step, float* h_gradient,
                                        float* c_gradient) {
  const float of_h = *h_gradient;
  const float gate_slope = step.gate * (1 - step.gate);
  const float candidate_slope = 1 - step.candidate * step.candidate;
  *h_gradient = 0;
  switch (mode) {
    case RnnMode::kRelu: {
      const float of_sum = step.candidate > 0 ? of_h : 0;
      return {{of_sum, of_sum}};
    }
    case RnnMode::kTanh:
      return {{of_h * candidate_slope, of_h * candidate_slope}};
    case RnnMode::kLstm: {
      const float cell = std::tanh(step.c);
      const float of_c = *c_gradient + of_h * step.gate * (1 - cell * cell);
      const float input = of_c * step.candidate * gate_slope;
      const float forget = of_c * step.c_before * gate_slope;
      const float candidate = of_c * step.gate * candidate_slope;
      const float output = of_h * cell * gate_slope;
      *c_gradient = of_c * step.gate;
      return {{input, input}, {forget, forget}, {candidate, candidate}, {output, output}};
    }
    case RnnMode::kGru:
      break;
  }
  const float candidate = of_h * (1 - step.gate) * candidate_slope;
  const float reset = candidate * step.of_state * gate_slope;
  const float update = of_h * (step.h_before - step.candidate) * gate_slope;
  *h_gradient = of_h * step.gate;
  return {{reset, reset}, {update, update}, {candidate, candidate * step.gate}};
}

// Equal elements of a tensor.
struct Part {
  int64_t count;
  float value;
};
using Parts = std::vector<Part>;

// What the test model computes in exact arithmetic. Of a model without c, its gradient is empty.
struct Expected {
  Parts output, input_gradient, h_gradient, c_gradient, params_gradient;
};

Expected ExpectedOf(RnnMode mode) {
  std::vector<Step> steps;
  float h = kInitialH, c = kInitialC;
  Expected expected;
  for (int64_t t = 0; t < kNumSteps; ++t) {
    steps.push_back(RunStep(mode, h, c));
    h = steps.back().h;
    c = steps.back().c;
    expected.output.push_back({kNumStates, h});
  }
  // Sums over steps, of each gate: the gradients of a bias of W and of R, and of an element of R.
  std::vector<GateGradient> of_biases;
  std::vector<float> of_recurrent_weights;
  float h_gradient = kFinalHGradient, c_gradient = kFinalCGradient;
  for (int64_t t = kNumSteps - 1; t >= 0; --t) {
    const Step& step = steps[static_cast<size_t>(t)];
    h_gradient += kOutputGradient;
    const auto gates = GateGradients(mode, step, &h_gradient, &c_gradient);
    of_biases.resize(gates.size());
    of_recurrent_weights.resize(gates.size());
    float of_input = 0;
    for (size_t gate = 0; gate < gates.size(); ++gate) {
      of_input += gates[gate].of_input;
      h_gradient += gates[gate].of_state;
      of_biases[gate].of_input += kBatchSize * gates[gate].of_input;
      of_biases[gate].of_state += kBatchSize * gates[gate].of_state;
      of_recurrent_weights[gate] += kBatchSize * gates[gate].of_state * step.h_before;
    }
    expected.input_gradient.insert(expected.input_gradient.begin(), {kNumStates, of_input});
  }
  expected.h_gradient = {{kNumStates, h_gradient}};
  if (mode == RnnMode::kLstm) expected.c_gradient = {{kNumStates, c_gradient}};
  constexpr int64_t kMatrix = kNumUnits * kNumUnits;
  Parts& params = expected.params_gradient;
  for (const GateGradient& bias : of_biases) params.push_back({kMatrix, bias.of_input * kInput});
  for (const float weight : of_recurrent_weights) params.push_back({kMatrix, weight});
  for (const GateGradient& bias : of_biases) params.push_back({kNumUnits, bias.of_input});
  for (const GateGradient& bias : of_biases) params.push_back({kNumUnits, bias.of_state});
  return expected;
}

using Elements = std::vector<uint16_t>;
constexpr int64_t kElementBytes = sizeof(uint16_t);
constexpr int64_t kStateBytes = kNumStates * kElementBytes;

// The device memory of one run.
class CheckMemory {
 public:
  CheckMemory(const GpuQueue& queue, DeviceAllocator* allocator)
      : queue_(queue), allocator_(allocator) {}

  Status Allocate(int64_t bytes, void** data) {
    std::unique_ptr<DeviceMemory> memory;
    CUDNN_RNN_RETURN_IF_ERROR(
        allocator_->Allocate(std::max<int64_t>(bytes, 1), MemoryNeed::kRequired, &memory));
    *data = memory->data();
    memories_.push_back(std::move(memory));
    return Status();
  }

  Status CopyOf(const Elements& elements, const void** data) {
    const int64_t bytes = static_cast<int64_t>(elements.size()) * kElementBytes;
    void* copy = nullptr;
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(bytes, &copy));
    *data = copy;
    return queue_.CopyFromHost(copy, elements.data(), bytes);
  }

  // `elements` are valid after the device has finished.
  Status Read(const void* data, int64_t count, Elements* elements) const {
    elements->resize(static_cast<size_t>(count));
    return CUDNN_RNN_DRIVER_CALL(queue_, cuMemcpyDtoHAsync_v2, elements->data(), AddressOf(data),
                                 static_cast<size_t>(count * kElementBytes), queue_.stream());
  }

 private:
  const GpuQueue& queue_;
  DeviceAllocator* const allocator_;
  std::vector<std::unique_ptr<DeviceMemory>> memories_;
};

Elements Repeat(int64_t count, float value) {
  return Elements(static_cast<size_t>(count), FloatToBfloat16(value));
}

// Runs the test model, forward and, in training, backward.
class CheckRun {
 public:
  CheckRun(const Trial& trial, const RnnConfig& config)
      : trial_(trial),
        config_(config),
        queue_(trial.runtime, trial.stream, "checking bfloat16"),
        memory_(queue_, trial.allocator) {
    options_.is_training = trial.choices.is_training;
    options_.keeps_reserve_space = false;
    execution_.stream = trial.stream;
  }

  Status Run() {
    CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config_, &layout_));
    CUDNN_RNN_RETURN_IF_ERROR(CreatePlan());
    CUDNN_RNN_RETURN_IF_ERROR(queue_.Begin());
    CUDNN_RNN_RETURN_IF_ERROR(Forward());
    if (options_.is_training) CUDNN_RNN_RETURN_IF_ERROR(Backward());
    return CUDNN_RNN_DRIVER_CALL(queue_, cuStreamSynchronize, trial_.stream);
  }

  // Returns the first difference from what is expected, "" if there is none.
  std::string Difference() const {
    const Expected expected = ExpectedOf(config_.mode);
    const struct {
      const char* name;
      const Elements& found;
      const Parts& expected;
    } tensors[] = {{"the output", output_, expected.output},
                   {"the gradient of the input", input_gradient_, expected.input_gradient},
                   {"the gradient of the initial h", h_gradient_, expected.h_gradient},
                   {"the gradient of the initial c", c_gradient_, expected.c_gradient},
                   {"the gradient of the parameters", params_gradient_, expected.params_gradient}};
    for (const auto& tensor : tensors) {
      const float tolerance = &tensor.found == &output_ ? kTolerance : kGradientTolerance;
      auto found = tensor.found.begin();  // at the end if the run did not compute the tensor
      for (const Part& part : tensor.expected) {
        for (int64_t i = 0; i < part.count && found != tensor.found.end(); ++i, ++found) {
          const float value = Bfloat16ToFloat(*found);
          const float scale = std::max(std::abs(part.value), 1.0f);
          if (std::abs(value - part.value) <= tolerance * scale) continue;  // false for NaN
          return Concatenate("returned ", value, " in ", tensor.name, "; expected ", part.value);
        }
      }
    }
    return "";
  }

 private:
  Status CreatePlan() {
    GpuQueue queue(trial_.runtime, trial_.stream, "preparing a check of bfloat16");
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
    CudnnPlan::Choices choices;
    choices.is_training = options_.is_training;
    const SequenceShape shape = {kNumSteps, kBatchSize, /*time_major=*/true};
    std::shared_ptr<ModelDescriptor> model;
    return CudnnPlan::Create(queue, config_, shape, choices, nullptr, &model, &plan_);
  }

  Status Forward() {
    Elements params = Repeat(layout_.first_bias(), kWeight);
    params.resize(static_cast<size_t>(layout_.size()), FloatToBfloat16(kBias));
    ForwardBuffers& b = forward_;
    CUDNN_RNN_RETURN_IF_ERROR(memory_.CopyOf(Repeat(kNumSteps * kNumStates, kInput), &b.input));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.CopyOf(Repeat(kNumStates, kInitialH), &b.input_h));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.CopyOf(Repeat(kNumStates, kInitialC), &b.input_c));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.CopyOf(params, &b.params));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Allocate(kNumSteps * kStateBytes, &b.output));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Allocate(kStateBytes, &b.output_h));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Allocate(kStateBytes, &b.output_c));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Allocate(plan_->ReserveSpaceBytes(), &b.reserve_space));
    CUDNN_RNN_RETURN_IF_ERROR(
        memory_.Allocate(plan_->ForwardWorkspaceBytes(options_), &b.workspace));
    CUDNN_RNN_RETURN_IF_ERROR(plan_->Forward(b, options_, execution_));
    return memory_.Read(b.output, kNumSteps * kNumStates, &output_);
  }

  Status Backward() {
    const int64_t steps = kNumSteps * kNumStates;
    BackwardBuffers b = SharedWithForward(forward_, plan_->ReserveSpaceBytes());
    CUDNN_RNN_RETURN_IF_ERROR(memory_.CopyOf(Repeat(steps, kOutputGradient), &b.output_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(
        memory_.CopyOf(Repeat(kNumStates, kFinalHGradient), &b.output_h_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(
        memory_.CopyOf(Repeat(kNumStates, kFinalCGradient), &b.output_c_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Allocate(kNumSteps * kStateBytes, &b.input_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Allocate(kStateBytes, &b.input_h_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Allocate(kStateBytes, &b.input_c_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Allocate(layout_.size() * kElementBytes, &b.params_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(
        memory_.Allocate(plan_->BackwardWorkspaceBytes(options_), &b.workspace));
    CUDNN_RNN_RETURN_IF_ERROR(plan_->Backward(b, options_, execution_));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Read(b.input_backprop, steps, &input_gradient_));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Read(b.input_h_backprop, kNumStates, &h_gradient_));
    CUDNN_RNN_RETURN_IF_ERROR(memory_.Read(b.params_backprop, layout_.size(), &params_gradient_));
    if (!config_.has_cell_state()) return Status();
    return memory_.Read(b.input_c_backprop, kNumStates, &c_gradient_);
  }

  const Trial& trial_;
  const RnnConfig& config_;
  CallOptions options_;
  Execution execution_;
  ParamLayout layout_;
  std::shared_ptr<CudnnPlan> plan_;
  GpuQueue queue_;
  CheckMemory memory_;
  ForwardBuffers forward_;
  Elements output_, input_gradient_, h_gradient_, c_gradient_, params_gradient_;
};

Status RunCheck(const Trial& trial, std::string* problem) {
  RnnConfig config;
  config.mode = trial.config.mode;
  config.data_type = DataType::kBfloat16;
  config.num_units = config.input_size = kNumUnits;
  CheckRun run(trial, config);
  CUDNN_RNN_RETURN_IF_ERROR(run.Run());
  *problem = run.Difference();
  if (problem->empty()) return Status();
  *problem = Concatenate("cuDNN ", CudnnVersionText(trial.runtime->libraries->cudnn_version),
                         " computes wrong values in bfloat16 on this GPU: a test model (",
                         Describe(config), ") ", *problem,
                         ". Use float16 or float32, or another version of cuDNN.");
  return Status();
}

}  // namespace

Status CheckBfloat16(const Trial& trial, void* context) {
  std::string problem;
  CUDNN_RNN_RETURN_IF_ERROR(trial.runtime->bfloat16.FindOrCheck(
      {context, trial.config.mode, trial.choices.is_training},
      [&trial](std::string* found) { return RunCheck(trial, found); }, &problem));
  return problem.empty() ? Status() : Unimplemented(problem);
}

}  // namespace cudnn_rnn
