// The CPU plan against a naive reference, gradients against differences, threads, instruction
// sets and reserve spaces.

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/reserve_space.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/float16.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

using Vector = std::vector<double>;

struct Problem {
  RnnConfig config;
  int64_t num_steps;
  int64_t batch_size;

  int64_t states() const {
    return config.num_layers * config.num_directions() * batch_size * config.num_units;
  }
  int64_t inputs() const { return num_steps * batch_size * config.input_size; }
  int64_t outputs() const {
    return num_steps * batch_size * config.num_directions() * config.num_units;
  }
  int64_t params() const {
    ParamLayout layout;
    return ParamLayout::Create(config, &layout).ok() ? layout.size() : 0;
  }
  std::string Text() const {
    return Concatenate("{", Name(config.mode), ", ", Name(config.direction), ", input mode ",
                       static_cast<int>(config.input_mode), ", layers ", config.num_layers,
                       ", units ", config.num_units, ", input ", config.input_size, ", dropout ",
                       config.dropout, ", steps ", num_steps, ", batch ", batch_size, "}");
  }
};

// The problem's tensors, and the gradients of sum(weights * outputs) for the three outputs.
template <typename T>
struct Tensors {
  std::vector<T> input, input_h, input_c, params;
  std::vector<T> output, output_h, output_c;
  std::vector<T> output_backprop, output_h_backprop, output_c_backprop;
  std::vector<T> input_backprop, input_h_backprop, input_c_backprop, params_backprop;
};

template <typename T>
std::vector<T> Random(int64_t size, double scale, std::mt19937* generator) {
  std::uniform_real_distribution<double> uniform(-scale, scale);
  std::vector<T> values(static_cast<size_t>(size));
  for (T& value : values) value = static_cast<T>(uniform(*generator));
  return values;
}

template <typename T>
Tensors<T> MakeTensors(const Problem& problem) {
  std::mt19937 generator(17);
  Tensors<T> tensors;
  tensors.input = Random<T>(problem.inputs(), 1, &generator);
  tensors.input_h = Random<T>(problem.states(), 1, &generator);
  tensors.input_c = Random<T>(problem.states(), 1, &generator);
  tensors.params = Random<T>(problem.params(), 0.5, &generator);
  tensors.output_backprop = Random<T>(problem.outputs(), 1, &generator);
  tensors.output_h_backprop = Random<T>(problem.states(), 1, &generator);
  tensors.output_c_backprop = Random<T>(problem.states(), 1, &generator);
  return tensors;
}

// Aligned memory, as an allocator of tensors gives it, full of what would show if it were read.
class Memory {
 public:
  explicit Memory(int64_t bytes) : storage_(static_cast<size_t>(bytes) + 64, '\xff') {}
  char* data() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<char> storage_;
};

