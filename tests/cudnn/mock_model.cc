#include "tests/cudnn/mock_model.h"

#include "tests/cudnn/mock/cpu_arithmetic.h"

namespace cudnn_rnn {
namespace mock_test {
namespace {

// Aligned memory for the CPU plan, full of NaN.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(int64_t bytes) : storage_(static_cast<size_t>(bytes) + 64, '\xff') {}
  char* data() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<char> storage_;
};

int64_t ParamsOf(const RnnConfig& config) {
  ParamLayout layout;
  const Status status = ParamLayout::Create(config, &layout);
  EXPECT(status.ok(), status.message());
  return layout.size();
}

bool IsLstm(const RnnConfig& config) { return config.mode == RnnMode::kLstm; }

}  // namespace

StepTensors RandomStep(const RnnConfig& config, const Shape& shape) {
  std::mt19937 generator(23);
  const DataType type = config.data_type;
  const int64_t rows = shape.num_steps * shape.batch_size();
  const int64_t pseudo_layers = config.num_layers * config.num_directions() * shape.batch_size();
  const int64_t output_width = config.num_directions() * config.output_size();
  const int64_t cells = IsLstm(config) ? pseudo_layers * config.num_units : 0;
  StepTensors step;
  step.x = RandomBytes(type, rows * config.input_size, &generator);
  step.hx = RandomBytes(type, pseudo_layers * config.output_size(), &generator);
  step.cx = RandomBytes(type, cells, &generator);
  step.params = RandomBytes(type, ParamsOf(config), &generator);
  step.dy = RandomBytes(type, rows * output_width, &generator);
  step.dhy = RandomBytes(type, pseudo_layers * config.output_size(), &generator);
  step.dcy = RandomBytes(type, cells, &generator);
  for (int64_t b = 0; b < shape.batch_size(); ++b) {
    for (int64_t t = shape.lengths[static_cast<size_t>(b)]; t < shape.num_steps; ++t) {
      const int64_t row = t * shape.batch_size() + b;
      const int64_t x_bytes = config.input_size * SizeOf(type);
      const int64_t y_bytes = output_width * SizeOf(type);
      std::memset(&step.x[static_cast<size_t>(row * x_bytes)], 0, static_cast<size_t>(x_bytes));
      std::memset(&step.dy[static_cast<size_t>(row * y_bytes)], 0, static_cast<size_t>(y_bytes));
    }
  }
  return step;
}

void RunOnCpu(const RnnConfig& config, const Shape& shape, int64_t dropout_call_index,
              StepTensors* step) {
  std::unique_ptr<RnnPlan> plan;
  const SequenceShape sequences = {shape.num_steps, shape.batch_size(), true};
  const Status created =
      CreateCpuPlan(config, sequences, MockInstructionSet(config.data_type), &plan);
  EXPECT(created.ok(), created.message());
  if (!created.ok()) return;
  step->y.resize(step->dy.size());
  step->hy.resize(step->hx.size());
  step->cy.resize(step->cx.size());
  step->dx.resize(step->x.size());
  step->dhx.resize(step->hx.size());
  step->dcx.resize(step->cx.size());
  step->dparams.resize(step->params.size());
  CallOptions options;
  options.is_training = true;
  options.dropout_call_index = dropout_call_index;
  options.sequence_lengths = shape.lengths;
  AlignedBuffer reserve_space(plan->ReserveSpaceBytes());
  AlignedBuffer forward_workspace(plan->ForwardWorkspaceBytes(options));
  AlignedBuffer backward_workspace(plan->BackwardWorkspaceBytes(options));
  SerialRunner runner;
  Execution execution;
  execution.runner = &runner;
  ForwardBuffers forward;
  forward.input = step->x.data();
  forward.input_h = step->hx.data();
  forward.input_c = step->cx.data();
  forward.params = step->params.data();
  forward.output = step->y.data();
  forward.output_h = step->hy.data();
  forward.output_c = step->cy.data();
  forward.reserve_space = reserve_space.data();
  forward.workspace = forward_workspace.data();
  const Status ran = plan->Forward(forward, options, execution);
  EXPECT(ran.ok(), ran.message());
  BackwardBuffers backward;
  backward.input = step->x.data();
  backward.input_h = step->hx.data();
  backward.input_c = step->cx.data();
  backward.params = step->params.data();
  backward.output = step->y.data();
  backward.output_h = step->hy.data();
  backward.output_backprop = step->dy.data();
  backward.output_h_backprop = step->dhy.data();
  backward.output_c_backprop = step->dcy.data();
  backward.reserve_space = reserve_space.data();
  backward.reserve_space_bytes = plan->ReserveSpaceBytes();
  backward.input_backprop = step->dx.data();
  backward.input_h_backprop = step->dhx.data();
  backward.input_c_backprop = step->dcx.data();
  backward.params_backprop = step->dparams.data();
  backward.workspace = backward_workspace.data();
  const Status differentiated = plan->Backward(backward, options, execution);
  EXPECT(differentiated.ok(), differentiated.message());
}

MockModel::MockModel(const RnnConfig& config, const Shape& shape, int algorithm)
    : config(config), shape(shape) {
  Make(algorithm);
}

MockModel::~MockModel() {
  if (x_descriptor != nullptr) cudnnDestroyRNNDataDescriptor(x_descriptor);
  if (y_descriptor != nullptr) cudnnDestroyRNNDataDescriptor(y_descriptor);
  if (h_descriptor != nullptr) cudnnDestroyTensorDescriptor(h_descriptor);
  if (c_descriptor != nullptr) cudnnDestroyTensorDescriptor(c_descriptor);
  if (rnn != nullptr) cudnnDestroyRNNDescriptor(rnn);
  if (dropout != nullptr) cudnnDestroyDropoutDescriptor(dropout);
  if (handle != nullptr) cudnnDestroy(handle);
}

void MockModel::Make(int algorithm) {
  Check(cudnnCreate(&handle));
  Check(cudnnSetStream(handle, FreshMock::stream()));
  Check(cudnnCreateDropoutDescriptor(&dropout));
  Check(cudnnDropoutGetStatesSize(handle, &states_bytes));
  if (config.dropout > 0) states = Allocate(static_cast<int64_t>(states_bytes));
  Check(cudnnSetDropoutDescriptor(dropout, handle, config.dropout, states,
                                  states == nullptr ? 0 : states_bytes,
                                  static_cast<unsigned long long>(config.seed)));
  Check(cudnnCreateRNNDescriptor(&rnn));
  Check(cudnnCreateRNNDataDescriptor(&x_descriptor));
  Check(cudnnCreateRNNDataDescriptor(&y_descriptor));
  Check(cudnnCreateTensorDescriptor(&h_descriptor));
  Check(cudnnCreateTensorDescriptor(&c_descriptor));
  const bool is_packed = shape.layout == kCudnnLayoutTimeMajorPacked;
  Check(SetRnn(algorithm, is_packed ? kCudnnPaddedIoDisabled : kCudnnPaddedIoEnabled));
  Check(SetData(x_descriptor, config.input_size));
  double zero = 0;
  Check(SetData(y_descriptor, output_width(), &zero));
  Check(SetStates(h_descriptor, config.output_size()));
  Check(SetStates(c_descriptor, config.num_units));
  Check(cudnnGetRNNWeightSpaceSize(handle, rnn, &weight_space_bytes));
  Check(cudnnGetRNNTempSpaceSizes(handle, rnn, forward_mode, x_descriptor, &workspace_bytes,
                                  &reserve_space_bytes));
  if (status_ != 0) return;
  const int64_t rows = shape.num_steps * shape.batch_size() * element();
  const int64_t h_bytes = stack_rows() * config.output_size() * element();
  const int64_t c_bytes = IsLstm(config) ? stack_rows() * config.num_units * element() : 0;
  for (char** tensor : {&x, &dx}) *tensor = Allocate(rows * config.input_size);
  for (char** tensor : {&y, &dy}) *tensor = Allocate(rows * output_width());
  for (char** tensor : {&hx, &hy, &dhx, &dhy}) *tensor = Allocate(h_bytes);
  for (char** tensor : {&cx, &cy, &dcx, &dcy}) *tensor = Allocate(c_bytes);
  weights = Allocate(static_cast<int64_t>(weight_space_bytes));
  dweights = Allocate(static_cast<int64_t>(weight_space_bytes));
  workspace = Allocate(static_cast<int64_t>(workspace_bytes));
  reserve_space = Allocate(static_cast<int64_t>(reserve_space_bytes));
}

char* MockModel::Allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  buffers_.emplace_back(new DeviceBuffer(bytes));
  if (buffers_.back()->data() == nullptr) Check(-1);
  return buffers_.back()->data();
}

