#include "cudnn_rnn/cc/cudnn/bfloat16_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

namespace cudnn_rnn {
namespace {

// The sizes differ, so that exchanged axes show. Multiples of 8 are what tensor cores multiply.
constexpr int64_t kNumSteps = 3;
constexpr int64_t kBatchSize = 8;
constexpr int64_t kInputSize = 24;
constexpr int64_t kNumUnits = 32;

// The largest error that the check accepts, relative to the largest magnitude in the tensor, or of
// a matrix or bias in the gradient of the parameters. Rounding to bfloat16 changes a number by at
// most 2^-8 of it. If a library stores every intermediate result in bfloat16, a result depends on
// at most 8 rounded numbers of its own step: of an LSTM W x, R h, their sum, the gate, c, tanh(c),
// h, and itself. The rounding errors of earlier steps hardly add to the largest error, because
// weights and slopes shrink them, and because random errors partly cancel in sums of products.
// (Libraries keep most of these numbers in float.) With weights in wrong places, errors are as
// large as the results.
constexpr float kTolerance = 8.0f / 256;

using Values = std::vector<float>;

// Everything that a run reads. Each value is exact in bfloat16.
struct Inputs {
  Values input, h, c, params, output_gradient, h_gradient, c_gradient;
};

// Everything that a run writes. What a run does not compute remains 0.
struct Results {
  Values output, h, c, input_gradient, h_gradient, c_gradient, params_gradient;
};

// Returns the same numbers on every platform.
class RandomValues {
 public:
  // Numbers between -limit and limit.
  Values Symmetric(int64_t count, float limit) {
    Values values(static_cast<size_t>(count));
    for (float& value : values) value = Rounded(limit * (2 * Uniform() - 1));
    return values;
  }
  // Numbers between `low` and `high`, of random sign.
  Values WithMagnitudes(int64_t count, float low, float high) {
    Values values(static_cast<size_t>(count));
    for (float& value : values) {
      const float sign = Uniform() < 0.5f ? -1.0f : 1.0f;
      value = Rounded(sign * (low + (high - low) * Uniform()));
    }
    return values;
  }

 private:
  static float Rounded(float value) { return Bfloat16ToFloat(FloatToBfloat16(value)); }
  float Uniform() { return static_cast<float>(generator_() >> 8) / (1 << 24); }

  std::mt19937 generator_{1};
};

Values RandomParams(const RnnConfig& config, const ParamLayout& layout, RandomValues* random) {
  // ReLU's gradient jumps at 0. Its biases exceed all that its weights add, so that no rounding
  // error changes the sign of a sum: the smallest is 0.7.
  const bool is_relu = config.mode == RnnMode::kRelu;
  Values params = random->Symmetric(layout.first_bias(), is_relu ? 0.05f : 0.3f);
  const int64_t gate_rows = config.num_gates() * config.num_units;
  for (int64_t direction = 0; direction < config.num_directions(); ++direction) {
    const Values of_input =
        random->WithMagnitudes(gate_rows, is_relu ? 0.5f : 0, is_relu ? 1 : 0.5f);
    Values of_state = random->WithMagnitudes(gate_rows, is_relu ? 0.5f : 0, is_relu ? 1 : 0.5f);
    for (size_t i = 0; i < of_state.size() && is_relu; ++i) {
      of_state[i] = std::copysign(of_state[i], of_input[i]);
    }
    params.insert(params.end(), of_input.begin(), of_input.end());
    params.insert(params.end(), of_state.begin(), of_state.end());
  }
  return params;
}

// The test model. It has two directions, so that one in place of the other shows.
struct TestModel {
  RnnConfig config;  // in float
  SequenceShape shape = {kNumSteps, kBatchSize, /*time_major=*/true};
  ParamLayout layout;
  Inputs inputs;

  Status Create(RnnMode mode) {
    config.mode = mode;
    config.direction = Direction::kBidirectional;
    config.num_units = kNumUnits;
    config.input_size = kInputSize;
    CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
    RandomValues random;
    inputs.input = random.Symmetric(kNumSteps * kBatchSize * kInputSize, 1);
    inputs.h = random.Symmetric(num_states(), 1);
    inputs.c = random.Symmetric(num_states(), 1);
    inputs.params = RandomParams(config, layout, &random);
    inputs.output_gradient = random.Symmetric(kNumSteps * num_states(), 1);
    inputs.h_gradient = random.Symmetric(num_states(), 1);
    inputs.c_gradient = random.Symmetric(num_states(), 1);
    return Status();
  }