template <typename T>
void RunPlan(const Problem& problem, ParallelRunner* runner, bool is_training, Tensors<T>* tensors,
             const std::string& instruction_set = "") {
  std::unique_ptr<RnnPlan> plan;
  const Status created = CreateCpuPlan(problem.config, {problem.num_steps, problem.batch_size},
                                       instruction_set, &plan);
  EXPECT(created.ok(), created.message());
  if (!created.ok()) return;
  tensors->output.assign(problem.outputs(), T(99));
  tensors->output_h.assign(problem.states(), T(99));
  tensors->output_c.assign(problem.states(), T(99));
  Memory reserve_space(plan->ReserveSpaceBytes());
  CallOptions options;
  options.is_training = is_training;
  Memory forward_workspace(plan->ForwardWorkspaceBytes(options));
  ForwardBuffers forward;
  forward.input = tensors->input.data();
  forward.input_h = tensors->input_h.data();
  forward.input_c = tensors->input_c.data();
  forward.params = tensors->params.data();
  forward.output = tensors->output.data();
  forward.output_h = tensors->output_h.data();
  forward.output_c = tensors->output_c.data();
  forward.reserve_space = is_training ? reserve_space.data() : nullptr;
  forward.workspace = forward_workspace.data();
  EXPECT(plan->Forward(forward, options, {runner}).ok());
  if (!is_training) return;

  tensors->input_backprop.assign(problem.inputs(), T(99));
  tensors->input_h_backprop.assign(problem.states(), T(99));
  tensors->input_c_backprop.assign(problem.states(), T(99));
  tensors->params_backprop.assign(problem.params(), T(99));
  Memory backward_workspace(plan->BackwardWorkspaceBytes(options));
  BackwardBuffers backward;
  backward.input = forward.input;
  backward.input_h = forward.input_h;
  backward.input_c = forward.input_c;
  backward.params = forward.params;
  backward.output = forward.output;
  backward.output_h = forward.output_h;
  backward.output_backprop = tensors->output_backprop.data();
  backward.output_h_backprop = tensors->output_h_backprop.data();
  backward.output_c_backprop = tensors->output_c_backprop.data();
  backward.reserve_space = reserve_space.data();
  backward.reserve_space_bytes = plan->ReserveSpaceBytes();
  backward.input_backprop = tensors->input_backprop.data();
  backward.input_h_backprop = tensors->input_h_backprop.data();
  backward.input_c_backprop = tensors->input_c_backprop.data();
  backward.params_backprop = tensors->params_backprop.data();
  backward.workspace = backward_workspace.data();
  const Status status = plan->Backward(backward, options, {runner});
  EXPECT(status.ok(), status.message());
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

// One step for one sequence, straight from the formulas. x has the layer's width.
void NaiveStep(const RnnConfig& config, const ParamLayout& layout, int64_t layer, int64_t direction,
               const double* params, const double* x, double* h, double* c) {
  const int64_t units = config.num_units, gates = config.num_gates();
  const int64_t width = layout.InputWeightColumns(layer);
  Vector from_input(gates * units), from_state(gates * units);
  for (int64_t j = 0; j < gates * units; ++j) {
    from_input[j] = params[layout.InputBiases(layer, direction) + j];
    if (width == 0) from_input[j] += x[j % units];
    for (int64_t k = 0; k < width; ++k) {
      from_input[j] += params[layout.InputWeights(layer, direction) + j * width + k] * x[k];
    }
    from_state[j] = params[layout.RecurrentBiases(layer, direction) + j];
    for (int64_t k = 0; k < units; ++k) {
      from_state[j] += params[layout.RecurrentWeights(layer, direction) + j * units + k] * h[k];
    }
  }
  const auto gate = [&](int64_t g, int64_t j) {
    return from_input[g * units + j] + from_state[g * units + j];
  };
  for (int64_t j = 0; j < units; ++j) {
    switch (config.mode) {
      case RnnMode::kLstm:
        c[j] = Logistic(gate(1, j)) * c[j] + Logistic(gate(0, j)) * std::tanh(gate(2, j));
        h[j] = Logistic(gate(3, j)) * std::tanh(c[j]);
        break;
      case RnnMode::kGru: {
        const double r = Logistic(gate(0, j)), u = Logistic(gate(1, j));
        const double n = std::tanh(from_input[2 * units + j] + r * from_state[2 * units + j]);
        h[j] = (1 - u) * n + u * h[j];
        break;
      }
      case RnnMode::kTanh:
        h[j] = std::tanh(gate(0, j));
        break;
      case RnnMode::kRelu:
        h[j] = std::max(0.0, gate(0, j));
        break;
    }
  }
}

// Without dropout.
void NaiveForward(const Problem& problem, Tensors<double>* tensors) {
  const RnnConfig& config = problem.config;
  ParamLayout layout;
  EXPECT(ParamLayout::Create(config, &layout).ok());
  const int64_t units = config.num_units, directions = config.num_directions();
  const int64_t batch = problem.batch_size;
  Vector input = tensors->input;
  tensors->output_h = tensors->input_h;
  tensors->output_c = tensors->input_c;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t width = config.LayerInputSize(layer);
    Vector output(problem.outputs());
    for (int64_t d = 0; d < directions; ++d) {
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t state = ((layer * directions + d) * batch + b) * units;
        for (int64_t step = 0; step < problem.num_steps; ++step) {
          const int64_t time = d == 0 ? step : problem.num_steps - 1 - step;
          const int64_t row = time * batch + b;
          NaiveStep(config, layout, layer, d, tensors->params.data(), &input[row * width],
                    &tensors->output_h[state], &tensors->output_c[state]);
          std::copy_n(&tensors->output_h[state], units, &output[(row * directions + d) * units]);
        }
      }
    }
    input = output;
  }
  tensors->output = input;
}