int MockModel::SetRnn(int algorithm, uint32_t auxiliary_flags) {
  const int modes[] = {kCudnnRnnRelu, kCudnnRnnTanh, kCudnnLstm, kCudnnGru};
  const bool is_double = config.data_type == DataType::kDouble;
  return cudnnSetRNNDescriptor_v8(
      rnn, algorithm, modes[static_cast<int>(config.mode)], kCudnnDoubleBias,
      config.num_directions() == 2 ? kCudnnBidirectional : kCudnnUnidirectional,
      config.skips_input_projection() ? kCudnnSkipInput : kCudnnLinearInput,
      CudnnDataTypeOf(config.data_type), is_double ? kCudnnDataDouble : kCudnnDataFloat,
      kCudnnDefaultMath, static_cast<int32_t>(config.input_size),
      static_cast<int32_t>(config.num_units), static_cast<int32_t>(config.output_size()),
      static_cast<int32_t>(config.num_layers), dropout, auxiliary_flags);
}

int MockModel::SetData(void* descriptor, int64_t vector_size, void* padding_fill) {
  return cudnnSetRNNDataDescriptor(
      descriptor, CudnnDataTypeOf(config.data_type), shape.layout,
      static_cast<int>(shape.num_steps), static_cast<int>(shape.batch_size()),
      static_cast<int>(vector_size), shape.lengths.data(), padding_fill);
}

