#include "tests/cudnn/plan_harness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/core/problem_text.h"
#include "tests/core/testing.h"
#include "tests/cudnn/mock/cpu_arithmetic.h"
#include "tests/cudnn/mock/functions.h"

namespace cudnn_rnn {
namespace {

void Write(DataType data_type, double value, char* target) {
  const float single = static_cast<float>(value);
  const uint16_t half = FloatToHalf(single), bfloat16 = FloatToBfloat16(single);
  const void* const sources[] = {&half, &bfloat16, &single, &value};
  std::memcpy(target, sources[static_cast<int>(data_type)], static_cast<size_t>(SizeOf(data_type)));
}

template <typename T>
T ReadAs(const char* source) {
  T value;
  std::memcpy(&value, source, sizeof(value));
  return value;
}

double Read(DataType data_type, const char* source) {
  switch (data_type) {
    case DataType::kHalf:
      return HalfToFloat(ReadAs<uint16_t>(source));
    case DataType::kBfloat16:
      return Bfloat16ToFloat(ReadAs<uint16_t>(source));
    case DataType::kFloat:
      return ReadAs<float>(source);
    case DataType::kDouble:
      break;
  }
  return ReadAs<double>(source);
}

std::vector<double> ReadAll(DataType data_type, const DeviceBuffer& buffer) {
  std::vector<double> values;
  for (int64_t i = 0; i < buffer.bytes(); i += SizeOf(data_type)) {
    values.push_back(Read(data_type, buffer.data() + i));
  }
  return values;
}

void Randomize(DataType data_type, double range, std::mt19937* generator, DeviceBuffer* buffer) {
  std::uniform_real_distribution<double> distribution(-range, range);
  for (int64_t i = 0; i < buffer->bytes(); i += SizeOf(data_type)) {
    Write(data_type, distribution(*generator), buffer->data() + i);
  }
}

// Sets all bits of the padding rows, each of `width` bytes, so that they are NaN again.
void SpoilPadding(const Problem& problem, int64_t width, DeviceBuffer* buffer) {
  const int64_t batch = problem.shape.batch_size, steps = problem.shape.num_steps;
  for (size_t b = 0; b < problem.lengths.size(); ++b) {
    for (int64_t t = problem.lengths[b]; t < steps; ++t) {
      const int64_t sequence = static_cast<int64_t>(b);
      const int64_t row = problem.shape.time_major ? t * batch + sequence : sequence * steps + t;
      std::memset(buffer->data() + row * width, 0xff, static_cast<size_t>(width));
    }
  }
}

double Difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double scale = 1, difference = 0;
  for (double value : a) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (!std::isnan(a[i])) difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference / scale;
}

}  // namespace

