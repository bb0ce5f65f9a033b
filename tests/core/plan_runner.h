// Runs plans on buffers in host memory.
#ifndef CUDNN_RNN_TESTS_CORE_PLAN_RUNNER_H_
#define CUDNN_RNN_TESTS_CORE_PLAN_RUNNER_H_

#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/cpu/buffers.h"
#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/core/naive_rnn.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {

// Returns the values rounded to the data type.
inline Vector Rounded(const Vector& values, DataType data_type) {
  return Buffer(values, data_type).Values();
}

// Sets the padding in a buffer of steps, whose rows have `width` elements.
inline void FillPadding(const Problem& problem, int64_t width, double value, Vector* buffer) {
  for (int64_t b = 0; b < problem.shape.batch_size; ++b) {
    for (int64_t time = problem.Length(b); time < problem.shape.num_steps; ++time) {
      std::fill_n(buffer->begin() + problem.StepRow(time, b) * width, width, value);
    }
  }
}

// Returns random inputs and random output gradients, the weights of a weighted sum of the three
// outputs. Padding is NaN.
inline Tensors MakeTensors(const Problem& problem) {
  std::mt19937 generator(17);
  const auto random = [&](int64_t size, double scale) {
    std::uniform_real_distribution<double> uniform(-scale, scale);
    Vector values(static_cast<size_t>(size));
    for (double& value : values) value = uniform(generator);
    return Rounded(values, problem.config.data_type);
  };
  Tensors tensors;
  tensors.input = random(problem.inputs(), 1);
  tensors.input_h = random(problem.hidden_states(), 1);
  tensors.input_c = random(problem.cell_states(), 1);
  tensors.params = random(problem.params(), 0.5);
  tensors.output_backprop = random(problem.outputs(), 1);
  tensors.output_h_backprop = random(problem.hidden_states(), 1);
  tensors.output_c_backprop = random(problem.cell_states(), 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  FillPadding(problem, problem.config.input_size, nan, &tensors.input);
  FillPadding(problem, problem.output_width(), nan, &tensors.output_backprop);
  return tensors;
}

inline CallOptions OptionsOf(const Problem& problem, bool is_training) {
  CallOptions options;
  options.is_training = is_training;
  options.sequence_lengths = problem.lengths;
  return options;
}

inline bool SameBits(const Vector& a, const Vector& b) {
  if (a.size() != b.size() || a.empty()) return a.size() == b.size();
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// A result of a training call, with its name.
struct Result {
  const char* name;
  Vector Tensors::*values;
};
inline const std::vector<Result>& Results() {
  static const std::vector<Result> results = {
      {"output", &Tensors::output},
      {"output_h", &Tensors::output_h},
      {"output_c", &Tensors::output_c},
      {"input_backprop", &Tensors::input_backprop},
      {"input_h_backprop", &Tensors::input_h_backprop},
      {"input_c_backprop", &Tensors::input_c_backprop},
      {"params_backprop", &Tensors::params_backprop},
  };
  return results;
}

inline void ExpectSameBits(const Tensors& found, const Tensors& expected, const std::string& what) {
  for (const Result& result : Results()) {
    EXPECT(SameBits(found.*result.values, expected.*result.values), result.name, " of ", what);
  }
}

// Runs the backward pass that follows the forward pass with these buffers.
inline Status RunBackward(const RnnPlan& plan, const Problem& problem, const Execution& execution,
                          const ForwardBuffers& forward, void* reserve_space,
                          bool keeps_reserve_space, Tensors* tensors) {
  const DataType data_type = problem.config.data_type;
  Buffer output_backprop(tensors->output_backprop, data_type);
  Buffer output_h_backprop(tensors->output_h_backprop, data_type);
  Buffer output_c_backprop(tensors->output_c_backprop, data_type);
  Buffer input_backprop(problem.inputs(), data_type), params_backprop(problem.params(), data_type);
  Buffer input_h_backprop(problem.hidden_states(), data_type);
  Buffer input_c_backprop(problem.cell_states(), data_type);
  CallOptions options = OptionsOf(problem, /*is_training=*/false);
  options.keeps_reserve_space = keeps_reserve_space;
  Memory backward_workspace(plan.BackwardWorkspaceBytes(options));
  BackwardBuffers backward;
  backward.input = forward.input;
  backward.input_h = forward.input_h;
  backward.input_c = forward.input_c;
  backward.params = forward.params;
  backward.output = forward.output;
  backward.output_h = forward.output_h;
  backward.output_backprop = output_backprop.data();
  backward.output_h_backprop = output_h_backprop.data();
  backward.output_c_backprop = output_c_backprop.data();
  backward.reserve_space = reserve_space;
  backward.reserve_space_bytes = plan.ReserveSpaceBytes();
  backward.input_backprop = input_backprop.data();
  backward.input_h_backprop = input_h_backprop.data();
  backward.input_c_backprop = input_c_backprop.data();
  backward.params_backprop = params_backprop.data();
  backward.workspace = backward_workspace.data();
  const Status status = plan.Backward(backward, options, execution);
  if (!status.ok()) return status;
  tensors->input_backprop = input_backprop.Values();
  tensors->input_h_backprop = input_h_backprop.Values();
  tensors->input_c_backprop = input_c_backprop.Values();
  tensors->params_backprop = params_backprop.Values();
  return status;
}

// Runs the plan's forward pass and, in training, its backward pass on the problem.
inline void RunPlan(const RnnPlan& plan, const Problem& problem, const Execution& execution,
                    bool is_training, Tensors* tensors) {
  const DataType data_type = problem.config.data_type;
  const CallOptions options = OptionsOf(problem, is_training);
  Buffer input(tensors->input, data_type), input_h(tensors->input_h, data_type);
  Buffer input_c(tensors->input_c, data_type), params(tensors->params, data_type);
  Buffer output(problem.outputs(), data_type), output_h(problem.hidden_states(), data_type);
  Buffer output_c(problem.cell_states(), data_type);
  Memory reserve_space(plan.ReserveSpaceBytes());
  Memory forward_workspace(plan.ForwardWorkspaceBytes(options));
  ForwardBuffers forward;
  forward.input = input.data();
  forward.input_h = input_h.data();
  forward.input_c = input_c.data();
  forward.params = params.data();
  forward.output = output.data();
  forward.output_h = output_h.data();
  forward.output_c = output_c.data();
  forward.reserve_space = is_training ? reserve_space.data() : nullptr;
  forward.workspace = forward_workspace.data();
  const Status forward_status = plan.Forward(forward, options, execution);
  EXPECT(forward_status.ok(), forward_status.message(), problem.Text());
  tensors->output = output.Values();
  tensors->output_h = output_h.Values();
  tensors->output_c = output_c.Values();
  if (!is_training) return;

  const auto run_backward = [&](bool keeps_reserve_space, Tensors* gradients) {
    return RunBackward(plan, problem, execution, forward, reserve_space.data(), keeps_reserve_space,
                       gradients);
  };
  const Status status = run_backward(true, tensors);
  EXPECT(status.ok(), status.message(), problem.Text());
  // Once more, overwriting the reserve space, which the plan must then refuse.
  Tensors in_place = *tensors;
  EXPECT(run_backward(false, &in_place).ok(), problem.Text());
  ExpectSameBits(in_place, *tensors, "in place: " + problem.Text());
  EXPECT(!run_backward(true, &in_place).ok(), problem.Text());
}

inline void RunCpuPlan(const Problem& problem, ParallelRunner* runner, bool is_training,
                       Tensors* tensors, const std::string& instruction_set = "") {
  std::unique_ptr<RnnPlan> plan;
  const Status created = CreateCpuPlan(problem.config, problem.shape, instruction_set, &plan);
  EXPECT(created.ok(), created.message());
  if (created.ok()) RunPlan(*plan, problem, {runner}, is_training, tensors);
}

// Expects every difference to be within `tolerance` times the largest expected magnitude.
inline void ExpectClose(const Vector& found, const Vector& expected, double tolerance,
                        const std::string& what) {
  EXPECT(found.size() == expected.size(), what);
  double largest = 0, worst = 0;
  for (size_t i = 0; i < expected.size() && i < found.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double difference = std::abs(found[i] - expected[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  EXPECT(worst <= tolerance * std::max(largest, 1e-30), worst, " of ", largest, " in ", what);
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_PLAN_RUNNER_H_
