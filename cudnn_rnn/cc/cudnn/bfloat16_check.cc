#include "cudnn_rnn/cc/cudnn/bfloat16_check.h"

#include <algorithm>
#include <cmath>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"

namespace cudnn_rnn {
namespace {

constexpr int64_t kNumSteps = 2;
constexpr int64_t kBatchSize = 8;
constexpr int64_t kNumUnits = 32;  // also the input size
// All elements of a tensor are equal, and exact in bfloat16. The sum of kNumUnits products with
// kWeight is then the other factor.
constexpr float kInput = 0.5f;
constexpr float kInitialH = 0.25f;
constexpr float kInitialC = 0.5f;
constexpr float kWeight = 1.0f / kNumUnits;
constexpr float kBias = 0.125f;
// Several times the rounding errors of values below 1 that have 8 bits.
constexpr float kTolerance = 0.02f;

float Sigmoid(float value) { return 1 / (1 + std::exp(-value)); }

// Returns any element of the last output.
float ExpectedOutput(RnnMode mode) {
  float h = kInitialH, c = kInitialC;
  for (int64_t step = 0; step < kNumSteps; ++step) {
    const float of_input = kInput + kBias, of_state = h + kBias;
    const float sum = of_input + of_state, gate = Sigmoid(sum);
    switch (mode) {
      case RnnMode::kRelu:
        h = std::max(sum, 0.0f);
        break;
      case RnnMode::kTanh:
        h = std::tanh(sum);
        break;
      case RnnMode::kLstm:
        c = gate * c + gate * std::tanh(sum);
        h = gate * std::tanh(c);
        break;
      case RnnMode::kGru:
        h = (1 - gate) * std::tanh(of_input + gate * of_state) + gate * h;
        break;
    }
  }
  return h;
}

using Elements = std::vector<uint16_t>;

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
    const int64_t bytes = static_cast<int64_t>(elements.size() * sizeof(uint16_t));
    void* copy = nullptr;
    CUDNN_RNN_RETURN_IF_ERROR(Allocate(bytes, &copy));
    *data = copy;
    return queue_.CopyFromHost(copy, elements.data(), bytes);
  }

 private:
  const GpuQueue& queue_;
  DeviceAllocator* const allocator_;
  std::vector<std::unique_ptr<DeviceMemory>> memories_;
};

Elements Repeat(int64_t count, float value) {
  return Elements(static_cast<size_t>(count), FloatToBfloat16(value));
}

Status CreatePlan(const Trial& trial, const RnnConfig& config, const SequenceShape& shape,
                  std::shared_ptr<CudnnPlan>* plan) {
  GpuQueue queue(trial.runtime, trial.stream, "preparing a check of bfloat16");
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
  std::shared_ptr<ModelDescriptor> model;
  return CudnnPlan::Create(queue, config, shape, CudnnPlan::Choices(), nullptr, &model, plan);
}

// Runs the model, and reads its output.
Status RunModel(const Trial& trial, const RnnConfig& config, Elements* output) {
  const SequenceShape shape = {kNumSteps, kBatchSize, /*time_major=*/true};
  std::shared_ptr<CudnnPlan> plan;
  CUDNN_RNN_RETURN_IF_ERROR(CreatePlan(trial, config, shape, &plan));
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
  Elements params = Repeat(layout.InputBiases(0, 0), kWeight);
  params.resize(static_cast<size_t>(layout.size()), FloatToBfloat16(kBias));
  const int64_t state = kBatchSize * kNumUnits;
  *output = Repeat(kNumSteps * state, 0);

  GpuQueue queue(trial.runtime, trial.stream, "checking bfloat16");
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  CUDNN_RNN_RETURN_IF_ERROR(queue.CheckNotCapturing("waiting for a result"));
  CheckMemory memory(queue, trial.allocator);
  ForwardBuffers buffers;
  const int64_t state_bytes = state * SizeOf(config.data_type);
  CUDNN_RNN_RETURN_IF_ERROR(memory.CopyOf(Repeat(kNumSteps * state, kInput), &buffers.input));
  CUDNN_RNN_RETURN_IF_ERROR(memory.CopyOf(Repeat(state, kInitialH), &buffers.input_h));
  CUDNN_RNN_RETURN_IF_ERROR(memory.CopyOf(Repeat(state, kInitialC), &buffers.input_c));
  CUDNN_RNN_RETURN_IF_ERROR(memory.CopyOf(params, &buffers.params));
  CUDNN_RNN_RETURN_IF_ERROR(memory.Allocate(kNumSteps * state_bytes, &buffers.output));
  CUDNN_RNN_RETURN_IF_ERROR(memory.Allocate(state_bytes, &buffers.output_h));
  CUDNN_RNN_RETURN_IF_ERROR(memory.Allocate(state_bytes, &buffers.output_c));
  CUDNN_RNN_RETURN_IF_ERROR(
      memory.Allocate(plan->ForwardWorkspaceBytes(CallOptions()), &buffers.workspace));
  Execution execution;
  execution.stream = trial.stream;
  CUDNN_RNN_RETURN_IF_ERROR(plan->Forward(buffers, CallOptions(), execution));
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(queue, cuMemcpyDtoHAsync_v2, output->data(),
                                                  AddressOf(buffers.output),
                                                  output->size() * sizeof(uint16_t), trial.stream));
  return CUDNN_RNN_DRIVER_CALL(queue, cuStreamSynchronize, trial.stream);
}

Status RunCheck(const Trial& trial, std::string* problem) {
  RnnConfig config;
  config.mode = trial.config.mode;
  config.data_type = DataType::kBfloat16;
  config.num_units = config.input_size = kNumUnits;
  Elements output;
  CUDNN_RNN_RETURN_IF_ERROR(RunModel(trial, config, &output));
  const float expected = ExpectedOutput(config.mode);
  const size_t last_step = output.size() / kNumSteps * (kNumSteps - 1);
  problem->clear();
  for (size_t i = last_step; i < output.size(); ++i) {
    const float found = Bfloat16ToFloat(output[i]);
    if (std::abs(found - expected) <= kTolerance) continue;  // false for NaN
    *problem = Concatenate("cuDNN ", CudnnVersionText(trial.runtime->libraries->cudnn_version),
                           " computes wrong values in bfloat16 on this GPU: a test model (",
                           Describe(config), ") returned ", found, "; expected ", expected,
                           ". Use float16 or float32, or another version of cuDNN.");
    break;
  }
  return Status();
}

}  // namespace

Status CheckBfloat16(const Trial& trial, void* context) {
  std::string problem;
  CUDNN_RNN_RETURN_IF_ERROR(trial.runtime->bfloat16.FindOrCheck(
      context, trial.config.mode, [&trial](std::string* found) { return RunCheck(trial, found); },
      &problem));
  return problem.empty() ? Status() : Unimplemented(problem);
}

}  // namespace cudnn_rnn
