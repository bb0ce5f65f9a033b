// Measures the CPU plan by itself, without TensorFlow, for tuning the engine.
//
//   core_benchmark lstm-2x650-b20-t35 --threads 2 --training
//
// Prints one line for each pass: median and quartiles in milliseconds, and GFLOP/s. Only
// the operations of the matrix products count: in forward 2 * G * H * (I + H) for each step,
// sequence, layer and direction, in training three times that.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/core/problem.h"
#include "tests/core/problem_text.h"
#include "tests/core/thread_pool.h"

namespace cudnn_rnn {
namespace {

const char kUsage[] =
    R"(Usage: core_benchmark MODEL [options]

Measures the CPU plan without TensorFlow. MODEL is a mode (lstm, gru, rnn_tanh or rnn_relu), sizes
and options, as failing C++ tests and the names of the CPU benchmark have them:

  lstm-2x650-b20-t35  2 layers of 650 units, 20 sequences of 35 steps. Further parts:
    -i300             input_size (default: as many as units)
    -p400             width that an LSTM's h is projected to (default: no projection)
    -bi               bidirectional
    -half             sequences of different lengths, on average half the steps (default: full)
    -bfloat16         or -float16 or -double (default: float)
    -medium           precision of a float model's products: -high, -medium (default: -highest)
                      tests/core/problem_text.h has the rest

  --training          forward keeps what backward needs, and backward follows
  --packed            packs the weights once, as for parameters that stay the same; inference only
  --threads N         (default: 2)
  --rounds N          samples; each of as many passes as last 2 ms (default: 20)
  --explain           prints how the plan computes, and why, instead of measuring
  --instruction-set S portable, avx2, avx512, avx512_bf16 or amx_bf16; neon or neon_bf16 (default:
                      the fastest for the type, which `python -m cudnn_rnn doctor` names)
)";

struct Arguments {
  Problem problem;
  bool is_training = false;
  bool is_packed = false;
  bool explains = false;
  int64_t threads = 2;
  int64_t rounds = 20;
  std::string instruction_set;
};

[[noreturn]] void Fail(const std::string& problem) {
  std::fprintf(stderr, "core_benchmark: %s\n\n%s", problem.c_str(), kUsage);
  std::exit(2);
}

void Check(const Status& status) {
  if (!status.ok()) Fail(status.message());
}

int64_t ParseCount(const std::string& name, const char* text) {
  char* end;
  const int64_t value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || value < 1 || value > 1000000000) {
    Fail(name + " must be a whole number from 1 to 1000000000, but is '" + text + "'.");
  }
  return value;
}

Arguments ParseArguments(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::fputs(kUsage, stdout);
    std::exit(0);
  }
  if (argc < 2) Fail("MODEL is missing.");
  Arguments arguments;
  Problem& problem = arguments.problem;
  Check(ParseProblemText(argv[1], &problem.config, &problem.shape, &problem.lengths));
  const std::map<std::string, bool*> switches = {{"--training", &arguments.is_training},
                                                 {"--packed", &arguments.is_packed},
                                                 {"--explain", &arguments.explains}};
  const std::map<std::string, int64_t*> counts = {{"--threads", &arguments.threads},
                                                  {"--rounds", &arguments.rounds}};
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (switches.count(name) > 0) {
      *switches.at(name) = true;
      continue;
    }
    if (i + 1 == argc) Fail(name + " needs a value.");
    const char* text = argv[++i];
    if (counts.count(name) > 0) {
      *counts.at(name) = ParseCount(name, text);
    } else if (name == "--instruction-set") {
      arguments.instruction_set = text;
    } else {
      Fail("unknown option " + name + ".");
    }
  }
  return arguments;
}

// Returns the operations of one forward pass.
double FloatingPointOperations(const Problem& problem) {
  const RnnConfig& config = problem.config;
  int64_t products = 0, rows = 0;  // products of one row; a row is one step of one sequence
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t depth = config.LayerInputSize(layer) + config.output_size();
    products += config.num_units * (config.num_gates() * depth + config.num_proj);
  }
  for (int64_t b = 0; b < problem.shape.batch_size; ++b) rows += problem.Length(b);
  return 2.0 * static_cast<double>(products * config.num_directions() * rows);
}

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

