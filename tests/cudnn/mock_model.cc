#include "tests/cudnn/mock_model.h"

namespace cudnn_rnn {
namespace mock_test {
namespace {

int CudnnDataTypeOf(DataType data_type) {
  const int data_types[] = {kCudnnDataHalf, kCudnnDataBfloat16, kCudnnDataFloat, kCudnnDataDouble};
  return data_types[static_cast<int>(data_type)];
}

}  // namespace

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
  for (char** tensor : {&x, &dx}) *tensor = Allocate(rows * config.input_size);
  for (char** tensor : {&y, &dy}) *tensor = Allocate(rows * output_width());
  for (char** tensor : {&hx, &hy, &dhx, &dhy}) *tensor = Allocate(h_bytes());
  for (char** tensor : {&cx, &cy, &dcx, &dcy}) *tensor = Allocate(c_bytes());
  weights = Allocate(static_cast<int64_t>(weight_space_bytes));
  dweights = Allocate(static_cast<int64_t>(weight_space_bytes));
  workspace = Allocate(static_cast<int64_t>(workspace_bytes));
  reserve_space = Allocate(static_cast<int64_t>(reserve_space_bytes));
}

char* MockModel::Allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  buffers_.emplace_back(new Allocation(bytes));
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

template <typename Function>
void MockModel::ForRows(bool skips_padding, const Function& function) const {
  const int64_t batch = shape.batch_size();
  for (int64_t t = 0; t < shape.num_steps; ++t) {
    for (int64_t b = 0; b < batch; ++b) {
      if (skips_padding && t >= shape.lengths[static_cast<size_t>(b)]) continue;
      const bool is_batch_major = shape.layout == kCudnnLayoutBatchMajorPadded;
      function(t * batch + b, is_batch_major ? b * shape.num_steps + t : t * batch + b);
    }
  }
}

void MockModel::ToLayout(const char* time_major, int64_t width, char* data) const {
  const int64_t bytes = width * element();
  std::memset(data, 0xff, static_cast<size_t>(shape.num_steps * shape.batch_size() * bytes));
  ForRows(/*skips_padding=*/true, [&](int64_t time_major_row, int64_t row) {
    std::memcpy(data + row * bytes, time_major + time_major_row * bytes,
                static_cast<size_t>(bytes));
  });
}

Bytes MockModel::FromLayout(const char* data, int64_t width) const {
  const int64_t bytes = width * element();
  Bytes time_major(static_cast<size_t>(shape.num_steps * shape.batch_size() * bytes));
  ForRows(/*skips_padding=*/false, [&](int64_t time_major_row, int64_t row) {
    std::memcpy(&time_major[static_cast<size_t>(time_major_row * bytes)], data + row * bytes,
                static_cast<size_t>(bytes));
  });
  return time_major;
}

void MockModel::Load(const CallBuffers& buffers) {
  ToLayout(buffers.input->data(), config.input_size, x);
  ToLayout(buffers.output_backprop->data(), output_width(), dy);
  std::memcpy(hx, buffers.input_h->data(), static_cast<size_t>(h_bytes()));
  std::memcpy(dhy, buffers.output_h_backprop->data(), static_cast<size_t>(h_bytes()));
  if (config.has_cell_state()) {
    std::memcpy(cx, buffers.input_c->data(), static_cast<size_t>(c_bytes()));
    std::memcpy(dcy, buffers.output_c_backprop->data(), static_cast<size_t>(c_bytes()));
  }
  std::memset(weights, 0, weight_space_bytes);
  std::memset(dweights, 0, weight_space_bytes);
  ForWeights([&](int64_t offset, int64_t dense_offset, size_t bytes) {
    std::memcpy(weights + offset, buffers.params->data() + dense_offset, bytes);
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

int MockModel::Step() {
  int status = Forward();
  if (status == 0) status = BackwardData();
  return status == 0 ? BackwardWeights() : status;
}

std::vector<Bytes> MockModel::Results() const {
  ParamLayout layout;
  EXPECT(ParamLayout::Create(config, &layout).ok());
  Bytes dparams(static_cast<size_t>(layout.size() * element()));
  ForWeights([&](int64_t offset, int64_t dense_offset, size_t bytes) {
    std::memcpy(&dparams[static_cast<size_t>(dense_offset)], dweights + offset, bytes);
  });
  return {FromLayout(y, output_width()),
          Bytes(hy, hy + h_bytes()),
          Bytes(cy, cy + c_bytes()),
          FromLayout(dx, config.input_size),
          Bytes(dhx, dhx + h_bytes()),
          Bytes(dcx, dcx + c_bytes()),
          dparams};
}

}  // namespace mock_test
}  // namespace cudnn_rnn
