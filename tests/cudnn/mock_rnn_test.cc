// Tests the mock of cuDNN: its results equal the CPU plan's bit for bit, and it detects misuse.

#include <thread>

#include "tests/cudnn/mock_model.h"

namespace cudnn_rnn {
namespace mock_test {
namespace {

RnnConfig SmallLstm() {
  RnnConfig config;
  config.num_layers = 2;
  config.num_units = 6;
  config.input_size = 3;
  config.direction = Direction::kBidirectional;
  return config;
}

std::string Text(const RnnConfig& config, const Shape& shape) {
  return Concatenate(Describe(config), ", layout ", shape.layout, ", shortest length ",
                     shape.lengths.back());
}

// Runs the step of MockModel::LoadRandom with the CPU plan; returns the results' bytes.
std::vector<Bytes> CpuResults(const RnnConfig& config, const Shape& shape,
                              int64_t dropout_call_index, bool has_zero_states = false) {
  const Problem problem = ProblemOf(config, shape);
  const CallBuffers buffers(problem, 23);
  if (has_zero_states) {
    for (const DeviceBuffer* state :
         {buffers.input_h, buffers.input_c, buffers.output_h_backprop, buffers.output_c_backprop}) {
      std::memset(state->data(), 0, static_cast<size_t>(state->bytes()));
    }
  }
  const Status status = RunOnCpu(problem, problem.Options(true, dropout_call_index), buffers);
  EXPECT(status.ok(), status.message());
  std::vector<Bytes> results;
  for (const DeviceBuffer* result : buffers.results()) {
    results.emplace_back(result->data(), result->data() + result->bytes());
  }
  return results;
}

void ExpectSame(const std::vector<Bytes>& found, const std::vector<Bytes>& expected,
                const std::string& what) {
  const char* const names[] = {"y", "hy", "cy", "dx", "dhx", "dcx", "dparams"};
  EXPECT(found.size() == 7 && expected.size() == 7);
  for (size_t i = 0; i < 7; ++i) EXPECT(found[i] == expected[i], what, ": ", names[i]);
}

// Compares a training step on the mock with the CPU plan.
void Compare(const RnnConfig& config, const Shape& shape) {
  const std::string what = Text(config, shape);
  MockModel model(config, shape);
  EXPECT(model.status() == 0, what, ": ", model.status());
  if (model.status() != 0) return;
  model.LoadRandom();
  EXPECT(model.Step() == 0, what);
  ExpectSame(model.Results(), CpuResults(config, shape, 0), what);
}

const int kLayouts[] = {kCudnnLayoutTimeMajorPadded, kCudnnLayoutTimeMajorPacked,
                        kCudnnLayoutBatchMajorPadded};

TEST(MockComputesLikeTheCpuPlan) {
  FreshMock fresh;
  for (const bool padded_weights : {false, true}) {
    mock_set_padded_weights(padded_weights);
    for (const int layout : kLayouts) {
      for (const std::vector<int32_t>& lengths :
           {std::vector<int32_t>{5, 5, 5}, std::vector<int32_t>{5, 3, 3, 1}}) {
        Shape shape;
        shape.layout = layout;
        shape.lengths = lengths;
        if (layout == kCudnnLayoutTimeMajorPacked && lengths.back() < 5) continue;
        for (const RnnMode mode : {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
          RnnConfig config = SmallLstm();
          config.mode = mode;
          Compare(config, shape);
          config.input_mode = InputMode::kSkip;
          config.input_size = config.num_units;
          config.direction = Direction::kUnidirectional;
          Compare(config, shape);
        }
        for (const DataType data_type : {DataType::kHalf, DataType::kBfloat16, DataType::kDouble}) {
          RnnConfig config = SmallLstm();
          config.data_type = data_type;
          Compare(config, shape);
          config.num_proj = 4;
          Compare(config, shape);
        }
      }
    }
  }
}

TEST(MockAdvancesTheDropoutStates) {
  FreshMock fresh;
  RnnConfig config = SmallLstm();
  config.dropout = 0.5f;
  config.seed = 77;
  const Shape shape;
  MockModel model(config, shape);
  EXPECT(model.status() == 0, model.status());
  EXPECT(mock_dropout_initializations() == 1);
  model.LoadRandom();
  const Bytes origin(model.states, model.states + model.states_bytes);
  for (const int64_t call : {0, 1, 2, 0, 1}) {
    // Copying the initial states back restarts the sequence.
    if (call == 0) std::memcpy(model.states, origin.data(), origin.size());
    std::memset(model.dweights, 0, model.weight_space_bytes);
    EXPECT(model.Step() == 0);
    ExpectSame(model.Results(), CpuResults(config, shape, call), Concatenate("call ", call));
  }
  // Inference drops nothing, and Restore does not initialize.
  EXPECT(cudnnRestoreDropoutDescriptor(model.dropout, model.handle, config.dropout, model.states,
                                       model.states_bytes, 77) == 0);
  const Bytes before(model.states, model.states + model.states_bytes);
  model.forward_mode = kCudnnForwardInference;
  EXPECT(model.Forward() == 0);
  EXPECT(before == Bytes(model.states, model.states + model.states_bytes));
  EXPECT(mock_dropout_initializations() == 1);
}

TEST(MockTreatsNullStatesAsZero) {
  FreshMock fresh;
  const RnnConfig config = SmallLstm();
  const Shape shape;
  MockModel model(config, shape);
  model.LoadRandom();
  const std::vector<Bytes> untouched = model.Results();
  model.hx = model.cx = model.dhy = model.dcy = nullptr;
  char *const hy = model.hy, *const dcx = model.dcx;
  model.hy = model.dcx = nullptr;
  EXPECT(model.Step() == 0);
  model.hy = hy;
  model.dcx = dcx;
  std::vector<Bytes> expected = CpuResults(config, shape, 0, /*has_zero_states=*/true);
  for (const size_t unwanted : {1, 5}) expected[unwanted] = untouched[unwanted];
  ExpectSame(model.Results(), expected, "null states");
}

TEST(MockFillsTheOutputsPadding) {
  FreshMock fresh;
  const RnnConfig config = SmallLstm();
  const Shape shape;
  MockModel model(config, shape);
  model.LoadRandom();
  float fill = 7;
  EXPECT(model.SetData(model.y_descriptor, 2 * config.num_units, &fill) == 0);
  EXPECT(model.Forward() == 0);
  float last;
  std::memcpy(&last, model.y + (5 * 4 * 2 * 6 - 1) * sizeof(float), sizeof(last));
  EXPECT(last == 7, last);
  EXPECT(model.SetData(model.y_descriptor, 2 * config.num_units) == 0);
  EXPECT(model.Forward() == 0);
  std::memcpy(&last, model.y + (5 * 4 * 2 * 6 - 1) * sizeof(float), sizeof(last));
  EXPECT(last != last, "undefined without a fill");
}

// One misuse: `spoil` corrupts the arguments of the forward call.
struct Misuse {
  const char* name;
  const char* text;
  std::function<void(MockModel*)> spoil;
};

TEST(MockFindsWrongArgumentsOfForward) {
  const Misuse misuses[] = {
      {"x null", "x is null", [](MockModel* m) { m->x = nullptr; }},
      {"y null", "y is null", [](MockModel* m) { m->y = nullptr; }},
      {"hx misaligned", "hx at", [](MockModel* m) { m->hx += 4; }},
      {"y too short", "y at", [](MockModel* m) { m->y += 16; }},
      {"host memory", "is not device memory",
       [](MockModel* m) {
         alignas(64) static char memory[4096];
         m->x = memory;
       }},
      {"output on input", "y overlaps x", [](MockModel* m) { m->y = m->weights, m->x = m->y; }},
      {"hy on hx", "hy overlaps hx", [](MockModel* m) { m->hy = m->hx; }},
      {"weights misaligned", "weight_space at", [](MockModel* m) { m->weights += 16; }},
      {"weights short", "weight_space_bytes", [](MockModel* m) { --m->weight_space_bytes; }},
      {"workspace short", "workspace_bytes", [](MockModel* m) { --m->workspace_bytes; }},
      {"workspace null", "workspace is null", [](MockModel* m) { m->workspace = nullptr; }},
      {"reserve short", "reserve_space_bytes", [](MockModel* m) { --m->reserve_space_bytes; }},
      {"no reserve", "reserve_space is null", [](MockModel* m) { m->reserve_space = nullptr; }},
      {"garbage handle", "was not created", [](MockModel* m) { m->handle = m; }},
      {"garbage descriptor", "was not created", [](MockModel* m) { m->x_descriptor = m; }},
      {"x for y", "has vector size 3", [](MockModel* m) { m->y_descriptor = m->x_descriptor; }},
      {"c for h", "shape {4, 4, 4}", [](MockModel* m) { m->h_descriptor = m->c_descriptor; }},
      {"no c descriptor", "without a descriptor of c",
       [](MockModel* m) { m->c_descriptor = nullptr; }},
      {"mode", "forward_mode is 7", [](MockModel* m) { m->forward_mode = 7; }},
  };
  for (const Misuse& misuse : misuses) {
    FreshMock fresh;
    RnnConfig config = SmallLstm();
    config.num_proj = 4;
    MockModel model(config, Shape());
    model.LoadRandom();
    void* const kept[] = {model.handle, model.x_descriptor, model.y_descriptor, model.h_descriptor,
                          model.c_descriptor};
    misuse.spoil(&model);
    ExpectViolation(model.Forward(), misuse.text, misuse.name);
    model.handle = kept[0];
    model.x_descriptor = kept[1];
    model.y_descriptor = kept[2];
    model.h_descriptor = kept[3];
    model.c_descriptor = kept[4];
  }
}

TEST(MockFindsWrongDescriptors) {
  FreshMock fresh;
  const RnnConfig config = SmallLstm();
  const Shape shape;
  MockModel model(config, shape);
  model.LoadRandom();
  ExpectViolation(cudnnSetTensorNdDescriptor(model.h_descriptor, 0, 2, nullptr, nullptr),
                  "num_dimensions is 2");
  const int dimensions[] = {4, 4, 6}, strides[] = {48, 6, 1};
  EXPECT(cudnnSetTensorNdDescriptor(model.h_descriptor, 0, 3, dimensions, strides) == 0);
  ExpectViolation(model.Forward(), "not fully packed");
  EXPECT(model.SetStates(model.h_descriptor, 6) == 0);

  for (const int32_t length : {0, 6, -1}) {
    model.shape.lengths[3] = length;
    ExpectViolation(model.SetData(model.x_descriptor, 3), "lengths[3] must be 1 to 5");
  }
  model.shape.lengths[3] = 2;
  EXPECT(model.SetData(model.x_descriptor, 3) == 0);
  ExpectViolation(model.Forward(), "x and y differ");
  model.shape.layout = kCudnnLayoutTimeMajorPacked;
  model.shape.lengths = {5, 3, 4, 1};
  ExpectViolation(model.SetData(model.x_descriptor, 3), "only without padding");
  model.shape = shape;
  EXPECT(model.SetData(model.x_descriptor, 3) == 0);

  EXPECT(model.SetRnn(kCudnnAlgorithmStandard, kCudnnPaddedIoDisabled) == 0);
  ExpectViolation(model.Forward(), "padded IO");
  void* unset = nullptr;
  EXPECT(cudnnCreateRNNDescriptor(&unset) == 0);
  std::swap(unset, model.rnn);
  ExpectViolation(model.Forward(), "created, but not set");
  std::swap(unset, model.rnn);
  EXPECT(cudnnDestroyRNNDescriptor(unset) == 0);
  ExpectViolation(cudnnDestroyRNNDescriptor(unset), "is destroyed");
}

TEST(MockFindsWrongOrderAndChangedData) {
  FreshMock fresh;
  const RnnConfig config = SmallLstm();
  const Shape shape;
  MockModel model(config, shape);
  model.LoadRandom();
  std::memset(model.reserve_space, 0, model.reserve_space_bytes);
  ExpectViolation(model.BackwardData(), "not what a forward call in training left");
  EXPECT(model.Forward() == 0);
  ExpectViolation(model.BackwardWeights(), "must come before the weights' gradient");
  model.y[0] ^= 1;
  ExpectViolation(model.BackwardData(), "y is not that of the forward call");
  model.y[0] ^= 1;
  model.weights[5] ^= 1;
  ExpectViolation(model.BackwardData(), "weights is not that of the forward call");
  model.weights[5] ^= 1;
  model.hx[1] ^= 1;
  ExpectViolation(model.BackwardData(), "hx is not that");
  model.hx[1] ^= 1;
  // Only the row of y of a sequence of length 1 (the last of four) may be cleared.
  const size_t row = 2 * 6 * sizeof(float);
  std::memset(model.y + 3 * row, 0, row);
  EXPECT(model.BackwardData() == 0);
  ExpectViolation(model.BackwardData(), "has used this reserve space already");
  model.dweights[9] = 1;
  ExpectViolation(model.BackwardWeights(), "was not cleared");
  model.dweights[9] = 0;
  model.x[2] ^= 1;
  ExpectViolation(model.BackwardWeights(), "x is not that of the forward call");
  model.x[2] ^= 1;
  std::memset(model.y + 2 * row, 0, row);
  ExpectViolation(model.BackwardWeights(), "y is not that of the forward call");

  MockModel other(config, Shape{4, {4, 3, 3, 1}, kCudnnLayoutTimeMajorPadded});
  other.LoadRandom();
  other.reserve_space = model.reserve_space;
  ExpectViolation(other.BackwardData(), "of another model, shape or lengths");
}

TEST(MockFindsGapsThatAreNotZero) {
  FreshMock fresh;
  mock_set_padded_weights(1);
  const RnnConfig config = SmallLstm();
  MockModel model(config, Shape());
  model.LoadRandom();
  model.weights[model.weight_space_bytes - 1] = 1;
  ExpectViolation(model.Forward(), "not 0 between its regions");
}

TEST(MockRequiresDeviceLengthsInOldVersions) {
  FreshMock fresh;
  const RnnConfig config = SmallLstm();
  MockModel model(config, Shape());
  model.LoadRandom();
  mock_set_version(8907);
  EXPECT(model.Forward() == 0);
  mock_set_version(8800);
  EXPECT(cudnnGetVersion() == 8800);
  ExpectViolation(model.Forward(), "device_lengths may not be null in version 8800");
  Allocation lengths(16);
  model.device_lengths = reinterpret_cast<int32_t*>(lengths.data());
  ExpectViolation(model.Forward(), "device_lengths differ");
  std::memcpy(lengths.data(), model.shape.lengths.data(), 16);
  mock_set_version(8800);
  EXPECT(model.Forward() == 0);
}

TEST(MockRefusesUnsupportedAlgorithms) {
  FreshMock fresh;
  const int not_supported = 3000;
  RnnConfig config = SmallLstm();
  Shape shape;
  MockModel model(config, shape);
  for (const int algorithm : {1, 2, 3}) {
    EXPECT(model.SetRnn(algorithm, kCudnnPaddedIoEnabled) == not_supported, algorithm);
    EXPECT(model.SetRnn(algorithm, kCudnnPaddedIoDisabled) == 0, algorithm);
  }
  model.config.num_units = 385;
  EXPECT(model.SetRnn(kCudnnAlgorithmPersistStatic, kCudnnPaddedIoDisabled) == 0);
  EXPECT(model.SetRnn(kCudnnAlgorithmPersistStaticSmallH, kCudnnPaddedIoDisabled) == not_supported);
  model.config.num_proj = 8;
  EXPECT(model.SetRnn(kCudnnAlgorithmPersistStatic, kCudnnPaddedIoDisabled) == not_supported);
  model.config.data_type = DataType::kBfloat16;
  EXPECT(model.SetRnn(kCudnnAlgorithmStandard, kCudnnPaddedIoDisabled) == 0);
  mock_set_version(91200);
  EXPECT(model.SetRnn(kCudnnAlgorithmStandard, kCudnnPaddedIoDisabled) == not_supported);
  mock_set_version(8905);
  EXPECT(model.SetRnn(kCudnnAlgorithmStandard, kCudnnPaddedIoDisabled) == 9);
  EXPECT(mock_violations() == 0, mock_violation_text());

  mock_reset();
  shape.layout = kCudnnLayoutTimeMajorPacked;
  shape.lengths = {5, 5, 5, 5};
  MockModel dynamic(config, shape, kCudnnAlgorithmPersistDynamic);
  dynamic.LoadRandom();
  ExpectViolation(dynamic.Forward(), "cudnnBuildRNNDynamic was called for batch size 0, not 4");
  EXPECT(cudnnBuildRNNDynamic(dynamic.handle, dynamic.rnn, 4) == 0);
  mock_set_algorithm_support(kCudnnAlgorithmPersistDynamic, MOCK_REFUSED_BY_FORWARD);
  EXPECT(dynamic.Forward() == not_supported);
  mock_set_algorithm_support(kCudnnAlgorithmPersistDynamic, MOCK_REFUSED_BY_BACKWARD);
  EXPECT(dynamic.Forward() == 0);
  EXPECT(dynamic.BackwardData() == not_supported);
  mock_set_algorithm_support(kCudnnAlgorithmPersistDynamic, MOCK_REFUSED_BY_DESCRIPTOR);
  EXPECT(dynamic.SetRnn(kCudnnAlgorithmPersistDynamic, 0) == not_supported);
}

TEST(MockFindsAHandleThatTwoThreadsUse) {
  FreshMock fresh;
  const RnnConfig config = SmallLstm();
  MockModel first(config, Shape()), second(config, Shape());
  first.LoadRandom();
  second.LoadRandom();
  const auto run_second = [&] {
    mock_set_thread_device(0);
    second.Forward();
  };
  mock_let_calls_meet(2);
  std::thread with_its_own(run_second);
  EXPECT(first.Forward() == 0);
  with_its_own.join();
  EXPECT(mock_violations() == 0, mock_violation_text());
  void* const own = second.handle;
  second.handle = first.handle;
  mock_let_calls_meet(2);
  std::thread with_the_same(run_second);
  first.Forward();
  with_the_same.join();
  second.handle = own;
  ExpectViolation(-1, "is in use by another thread");
}

}  // namespace
}  // namespace mock_test
}  // namespace cudnn_rnn