void Report(const char* name, const std::vector<double>& seconds, double operations) {
  const double median = Quantile(seconds, 0.5);
  std::printf("%-9s median %9.4f ms  quartiles %9.4f %9.4f  %7.1f GFLOP/s\n", name, median * 1e3,
              Quantile(seconds, 0.25) * 1e3, Quantile(seconds, 0.75) * 1e3,
              operations / median * 1e-9);
}

// A plan with its buffers.
class Calls {
 public:
  explicit Calls(const Arguments& arguments)
      : options_(arguments.problem.Options(arguments.is_training)) {
    const Problem& problem = arguments.problem;
    const bool is_training = arguments.is_training;
    Check(CreateCpuPlan(problem.config, problem.shape, arguments.instruction_set, &plan_));
    const double params_scale = 1 / std::sqrt(static_cast<double>(problem.config.num_units));
    buffers_.reset(new PlanBuffers(MakeTensors(problem, params_scale), problem.config.data_type,
                                   is_training ? plan_->ReserveSpaceBytes() : 0));
    workspace_.reset(
        new Memory(std::max(plan_->ForwardWorkspaceBytes(options_),
                            is_training ? plan_->BackwardWorkspaceBytes(options_) : 0)));
    buffers_->forward.workspace = buffers_->backward.workspace = workspace_->data();
    packed_weights_.reset(
        new Memory(arguments.is_packed ? plan_->PackedWeights(options_).bytes : 0));
    if (packed_weights_->bytes() > 0) buffers_->forward.packed_weights = packed_weights_->data();
  }

  // Runs the forward pass and, in training, the backward pass; adds their times.
  void Pass(ParallelRunner* runner, double* forward_seconds, double* backward_seconds) {
    const double begin = Now();
    Check(plan_->Forward(buffers_->forward, options_, {runner}));
    buffers_->forward.packed_weights_are_ready = packed_weights_->bytes() > 0;
    const double middle = Now();
    if (options_.is_training) Check(plan_->Backward(buffers_->backward, options_, {runner}));
    *forward_seconds += middle - begin;
    *backward_seconds += Now() - middle;
  }

  int64_t reserve_space_bytes() const { return buffers_->backward.reserve_space_bytes; }
  int64_t workspace_bytes() const { return workspace_->bytes(); }

 private:
  const CallOptions options_;
  std::unique_ptr<RnnPlan> plan_;
  std::unique_ptr<PlanBuffers> buffers_;
  std::unique_ptr<Memory> workspace_;
  std::unique_ptr<Memory> packed_weights_;
};

void Run(const Arguments& arguments) {
  const Problem& problem = arguments.problem;
  const bool is_training = arguments.is_training;
  ThreadPool pool(arguments.threads);
  if (arguments.explains) {
    std::string text;
    Check(ExplainCpuPlan(problem.config, problem.shape, arguments.instruction_set, is_training,
                         pool, &text));
    std::fputs(text.c_str(), stdout);
    return;
  }
  Calls calls(arguments);
  double forward = 0, backward = 0;
  const auto measure = [&](int passes) {  // sets the seconds of one pass of each kind
    forward = backward = 0;
    for (int i = 0; i < passes; ++i) calls.Pass(&pool, &forward, &backward);
    forward /= passes;
    backward /= passes;
  };
  for (int warm_up = 0; warm_up < 2; ++warm_up) measure(1);
  constexpr double kSampleSeconds = 0.002;
  const int passes = static_cast<int>(std::ceil(kSampleSeconds / (forward + backward)));
  std::vector<double> forwards, backwards, totals;
  for (int round = 0; round < arguments.rounds; ++round) {
    measure(passes);
    forwards.push_back(forward);
    backwards.push_back(backward);
    totals.push_back(forward + backward);
  }
  const std::string title = Concatenate(problem.Text(), ", ", arguments.threads, " threads, ",
                                        arguments.rounds, " samples of ", passes, " passes");
  std::puts(title.c_str());
  const double operations = FloatingPointOperations(problem);
  Report("forward", forwards, operations);
  if (is_training) {
    Report("backward", backwards, 2 * operations);
    Report("training", totals, 3 * operations);
  }
  std::printf("reserve space %.3f MiB, workspace %.3f MiB\n",
              static_cast<double>(calls.reserve_space_bytes()) / 1048576,
              static_cast<double>(calls.workspace_bytes()) / 1048576);
}

}  // namespace
}  // namespace cudnn_rnn

int main(int argc, char** argv) { cudnn_rnn::Run(cudnn_rnn::ParseArguments(argc, argv)); }