  // Elements of h or c in both directions, which are also those of one step of the output.
  int64_t num_states() const { return config.num_directions() * kBatchSize * kNumUnits; }
};

// The memory of one run, with elements of the run's data type.
class RunMemory {
 public:
  virtual ~RunMemory() = default;
  virtual int64_t element_size() const = 0;
  virtual Status Allocate(int64_t bytes, void** data) = 0;
  virtual Status Write(const Values& values, void* data) = 0;
  // Reads values->size() elements, after the work queued so far.
  virtual Status Read(const void* data, Values* values) = 0;

  Status CopyOf(const Values& values, const void** data) {
    void* copy = nullptr;
    CUDNN_RNN_RETURN_IF_ERROR(AllocateElements(values, &copy));
    *data = copy;
    return Write(values, copy);
  }

  // Allocates as many elements as there are values.
  Status AllocateElements(const Values& values, void** data) {
    return Allocate(static_cast<int64_t>(values.size()) * element_size(), data);
  }
};

class HostMemory : public RunMemory {
 public:
  int64_t element_size() const override { return sizeof(float); }

  Status Allocate(int64_t bytes, void** data) override {
    blocks_.emplace_back(static_cast<size_t>(bytes + kDeviceAlignment));
    *data = AlignUp(blocks_.back().data());
    return Status();
  }

  Status Write(const Values& values, void* data) override {
    std::copy(values.begin(), values.end(), static_cast<float*>(data));
    return Status();
  }

  Status Read(const void* data, Values* values) override {
    std::copy_n(static_cast<const float*>(data), values->size(), values->begin());
    return Status();
  }

 private:
  std::vector<std::vector<char>> blocks_;
};

class Bfloat16Memory : public RunMemory {
 public:
  Bfloat16Memory(const GpuQueue& queue, DeviceAllocator* allocator)
      : queue_(queue), allocator_(allocator) {}

  int64_t element_size() const override { return sizeof(uint16_t); }

  Status Allocate(int64_t bytes, void** data) override {
    std::unique_ptr<DeviceMemory> memory;
    CUDNN_RNN_RETURN_IF_ERROR(
        allocator_->Allocate(std::max<int64_t>(bytes, 1), MemoryNeed::kRequired, &memory));
    *data = memory->data();
    memories_.push_back(std::move(memory));
    return Status();
  }

  Status Write(const Values& values, void* data) override {
    std::vector<uint16_t> elements(values.size());
    std::transform(values.begin(), values.end(), elements.begin(), FloatToBfloat16);
    return queue_.CopyFromHost(data, elements.data(), BytesOf(elements));
  }

  Status Read(const void* data, Values* values) override {
    std::vector<uint16_t> elements(values->size());
    CUDNN_RNN_RETURN_IF_ERROR(
        CUDNN_RNN_DRIVER_CALL(queue_, cuMemcpyDtoHAsync_v2, elements.data(), AddressOf(data),
                              static_cast<size_t>(BytesOf(elements)), queue_.stream()));
    CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(queue_, cuStreamSynchronize, queue_.stream()));
    std::transform(elements.begin(), elements.end(), values->begin(), Bfloat16ToFloat);
    return Status();
  }

 private:
  static int64_t BytesOf(const std::vector<uint16_t>& elements) {
    return static_cast<int64_t>(elements.size() * sizeof(uint16_t));
  }

  const GpuQueue& queue_;
  DeviceAllocator* const allocator_;
  std::vector<std::unique_ptr<DeviceMemory>> memories_;
};

// A run of the test model by either plan: forward and, in training, backward.
class Run {
 public:
  Run(const TestModel& model, const RnnPlan& plan, const Execution& execution, bool is_training,
      RunMemory* memory)
      : model_(model), plan_(plan), execution_(execution), memory_(memory) {
    options_.is_training = is_training;
    options_.keeps_reserve_space = false;
    results.output.resize(model.inputs.output_gradient.size());
    results.h.resize(model.inputs.h.size());
    results.c.resize(model.inputs.c.size());
    results.input_gradient.resize(model.inputs.input.size());
    results.h_gradient.resize(model.inputs.h.size());
    results.c_gradient.resize(model.inputs.c.size());
    results.params_gradient.resize(model.inputs.params.size());
  }