int MockModel::SetStates(void* descriptor, int64_t width) {
  const int batch = static_cast<int>(shape.batch_size());
  const int dimensions[] = {static_cast<int>(stack_rows()) / batch, batch, static_cast<int>(width)};
  const int strides[] = {batch * static_cast<int>(width), static_cast<int>(width), 1};
  return cudnnSetTensorNdDescriptor(descriptor, CudnnDataTypeOf(config.data_type), 3, dimensions,
                                    strides);
}

template <typename Function>
void MockModel::ForWeights(const Function& function) const {
  ParamLayout layout;
  const Status created = ParamLayout::Create(config, &layout);
  EXPECT(created.ok(), created.message());
  void* descriptors[2] = {nullptr, nullptr};
  for (void*& descriptor : descriptors) cudnnCreateTensorDescriptor(&descriptor);
  const int64_t per_direction = layout.weights_per_direction();
  const int64_t num_biases = layout.biases_per_direction();
  for (int64_t i = 0; i < layout.num_canonical_weights(); ++i) {
    const int64_t linear_layer = i % per_direction;
    void* addresses[2] = {nullptr, nullptr};
    const int status = cudnnGetRNNWeightParams(
        handle, rnn, static_cast<int32_t>(i / per_direction), weight_space_bytes, weights,
        static_cast<int32_t>(linear_layer == num_biases ? 8 : linear_layer), descriptors[0],
        &addresses[0], descriptors[1], &addresses[1]);
    EXPECT(status == 0, status);
    const bool has_bias = linear_layer < num_biases;
    const ParamRegion regions[] = {
        layout.CanonicalWeight(i),
        has_bias ? layout.CanonicalBias(i / per_direction * num_biases + linear_layer)
                 : ParamRegion{0, 0, 0}};
    for (int which = 0; which < 2; ++which) {
      const ParamRegion& region = regions[which];
      int data_type, count, dimensions[4], strides[4];
      EXPECT(cudnnGetTensorNdDescriptor(descriptors[which], 4, &data_type, &count, dimensions,
                                        strides) == 0);
      EXPECT(count == (region.size() == 0 ? 0 : 3), count);
      EXPECT((addresses[which] == nullptr) == (region.size() == 0));
      if (region.size() == 0) continue;
      EXPECT(dimensions[0] == 1 && dimensions[1] == region.rows && dimensions[2] == region.columns);
      function(static_cast<char*>(addresses[which]) - weights, region.offset * element(),
               static_cast<size_t>(region.size() * element()));
    }
  }
  for (void* descriptor : descriptors) cudnnDestroyTensorDescriptor(descriptor);
}

// Follows the definition of the layouts, independently of the mock's own functions.
Bytes MockModel::ToLayout(const Bytes& time_major, int64_t width) const {
  const size_t row_bytes = static_cast<size_t>(width * element());
  const int64_t batch = shape.batch_size();
  Bytes data(time_major.size(), '\xff');  // padding, which must not be read
  int64_t packed_row = 0;
  for (int64_t t = 0; t < shape.num_steps; ++t) {
    for (int64_t b = 0; b < batch; ++b) {
      if (t >= shape.lengths[static_cast<size_t>(b)]) continue;
      const int64_t row = shape.layout == kCudnnLayoutTimeMajorPacked   ? packed_row++
                          : shape.layout == kCudnnLayoutTimeMajorPadded ? t * batch + b
                                                                        : b * shape.num_steps + t;
      std::memcpy(data.data() + static_cast<size_t>(row) * row_bytes,
                  time_major.data() + static_cast<size_t>(t * batch + b) * row_bytes, row_bytes);
    }
  }
  return data;
}

