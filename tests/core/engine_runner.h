// Runs engines without a plan, with any kernels.
#ifndef CUDNN_RNN_TESTS_CORE_ENGINE_RUNNER_H_
#define CUDNN_RNN_TESTS_CORE_ENGINE_RUNNER_H_

#include <vector>

#include "cudnn_rnn/cc/cpu/engine.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "tests/core/naive_rnn.h"
#include "tests/core/plan_runner.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {

// Runs an engine forward, calls after_forward(), and runs it backward. Takes the problem's rows as
// packed ones.
template <typename T, typename Function>
void RunEngine(const Problem& problem, const Kernels<T>& kernels, const Function& after_forward,
               Tensors* tensors) {
  ParamLayout layout;
  EXPECT(ParamLayout::Create(problem.config, &layout).ok());
  const Engine<T> engine(problem.config, layout, problem.shape, kernels);
  std::vector<int64_t> memory(PackedSequences::NumElements(problem.shape).value());
  const PackedSequences sequences =
      problem.lengths.empty()
          ? PackedSequences(problem.shape)
          : PackedSequences(problem.shape, problem.lengths.data(), memory.data());
  const auto copy = [](const Vector& values) {
    return std::vector<T>(values.begin(), values.end());
  };
  const auto room = [](int64_t size) { return std::vector<T>(static_cast<size_t>(size)); };
  const std::vector<T> input = copy(tensors->input), input_h = copy(tensors->input_h),
                       input_c = copy(tensors->input_c), params = copy(tensors->params),
                       output_backprop = copy(tensors->output_backprop),
                       output_h_backprop = copy(tensors->output_h_backprop),
                       output_c_backprop = copy(tensors->output_c_backprop);
  std::vector<T> output = room(problem.outputs()), output_h = room(problem.hidden_states()),
                 output_c = room(problem.cell_states()), input_backprop = room(problem.inputs()),
                 input_h_backprop = room(problem.hidden_states()),
                 input_c_backprop = room(problem.cell_states()),
                 params_backprop = room(problem.params());
  Memory reserve_space(engine.ReserveSpaceBytes().value());
  Memory forward_workspace(engine.ForwardWorkspaceBytes(/*is_training=*/true).value());
  Memory backward_workspace(engine.BackwardWorkspaceBytes(/*keeps_reserve_space=*/true).value());
  TeamMember alone;
  engine.Forward({input.data(), input_h.data(), input_c.data(), params.data(), output.data(),
                  output_h.data(), output_c.data(), reserve_space.data(), forward_workspace.data()},
                 sequences, /*is_training=*/true, /*dropout_call_index=*/0, &alone);
  after_forward();
  engine.Backward({input.data(), input_h.data(), input_c.data(), params.data(), output.data(),
                   output_backprop.data(), output_h_backprop.data(), output_c_backprop.data(),
                   reserve_space.data(), /*keeps_reserve_space=*/true, input_backprop.data(),
                   input_h_backprop.data(), input_c_backprop.data(), params_backprop.data(),
                   backward_workspace.data()},
                  sequences, /*dropout_call_index=*/0, &alone);
  const auto give = [](const std::vector<T>& values, Vector* target) {
    target->assign(values.begin(), values.end());
  };
  give(output, &tensors->output);
  give(output_h, &tensors->output_h);
  give(output_c, &tensors->output_c);
  give(input_backprop, &tensors->input_backprop);
  give(input_h_backprop, &tensors->input_h_backprop);
  give(input_c_backprop, &tensors->input_c_backprop);
  give(params_backprop, &tensors->params_backprop);
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_ENGINE_RUNNER_H_