template <typename T>
void ExpectClose(const std::vector<T>& found, const Vector& expected, double tolerance,
                 const std::string& what) {
  EXPECT(found.size() == expected.size(), what);
  double largest = 0, worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double difference = std::abs(static_cast<double>(found[i]) - expected[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  EXPECT(worst <= tolerance * std::max(largest, 1e-30), worst, " of ", largest, " in ", what);
}

std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  struct Shape {
    int64_t layers, units, input, steps, batch;
  };
  const Shape shapes[] = {{1, 1, 1, 1, 1},  {1, 3, 5, 4, 2},   {2, 5, 3, 2, 9},
                          {3, 17, 4, 5, 3}, {2, 33, 33, 3, 1}, {1, 50, 7, 6, 35}};
  for (RnnMode mode : {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
    for (Direction direction : {Direction::kUnidirectional, Direction::kBidirectional}) {
      for (InputMode input_mode : {InputMode::kLinear, InputMode::kSkip, InputMode::kAuto}) {
        for (const Shape& shape : shapes) {
          Problem problem;
          problem.config.mode = mode;
          problem.config.direction = direction;
          problem.config.input_mode = input_mode;
          problem.config.num_layers = shape.layers;
          problem.config.num_units = shape.units;
          problem.config.input_size = input_mode == InputMode::kSkip ? shape.units : shape.input;
          problem.num_steps = shape.steps;
          problem.batch_size = shape.batch;
          problems.push_back(problem);
        }
      }
    }
  }
  return problems;
}

template <typename T>
void CompareWithNaive(DataType data_type, double tolerance) {
  SerialRunner runner;
  for (Problem problem : Problems()) {
    problem.config.data_type = data_type;
    Tensors<T> found = MakeTensors<T>(problem);
    Tensors<double> expected;
    expected.input.assign(found.input.begin(), found.input.end());
    expected.input_h.assign(found.input_h.begin(), found.input_h.end());
    expected.input_c.assign(found.input_c.begin(), found.input_c.end());
    expected.params.assign(found.params.begin(), found.params.end());
    NaiveForward(problem, &expected);
    for (bool is_training : {true, false}) {
      RunPlan(problem, &runner, is_training, &found);
      const std::string what = problem.Text() + (is_training ? " training" : " inference");
      ExpectClose(found.output, expected.output, tolerance, "output of " + what);
      ExpectClose(found.output_h, expected.output_h, tolerance, "output_h of " + what);
      if (problem.config.has_cell_state()) {
        ExpectClose(found.output_c, expected.output_c, tolerance, "output_c of " + what);
      }
    }
  }
}

TEST(ForwardAgreesWithNaiveFloat) { CompareWithNaive<float>(DataType::kFloat, 1e-5); }
TEST(ForwardAgreesWithNaiveDouble) { CompareWithNaive<double>(DataType::kDouble, 1e-12); }

double WeightedSum(const Problem& problem, const Tensors<double>& tensors) {
  double sum = 0;
  for (size_t i = 0; i < tensors.output.size(); ++i) {
    sum += tensors.output[i] * tensors.output_backprop[i];
  }
  for (size_t i = 0; i < tensors.output_h.size(); ++i) {
    sum += tensors.output_h[i] * tensors.output_h_backprop[i];
    if (problem.config.has_cell_state()) sum += tensors.output_c[i] * tensors.output_c_backprop[i];
  }
  return sum;
}

// A few elements of each tensor against central differences, through the plan itself, so that
// dropout (whose pattern repeats) can be on.
void CheckGradients(const Problem& problem) {
  SerialRunner runner;
  Tensors<double> tensors = MakeTensors<double>(problem);
  RunPlan(problem, &runner, true, &tensors);
  const Tensors<double> analytic = tensors;
  struct Pair {
    const char* name;
    Vector* values;
    const Vector* gradient;
  };
  const Pair pairs[] = {
      {"input", &tensors.input, &analytic.input_backprop},
      {"input_h", &tensors.input_h, &analytic.input_h_backprop},
      {"input_c", problem.config.has_cell_state() ? &tensors.input_c : nullptr,
       &analytic.input_c_backprop},
      {"params", &tensors.params, &analytic.params_backprop},
  };
  for (const Pair& pair : pairs) {
    if (pair.values == nullptr) continue;
    const size_t stride = std::max<size_t>(1, pair.values->size() / 23);
    for (size_t i = 0; i < pair.values->size(); i += stride) {
      const double original = (*pair.values)[i], delta = 1e-6;
      double sums[2];
      for (int side : {0, 1}) {
        (*pair.values)[i] = original + (side == 0 ? delta : -delta);
        RunPlan(problem, &runner, true, &tensors);
        sums[side] = WeightedSum(problem, tensors);
      }
      (*pair.values)[i] = original;
      const double numeric = (sums[0] - sums[1]) / (2 * delta);
      EXPECT(std::abs(numeric - (*pair.gradient)[i]) < 5e-6 * std::max(1.0, std::abs(numeric)),
             "d ", pair.name, "[", i, "] is ", (*pair.gradient)[i], ", not ", numeric, " in ",
             problem.Text());
    }
  }
}

TEST(GradientsAgreeWithDifferences) {
  for (Problem problem : Problems()) {
    if (problem.config.num_units > 20) continue;
    problem.config.data_type = DataType::kDouble;
    problem.config.dropout = problem.config.num_layers > 1 ? 0.4f : 0.0f;
    problem.config.seed = 3;
    CheckGradients(problem);
  }
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size() || a.empty()) return a.size() == b.size();
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(ThreadsDoNotChangeABit) {
  for (RnnMode mode : {RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
    Problem problem;
    problem.config.mode = mode;
    problem.config.direction = Direction::kBidirectional;
    problem.config.num_layers = 2;
    problem.config.num_units = 133;
    problem.config.input_size = 70;
    problem.config.dropout = 0.3f;
    problem.num_steps = 7;
    problem.batch_size = 37;
    SerialRunner serial;
    Tensors<float> expected = MakeTensors<float>(problem);
    RunPlan(problem, &serial, true, &expected);
    for (int num_threads : {2, 3, 4, 7}) {
      ThreadRunner threads(num_threads);
      Tensors<float> found = MakeTensors<float>(problem);
      RunPlan(problem, &threads, true, &found);
      EXPECT(SameBits(found.output, expected.output), problem.Text(), num_threads);
      EXPECT(SameBits(found.output_h, expected.output_h), problem.Text(), num_threads);
      EXPECT(SameBits(found.output_c, expected.output_c), problem.Text(), num_threads);
      EXPECT(SameBits(found.input_backprop, expected.input_backprop), problem.Text(), num_threads);
      EXPECT(SameBits(found.input_h_backprop, expected.input_h_backprop), problem.Text());
      EXPECT(SameBits(found.input_c_backprop, expected.input_c_backprop), problem.Text());
      EXPECT(SameBits(found.params_backprop, expected.params_backprop), problem.Text());
    }
  }
}

TEST(InstructionSetsAgree) {
  SerialRunner runner;
  for (const Problem& problem : Problems()) {
    Tensors<float> expected = MakeTensors<float>(problem);
    RunPlan(problem, &runner, true, &expected, "portable");
    for (const Kernels<float>* kernels : AllKernels<float>()) {
      Tensors<float> found = MakeTensors<float>(problem);
      RunPlan(problem, &runner, true, &found, kernels->instruction_set);
      const auto compare = [&](const std::vector<float>& a, const std::vector<float>& b) {
        ExpectClose(a, Vector(b.begin(), b.end()), 1e-5,
                    Concatenate(kernels->instruction_set, " ", problem.Text()));
      };
      compare(found.output, expected.output);
      compare(found.input_backprop, expected.input_backprop);
      compare(found.params_backprop, expected.params_backprop);
    }
  }
  std::unique_ptr<RnnPlan> plan;
  EXPECT_ERROR(CreateCpuPlan(RnnConfig(), {1, 1}, "quantum", &plan), kInstructionSetVariable,
               "quantum", "avx2");
}

TEST(EmptyBatchAndNoSteps) {
  SerialRunner runner;
  for (Problem problem : Problems()) {
    for (int64_t steps : {0, 3}) {
      for (int64_t batch : {0, 2}) {
        if (steps * batch > 0) continue;
        problem.num_steps = steps;
        problem.batch_size = batch;
        Tensors<float> tensors = MakeTensors<float>(problem);
        RunPlan(problem, &runner, true, &tensors);
        EXPECT(SameBits(tensors.output_h, tensors.input_h), problem.Text());
        EXPECT(SameBits(tensors.input_h_backprop, tensors.output_h_backprop), problem.Text());
        if (problem.config.has_cell_state()) {
          EXPECT(SameBits(tensors.output_c, tensors.input_c), problem.Text());
          EXPECT(SameBits(tensors.input_c_backprop, tensors.output_c_backprop), problem.Text());
        }
        for (float value : tensors.params_backprop) EXPECT(value == 0.0f, problem.Text());
      }
    }
  }
}

TEST(ReserveSpacesOfOthersAreRefused) {
  RnnConfig config;
  config.num_units = 3;
  config.input_size = 2;
  const ReserveSpaceIdentity identity = {PlanFingerprint(config, {4, 5}), 77};
  char reserve_space[kReserveHeaderBytes];
  WriteReserveHeader(identity, 12, reserve_space);
  int64_t call = 0;
  EXPECT(ReadReserveHeader(identity, 64, reserve_space, 64, &call).ok() && call == 12);
  EXPECT_ERROR(ReadReserveHeader(identity, 64, nullptr, 0, &call), "reserve_space", "64", "0",
               "is_training");
  EXPECT_ERROR(ReadReserveHeader({identity.plan + 1, 77}, 64, reserve_space, 64, &call),
               "reserve_space", "not made for this model");
  EXPECT_ERROR(ReadReserveHeader({identity.plan, 78}, 64, reserve_space, 64, &call),
               "reserve_space", "another forward call");
  // Each field of the config and of the shape counts.
  std::vector<RnnConfig> others(9, config);
  others[0].mode = RnnMode::kGru;
  others[1].direction = Direction::kBidirectional;
  others[2].data_type = DataType::kHalf;
  others[3].num_layers = 2;
  others[4].num_units = 2;
  others[5].input_size = 3;
  others[6].dropout = 0.5f;
  others[7].seed = 1;
  others[8].seed2 = 1;
  for (const RnnConfig& other : others) EXPECT(PlanFingerprint(other, {4, 5}) != identity.plan);
  EXPECT(PlanFingerprint(config, {5, 4}) != identity.plan);
}

TEST(TooLargeForTheInputIsRefused) {
  RnnConfig config;
  config.num_units = 1 << 20;
  std::unique_ptr<RnnPlan> plan;
  EXPECT_ERROR(CreateCpuPlan(config, {int64_t(1) << 40, int64_t(1) << 20}, "", &plan), "num_units",
               "64 bits");
  EXPECT_ERROR(CreateCpuPlan(config, {int64_t(1) << 62, 1}, "", &plan), "64 bits");
}

}  // namespace
}  // namespace cudnn_rnn
