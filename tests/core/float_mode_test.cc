// Tests that the floating-point modes of the caller's thread and of its helpers change no bit.

#include "cudnn_rnn/cc/cpu/float_mode.h"

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "tests/core/plan_runner.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

using Control = FloatMode::Control;

// As long as it exists, the thread has this mode.
class ThreadMode {
 public:
  explicit ThreadMode(Control control) : before_(FloatMode::Read()) { FloatMode::Write(control); }
  ~ThreadMode() { FloatMode::Write(before_); }

 private:
  const Control before_;
};

// Threads that have a mode of their own.
class ThreadsInMode : public ThreadRunner {
 public:
  ThreadsInMode(int64_t num_threads, Control control)
      : ThreadRunner(num_threads), control_(control) {}
  void Schedule(Task task) override {
    const Control control = control_;
    ThreadRunner::Schedule([task, control] {
      const ThreadMode mode(control);
      task();
    });
  }

 private:
  const Control control_;
};

constexpr Control kZeroes = FloatMode::kZeroesResults | FloatMode::kZeroesFactors;
constexpr Control kAnotherRounding =
    FloatMode::kRounding & (~FloatMode::kRounding + 1);  // its lowest bit

// Runs a training call on a caller's thread that has a mode.
void Run(const Problem& problem, Control caller, ParallelRunner* runner, Tensors* tensors) {
  std::unique_ptr<RnnPlan> plan;
  EXPECT(CreateCpuPlan(problem.config, problem.shape, "", &plan).ok(), problem.Text());
  const CallOptions options = problem.Options(/*is_training=*/true);
  PlanBuffers buffers(*tensors, problem.config.data_type, plan->ReserveSpaceBytes());
  {
    const ThreadMode mode(caller);
    EXPECT(CallForward(*plan, options, {runner}, &buffers).ok(), problem.Text());
    EXPECT(CallBackward(*plan, options, {runner}, &buffers).ok(), problem.Text());
    EXPECT(((FloatMode::Read() ^ caller) & (kZeroes | FloatMode::kRounding)) == 0,
           "the caller's mode after ", problem.Text());
  }
  buffers.ReadResults(tensors);
}

// Gates, states and gradients of these are around the smallest number that is not subnormal.
Tensors MakeTinyTensors(const Problem& problem) {
  const double scale = problem.config.data_type == DataType::kDouble ? 1e-307 : 1e-37;
  Tensors tensors = MakeTensors(problem);
  for (Vector* values :
       {&tensors.input, &tensors.input_h, &tensors.input_c, &tensors.output_backprop,
        &tensors.output_h_backprop, &tensors.output_c_backprop}) {
    for (double& value : *values) value *= scale;
  }
  return tensors;
}

TEST(ModesOfThreadsDoNotChangeABit) {
  const Control usual = FloatMode::Read() & ~(kZeroes | FloatMode::kRounding);
  const std::initializer_list<Control> modes = {usual, usual | kZeroes, usual | kAnotherRounding};
  for (RnnMode mode : {RnnMode::kRelu, RnnMode::kLstm, RnnMode::kGru}) {
    for (DataType data_type : {DataType::kFloat, DataType::kBfloat16, DataType::kDouble}) {
      Problem problem;
      problem.config = {mode,
                        InputMode::kLinear,
                        Direction::kUnidirectional,
                        data_type,
                        /*num_layers=*/1,
                        /*num_units=*/70,
                        /*input_size=*/40};
      problem.shape = {6, 40};
      const Tensors inputs = MakeTinyTensors(problem);
      Tensors expected = inputs;
      SerialRunner serial;
      Run(problem, usual, &serial, &expected);
      for (Control caller : modes) {
        Tensors found = inputs;
        Run(problem, caller, &serial, &found);
        ExpectSameBits(found, expected, Concatenate("mode ", caller, ": ", problem.Text()));
        for (Control helpers : modes) {
          ThreadsInMode threads(3, helpers);
          found = inputs;
          Run(problem, caller, &threads, &found);
          ExpectSameBits(found, expected,
                         Concatenate("modes ", caller, " and ", helpers, ": ", problem.Text()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace cudnn_rnn