std::vector<RnnConfig> SmallModels(const std::vector<DataType>& data_types) {
  std::vector<RnnConfig> models;
  for (const RnnMode mode : {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
    for (const Direction direction : {Direction::kUnidirectional, Direction::kBidirectional}) {
      for (const int64_t num_layers : {1, 3}) {
        for (const DataType data_type : data_types) {
          RnnConfig config;
          config.mode = mode;
          config.direction = direction;
          config.num_layers = num_layers;
          config.data_type = data_type;
          config.num_units = 6;
          config.input_size = 5;
          models.push_back(config);
          config.input_size = 6;
          config.input_mode = InputMode::kSkip;
          models.push_back(config);
          if (mode == RnnMode::kLstm) {
            config.num_proj = 4;
            models.push_back(config);
          }
        }
      }
    }
  }
  return models;
}

CallOptions Problem::Options(bool is_training, int64_t dropout_call_index) const {
  CallOptions options;
  options.is_training = is_training;
  options.dropout_call_index = dropout_call_index;
  options.sequence_lengths = lengths;
  return options;
}

std::string Problem::Text() const { return ProblemText(config, shape, lengths); }

DeviceBuffer::DeviceBuffer(int64_t bytes, int64_t offset) : bytes_(bytes) {
  void* memory = nullptr;
  const int64_t size = offset + std::max<int64_t>(bytes, 1);
  if (posix_memalign(&memory, kDeviceAlignment, static_cast<size_t>(size)) != 0) std::abort();
  block_ = static_cast<char*>(memory);
  data_ = block_ + offset;
  std::memset(data_, 0xff, static_cast<size_t>(bytes));
  mock_register_memory(data_, bytes_);
}

DeviceBuffer::~DeviceBuffer() {
  mock_unregister_memory(data_);
  std::free(block_);
}

DeviceBuffer* CallBuffers::New(int64_t elements, int64_t element_size) {
  all.emplace_back(new DeviceBuffer(elements * element_size, offset));
  return all.back().get();
}

CallBuffers::CallBuffers(const Problem& problem, unsigned int seed, int64_t buffer_offset)
    : offset(buffer_offset) {
  const RnnConfig& config = problem.config;
  const int64_t size = SizeOf(config.data_type);
  const int64_t rows = problem.shape.num_steps * problem.shape.batch_size;
  const int64_t output_width = config.num_directions() * config.output_size();
  const int64_t states = config.num_layers * config.num_directions() * problem.shape.batch_size;
  const int64_t h = states * config.output_size();
  const int64_t c = config.has_cell_state() ? states * config.num_units : 0;
  ParamLayout layout;
  EXPECT(ParamLayout::Create(config, &layout).ok());
  std::mt19937 generator(seed);
  const auto random = [&](int64_t elements, double range) {
    DeviceBuffer* buffer = New(elements, size);
    Randomize(config.data_type, range, &generator, buffer);
    return buffer;
  };
  input = random(rows * config.input_size, 1);
  input_h = random(h, 1);
  input_c = random(c, 1);
  params = random(layout.size(), 0.5);
  output_backprop = random(rows * output_width, 1);
  output_h_backprop = random(h, 1);
  output_c_backprop = random(c, 1);
  SpoilPadding(problem, config.input_size * size, input);
  SpoilPadding(problem, output_width * size, output_backprop);
  output = New(rows * output_width, size);
  output_h = New(h, size);
  output_c = New(c, size);
  input_backprop = New(rows * config.input_size, size);
  input_h_backprop = New(h, size);
  input_c_backprop = New(c, size);
  params_backprop = New(layout.size(), size);
}

ForwardBuffers CallBuffers::Forward(const DeviceBuffer& reserve_space,
                                    const DeviceBuffer& workspace) const {
  ForwardBuffers buffers;
  buffers.input = input->data();
  buffers.input_h = input_h->data();
  buffers.input_c = input_c->data();
  buffers.params = params->data();
  buffers.output = output->data();
  buffers.output_h = output_h->data();
  buffers.output_c = output_c->data();
  buffers.reserve_space = reserve_space.data();
  buffers.workspace = workspace.data();
  return buffers;
}

BackwardBuffers CallBuffers::Backward(const DeviceBuffer& reserve_space,
                                      const DeviceBuffer& workspace) const {
  BackwardBuffers buffers;
  buffers.input = input->data();
  buffers.input_h = input_h->data();
  buffers.input_c = input_c->data();
  buffers.params = params->data();
  buffers.output = output->data();
  buffers.output_h = output_h->data();
  buffers.output_backprop = output_backprop->data();
  buffers.output_h_backprop = output_h_backprop->data();
  buffers.output_c_backprop = output_c_backprop->data();
  buffers.reserve_space = reserve_space.data();
  buffers.reserve_space_bytes = reserve_space.bytes();
  buffers.input_backprop = input_backprop->data();
  buffers.input_h_backprop = input_h_backprop->data();
  buffers.input_c_backprop = input_c_backprop->data();
  buffers.params_backprop = params_backprop->data();
  buffers.workspace = workspace.data();
  return buffers;
}

MockGpu::MockGpu() {
  mock_restart();
  EXPECT(cuInit(0) == kCudaSuccess);
  Reopen();
}

void MockGpu::Reopen() {
  std::unique_ptr<GpuLibraries> libraries(new GpuLibraries());
#define CUDNN_RNN_TAKE(symbol, parameters) libraries->symbol = ::cudnn_rnn::symbol;
  CUDNN_RNN_DRIVER_FUNCTIONS(CUDNN_RNN_TAKE)
  CUDNN_RNN_CUDNN_FUNCTIONS(CUDNN_RNN_TAKE)
#undef CUDNN_RNN_TAKE
  libraries->cudnnGetVersion = ::cudnn_rnn::cudnnGetVersion;
  libraries->cudnnGetErrorString = ::cudnn_rnn::cudnnGetErrorString;
  libraries->cudnn_version = ::cudnn_rnn::cudnnGetVersion();
  libraries_ = libraries.get();
  runtime_.reset(new GpuRuntime(std::move(libraries)));
}

MockGpu::~MockGpu() {
  runtime_.reset();
  ExpectNoViolations("at the end");
  EXPECT(mock_live(nullptr) <= allowed_objects_, mock_live(nullptr), " objects left");
}

Status GpuModel::Find(const Problem& problem, const CallOptions& call,
                      CudnnPlanCache::Found* found) {
  DriverAllocator allocator(runtime_, stream);
  Execution execution;
  execution.stream = stream;
  execution.allocator = &allocator;
  return cache_.Find(problem.config, problem.shape, call, options, execution, found);
}

Status GpuModel::Forward(const Problem& problem, const CallOptions& call,
                         const CallBuffers& buffers, std::unique_ptr<DeviceBuffer>* reserve_space) {
  CudnnPlanCache::Found found;
  CUDNN_RNN_RETURN_IF_ERROR(Find(problem, call, &found));
  reserve_space->reset(new DeviceBuffer(found.plan->ReserveSpaceBytes(), offset));
  const DeviceBuffer workspace(found.plan->ForwardWorkspaceBytes(call), offset);
  DriverAllocator allocator(runtime_, stream);
  Execution execution;
  execution.stream = stream;
  execution.allocator = &allocator;
  return found.plan->Forward(buffers.Forward(**reserve_space, workspace), call, execution);
}

Status GpuModel::Backward(const Problem& problem, const CallOptions& call,
                          const CallBuffers& buffers, const DeviceBuffer& reserve_space) {
  CudnnPlanCache::Found found;
  CUDNN_RNN_RETURN_IF_ERROR(Find(problem, call, &found));
  const DeviceBuffer workspace(found.plan->BackwardWorkspaceBytes(call), offset);
  DriverAllocator allocator(runtime_, stream);
  Execution execution;
  execution.stream = stream;
  execution.allocator = &allocator;
  return found.plan->Backward(buffers.Backward(reserve_space, workspace), call, execution);
}

Status GpuModel::Run(const Problem& problem, const CallOptions& call, const CallBuffers& buffers) {
  std::unique_ptr<DeviceBuffer> reserve_space;
  CUDNN_RNN_RETURN_IF_ERROR(Forward(problem, call, buffers, &reserve_space));
  return call.is_training ? Backward(problem, call, buffers, *reserve_space) : Status();
}

Algorithm AlgorithmOf(GpuModel* model, const Problem& problem, bool is_training) {
  CudnnPlanCache::Found found;
  const Status status = model->Find(problem, problem.Options(is_training), &found);
  EXPECT(status.ok(), status.message());
  if (!status.ok()) return Algorithm::kAuto;
  EXPECT(found.plan->choice().algorithm == static_cast<int32_t>(found.algorithm));
  return found.algorithm;
}

Status RunOnCpu(const Problem& problem, const CallOptions& call, const CallBuffers& buffers) {
  std::unique_ptr<RnnPlan> plan;
  CUDNN_RNN_RETURN_IF_ERROR(CreateCpuPlan(problem.config, problem.shape,
                                          MockInstructionSet(problem.config.data_type), &plan));
  SerialRunner runner;
  Execution execution;
  execution.runner = &runner;
  const DeviceBuffer reserve_space(call.is_training ? plan->ReserveSpaceBytes() : 0);
  const DeviceBuffer forward_workspace(plan->ForwardWorkspaceBytes(call));
  CUDNN_RNN_RETURN_IF_ERROR(
      plan->Forward(buffers.Forward(reserve_space, forward_workspace), call, execution));
  if (!call.is_training) return Status();
  const DeviceBuffer backward_workspace(plan->BackwardWorkspaceBytes(call));
  return plan->Backward(buffers.Backward(reserve_space, backward_workspace), call, execution);
}

Results ReadResults(const Problem& problem, bool is_training, const CallBuffers& buffers) {
  Results results;
  for (const DeviceBuffer* buffer : buffers.results()) {
    if (results.size() == 3 && !is_training) break;
    results.push_back(ReadAll(problem.config.data_type, *buffer));
  }
  return results;
}

double LargestDifference(const Results& a, const Results& b) {
  EXPECT(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, Difference(a[i], b[i]));
  return largest;
}

void ExpectNoViolations(const std::string& text) {
  EXPECT(mock_violations() == 0, text, ": ", mock_violation_text());
}

}  // namespace cudnn_rnn