Bytes MockModel::FromLayout(const char* data, int64_t width) const {
  const size_t row_bytes = static_cast<size_t>(width * element());
  const int64_t batch = shape.batch_size();
  Bytes time_major(static_cast<size_t>(shape.num_steps * batch) * row_bytes);
  int64_t packed_row = 0;
  for (int64_t t = 0; t < shape.num_steps; ++t) {
    for (int64_t b = 0; b < batch; ++b) {
      const bool is_packed = shape.layout == kCudnnLayoutTimeMajorPacked;
      if (is_packed && t >= shape.lengths[static_cast<size_t>(b)]) continue;
      const int64_t row = is_packed                                     ? packed_row++
                          : shape.layout == kCudnnLayoutTimeMajorPadded ? t * batch + b
                                                                        : b * shape.num_steps + t;
      std::memcpy(time_major.data() + static_cast<size_t>(t * batch + b) * row_bytes,
                  data + static_cast<size_t>(row) * row_bytes, row_bytes);
    }
  }
  return time_major;
}

void MockModel::Load(const StepTensors& step) {
  const Bytes data = ToLayout(step.x, config.input_size);
  const Bytes gradient = ToLayout(step.dy, output_width());
  std::memcpy(x, data.data(), data.size());
  std::memcpy(dy, gradient.data(), gradient.size());
  std::memcpy(hx, step.hx.data(), step.hx.size());
  std::memcpy(dhy, step.dhy.data(), step.dhy.size());
  if (IsLstm(config)) {
    std::memcpy(cx, step.cx.data(), step.cx.size());
    std::memcpy(dcy, step.dcy.data(), step.dcy.size());
  }
  std::memset(weights, 0, weight_space_bytes);
  std::memset(dweights, 0, weight_space_bytes);
  ForWeights([&](int64_t offset, int64_t dense_offset, size_t bytes) {
    std::memcpy(weights + offset, &step.params[static_cast<size_t>(dense_offset)], bytes);
  });
}

int MockModel::Forward() {
  return cudnnRNNForward(handle, rnn, forward_mode, device_lengths, x_descriptor, x, y_descriptor,
                         y, h_descriptor, hx, hy, c_descriptor, cx, cy, weight_space_bytes, weights,
                         workspace_bytes, workspace, reserve_space_bytes, reserve_space);
}

int MockModel::BackwardData() {
  return cudnnRNNBackwardData_v8(handle, rnn, device_lengths, y_descriptor, y, dy, x_descriptor, dx,
                                 h_descriptor, hx, dhy, dhx, c_descriptor, cx, dcy, dcx,
                                 weight_space_bytes, weights, workspace_bytes, workspace,
                                 reserve_space_bytes, reserve_space);
}

int MockModel::BackwardWeights() {
  return cudnnRNNBackwardWeights_v8(handle, rnn, kCudnnWeightGradientAdd, device_lengths,
                                    x_descriptor, x, h_descriptor, hx, y_descriptor, y,
                                    weight_space_bytes, dweights, workspace_bytes, workspace,
                                    reserve_space_bytes, reserve_space);
}

StepTensors MockModel::Results() const {
  const size_t h_bytes = static_cast<size_t>(stack_rows() * config.output_size() * element());
  const size_t c_bytes =
      IsLstm(config) ? static_cast<size_t>(stack_rows() * config.num_units * element()) : 0;
  StepTensors step;
  step.y = FromLayout(y, output_width());
  step.dx = FromLayout(dx, config.input_size);
  step.hy.assign(hy, hy + h_bytes);
  step.dhx.assign(dhx, dhx + h_bytes);
  step.cy.assign(cy, cy + c_bytes);
  step.dcx.assign(dcx, dcx + c_bytes);
  step.dparams.resize(static_cast<size_t>(ParamsOf(config) * element()));
  ForWeights([&](int64_t offset, int64_t dense_offset, size_t bytes) {
    std::memcpy(&step.dparams[static_cast<size_t>(dense_offset)], dweights + offset, bytes);
  });
  return step;
}

}  // namespace mock_test
}  // namespace cudnn_rnn