  Results results;

  Status Forward() {
    const Inputs& inputs = model_.inputs;
    ForwardBuffers& b = forward_;
    CUDNN_RNN_RETURN_IF_ERROR(memory_->CopyOf(inputs.input, &b.input));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->CopyOf(inputs.h, &b.input_h));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->CopyOf(inputs.c, &b.input_c));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->CopyOf(inputs.params, &b.params));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->AllocateElements(results.output, &b.output));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->AllocateElements(results.h, &b.output_h));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->AllocateElements(results.c, &b.output_c));
    if (options_.is_training) {
      CUDNN_RNN_RETURN_IF_ERROR(memory_->Allocate(plan_.ReserveSpaceBytes(), &b.reserve_space));
    }
    CUDNN_RNN_RETURN_IF_ERROR(
        memory_->Allocate(plan_.ForwardWorkspaceBytes(options_), &b.workspace));
    CUDNN_RNN_RETURN_IF_ERROR(plan_.Forward(b, options_, execution_));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->Read(b.output, &results.output));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->Read(b.output_h, &results.h));
    if (!model_.config.has_cell_state()) return Status();
    return memory_->Read(b.output_c, &results.c);
  }

  Status Backward() {
    const Inputs& inputs = model_.inputs;
    BackwardBuffers b = SharedWithForward(forward_, plan_.ReserveSpaceBytes());
    CUDNN_RNN_RETURN_IF_ERROR(memory_->CopyOf(inputs.output_gradient, &b.output_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->CopyOf(inputs.h_gradient, &b.output_h_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->CopyOf(inputs.c_gradient, &b.output_c_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->AllocateElements(inputs.input, &b.input_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->AllocateElements(inputs.h, &b.input_h_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->AllocateElements(inputs.c, &b.input_c_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->AllocateElements(inputs.params, &b.params_backprop));
    CUDNN_RNN_RETURN_IF_ERROR(
        memory_->Allocate(plan_.BackwardWorkspaceBytes(options_), &b.workspace));
    CUDNN_RNN_RETURN_IF_ERROR(plan_.Backward(b, options_, execution_));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->Read(b.input_backprop, &results.input_gradient));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->Read(b.input_h_backprop, &results.h_gradient));
    CUDNN_RNN_RETURN_IF_ERROR(memory_->Read(b.params_backprop, &results.params_gradient));
    if (!model_.config.has_cell_state()) return Status();
    return memory_->Read(b.input_c_backprop, &results.c_gradient);
  }

 private:
  const TestModel& model_;
  const RnnPlan& plan_;
  const Execution& execution_;
  RunMemory* const memory_;
  CallOptions options_;
  ForwardBuffers forward_;
};

Status RunBoth(Run* run, bool is_training) {
  CUDNN_RNN_RETURN_IF_ERROR(run->Forward());
  return is_training ? run->Backward() : Status();
}

Status RunOnHost(const TestModel& model, PlanFactory create_plan, bool is_training,
                 Results* results) {
  std::unique_ptr<RnnPlan> plan;
  CUDNN_RNN_RETURN_IF_ERROR(create_plan(model.config, model.shape, &plan));
  SerialRunner runner;  // a kernel must not wait for threads that other kernels may occupy
  Execution execution;
  execution.runner = &runner;
  HostMemory memory;
  Run run(model, *plan, execution, is_training, &memory);
  CUDNN_RNN_RETURN_IF_ERROR(RunBoth(&run, is_training));
  *results = std::move(run.results);
  return Status();
}

Status CreateDevicePlan(const Trial& trial, const TestModel& model,
                        std::shared_ptr<CudnnPlan>* plan) {
  RnnConfig config = model.config;
  config.data_type = DataType::kBfloat16;
  GpuQueue queue(trial.runtime, trial.stream, "preparing a check of bfloat16");
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
  CudnnPlan::Choices choices;
  choices.is_training = trial.choices.is_training;
  std::shared_ptr<ModelDescriptor> descriptor;
  return CudnnPlan::Create(queue, config, model.shape, choices, nullptr, &descriptor, plan);
}

Status RunOnDevice(const Trial& trial, const TestModel& model, Results* results) {
  std::shared_ptr<CudnnPlan> plan;
  CUDNN_RNN_RETURN_IF_ERROR(CreateDevicePlan(trial, model, &plan));
  GpuQueue queue(trial.runtime, trial.stream, "checking bfloat16");
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  Execution execution;
  execution.stream = trial.stream;
  execution.allocator = trial.allocator;
  Bfloat16Memory memory(queue, trial.allocator);
  Run run(model, *plan, execution, trial.choices.is_training, &memory);
  CUDNN_RNN_RETURN_IF_ERROR(RunBoth(&run, trial.choices.is_training));
  *results = std::move(run.results);
  return Status();
}

// Compares elements first..end - 1 with the same scale; updates `error` if theirs is larger.
void Compare(const char* name, const Values& found, const Values& expected, size_t first,
             size_t end, Bfloat16Error* error) {
  float scale = 0;
  for (size_t i = first; i < end; ++i) scale = std::max(scale, std::abs(expected[i]));
  if (scale == 0) scale = 1;  // was not computed
  for (size_t i = first; i < end; ++i) {
    float size = std::abs(found[i] - expected[i]) / (kTolerance * scale);
    if (std::isnan(size)) size = std::numeric_limits<float>::infinity();
    if (size <= error->size) continue;
    error->size = size;
    error->place = Concatenate("returned ", found[i], " in ", name, ", element ", i, "; expected ",
                               expected[i]);
  }
}

void CompareRegion(const ParamRegion& region, const Results& found, const Results& expected,
                   Bfloat16Error* error) {
  Compare("the gradient of the parameters", found.params_gradient, expected.params_gradient,
          static_cast<size_t>(region.offset), static_cast<size_t>(region.offset + region.size()),
          error);
}

Bfloat16Error LargestError(const ParamLayout& layout, const Results& found,
                           const Results& expected) {
  const struct {
    const char* name;
    const Values& found;
    const Values& expected;
  } tensors[] = {{"the output", found.output, expected.output},
                 {"the final h", found.h, expected.h},
                 {"the final c", found.c, expected.c},
                 {"the gradient of the input", found.input_gradient, expected.input_gradient},
                 {"the gradient of the initial h", found.h_gradient, expected.h_gradient},
                 {"the gradient of the initial c", found.c_gradient, expected.c_gradient}};
  Bfloat16Error error;
  for (const auto& tensor : tensors) {
    Compare(tensor.name, tensor.found, tensor.expected, 0, tensor.found.size(), &error);
  }
  for (int64_t i = 0; i < layout.num_canonical_weights(); ++i) {
    CompareRegion(layout.CanonicalWeight(i), found, expected, &error);
  }
  for (int64_t i = 0; i < layout.num_canonical_biases(); ++i) {
    CompareRegion(layout.CanonicalBias(i), found, expected, &error);
  }
  return error;
}

Status RunCheck(const Trial& trial, PlanFactory create_host_plan, std::string* problem) {
  Bfloat16Error error;
  CUDNN_RNN_RETURN_IF_ERROR(MeasureBfloat16(trial, create_host_plan, &error));
  *problem = "";
  if (error.size <= 1) return Status();
  *problem = Concatenate("cuDNN ", CudnnVersionText(trial.runtime->libraries->cudnn_version),
                         " computes wrong values in bfloat16 on this GPU: a test model (",
                         Name(trial.config.mode), ", ", kNumUnits, " units) ", error.place,
                         ". Use float16 or float32, or another version of cuDNN.");
  return Status();
}

}  // namespace

Status MeasureBfloat16(const Trial& trial, PlanFactory create_host_plan, Bfloat16Error* error) {
  TestModel model;
  CUDNN_RNN_RETURN_IF_ERROR(model.Create(trial.config.mode));
  Results expected, found;
  CUDNN_RNN_RETURN_IF_ERROR(
      RunOnHost(model, create_host_plan, trial.choices.is_training, &expected));
  CUDNN_RNN_RETURN_IF_ERROR(RunOnDevice(trial, model, &found));
  *error = LargestError(model.layout, found, expected);
  return Status();
}

Status CheckBfloat16(const Trial& trial, void* context, PlanFactory create_host_plan) {
  std::string problem;
  CUDNN_RNN_RETURN_IF_ERROR(trial.runtime->bfloat16.FindOrCheck(
      {context, trial.config.mode, trial.choices.is_training},
      [&](std::string* found) { return RunCheck(trial, create_host_plan, found); }, &problem));
  return problem.empty() ? Status() : Unimplemented(problem);
}

}  // namespace cudnn_rnn
