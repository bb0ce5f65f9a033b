// Runs plans on buffers in host memory.
#ifndef CUDNN_RNN_TESTS_CORE_PLAN_RUNNER_H_
#define CUDNN_RNN_TESTS_CORE_PLAN_RUNNER_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/core/problem.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {

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

// Call the plan with a workspace of exactly the required size.
inline Status CallForward(const RnnPlan& plan, const CallOptions& options,
                          const Execution& execution, PlanBuffers* buffers) {
  Memory workspace(plan.ForwardWorkspaceBytes(options));
  buffers->forward.workspace = workspace.data();
  return plan.Forward(buffers->forward, options, execution);
}
inline Status CallBackward(const RnnPlan& plan, const CallOptions& options,
                           const Execution& execution, PlanBuffers* buffers) {
  Memory workspace(plan.BackwardWorkspaceBytes(options));
  buffers->backward.workspace = workspace.data();
  return plan.Backward(buffers->backward, options, execution);
}

// Checks that inference gives the same bits if it fills packed weights, and if it only reads them.
inline void CheckPackedWeights(const RnnPlan& plan, const Problem& problem,
                               const Execution& execution, const Tensors& expected,
                               PlanBuffers* buffers) {
  const CallOptions options = problem.Options(/*is_training=*/false);
  const int64_t bytes = plan.PackedWeights(options).bytes;
  if (bytes == 0) return;
  Memory packed_weights(bytes);
  buffers->forward.packed_weights = packed_weights.data();
  for (bool are_ready : {false, true}) {
    Tensors found = expected;
    buffers->forward.packed_weights_are_ready = are_ready;
    EXPECT(CallForward(plan, options, execution, buffers).ok(), problem.Text());
    buffers->ReadResults(&found);
    ExpectSameBits(found, expected,
                   Concatenate("packed weights, ready ", are_ready, ": ", problem.Text()));
  }
}

// Runs the plan's forward pass and, in training, its backward pass on the problem.
inline void RunPlan(const RnnPlan& plan, const Problem& problem, const Execution& execution,
                    bool is_training, Tensors* tensors) {
  CallOptions options = problem.Options(is_training);
  PlanBuffers buffers(*tensors, problem.config.data_type,
                      is_training ? plan.ReserveSpaceBytes() : 0);
  Status status = CallForward(plan, options, execution, &buffers);
  EXPECT(status.ok(), problem.Text(), ": ", status.message());
  if (is_training) status = CallBackward(plan, options, execution, &buffers);
  EXPECT(status.ok(), problem.Text(), ": ", status.message());
  buffers.ReadResults(tensors);
  if (!is_training) return CheckPackedWeights(plan, problem, execution, *tensors, &buffers);

  // Once more, overwriting the reserve space, which the plan must then refuse.
  Tensors in_place = *tensors;
  buffers.ClearGradients();
  options.keeps_reserve_space = false;
  EXPECT(CallBackward(plan, options, execution, &buffers).ok(), problem.Text());
  buffers.ReadResults(&in_place);
  ExpectSameBits(in_place, *tensors, "in place: " + problem.Text());
  options.keeps_reserve_space = true;
  EXPECT(!CallBackward(plan, options, execution, &buffers).ok(), problem.Text());
}

inline void RunCpuPlan(const Problem& problem, ParallelRunner* runner, bool is_training,
                       Tensors* tensors, const std::string& instruction_set = "") {
  std::unique_ptr<RnnPlan> plan;
  const Status created = CreateCpuPlan(problem.config, problem.shape, instruction_set, &plan);
  EXPECT(created.ok(), problem.Text(), ": ", created.message());
  if (created.ok()) RunPlan(*plan, problem, {runner}, is_training, tensors);
}

// Returns the largest difference, relative to the largest expected magnitude; infinite for NaN.
inline double LargestDifference(const Vector& found, const Vector& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double largest = 1e-30, worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double difference = std::abs(found[i] - expected[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst / largest;
}

inline void ExpectClose(const Vector& found, const Vector& expected, double tolerance,
                        const std::string& what) {
  const double difference = LargestDifference(found, expected);
  EXPECT(difference <= tolerance, difference, " in ", what);
}

// Compares the results of a forward call.
inline void ExpectForwardClose(const Tensors& found, const Tensors& expected, double tolerance,
                               const std::string& what) {
  ExpectClose(found.output, expected.output, tolerance, "output of " + what);
  ExpectClose(found.output_h, expected.output_h, tolerance, "output_h of " + what);
  ExpectClose(found.output_c, expected.output_c, tolerance, "output_c of " + what);
}

// Runs the problem alone and with each number of threads.
inline void ExpectSameBitsOnThreads(const Problem& problem, bool is_training,
                                    int64_t min_cycles_to_wait,
                                    const std::vector<int>& thread_counts) {
  SerialRunner serial;
  Tensors expected = MakeTensors(problem);
  RunCpuPlan(problem, &serial, is_training, &expected);
  for (int num_threads : thread_counts) {
    ThreadRunner threads(num_threads, min_cycles_to_wait);
    Tensors found = MakeTensors(problem);
    RunCpuPlan(problem, &threads, is_training, &found);
    ExpectSameBits(found, expected, Concatenate(problem.Text(), num_threads));
  }
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_PLAN_RUNNER_H_
