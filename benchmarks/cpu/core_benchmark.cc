// Measures the CPU plan by itself, without TensorFlow, for tuning the engine.
//
//   core_benchmark lstm 2 650 --input 650 --batch 20 --steps 35 --threads 2 --training
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
#include <random>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/core/problem.h"
#include "tests/core/thread_pool.h"

namespace cudnn_rnn {
namespace {

const char kUsage[] =
    R"(Usage: core_benchmark MODE LAYERS UNITS [options]

Measures the CPU plan without TensorFlow. MODE is lstm, gru, rnn_tanh or rnn_relu.

  --input N           width of the input (default: UNITS)
  --batch N           sequences (default: 20)
  --steps N           time steps (default: 35)
  --direction WHICH   unidirectional or bidirectional (default: unidirectional)
  --projection N      width that an LSTM's h is projected to (default: no projection)
  --dtype TYPE        float, double, half or bfloat16 (default: float)
  --lengths           sequences of every length, on average half the steps (default: full)
  --training          forward keeps what backward needs, and backward follows
  --packed            packs the weights once, as for parameters that stay the same; inference only
  --threads N         (default: 2)
  --rounds N          samples; each of as many passes as last 2 ms (default: 20)
  --explain           prints how the plan computes, and why, instead of measuring
  --instruction-set S portable, avx2, avx512, avx512_bf16 or amx_bf16 (default: the best of the first
                      four that this processor has)
)";

struct Arguments {
  Problem problem;
  bool has_mean_half_lengths = false;
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

DataType ParseDataType(const std::string& text) {
  for (DataType type :
       {DataType::kFloat, DataType::kDouble, DataType::kHalf, DataType::kBfloat16}) {
    if (text == Name(type)) return type;
  }
  Fail("--dtype must be one of float, double, half, bfloat16, but is '" + text + "'.");
}

Arguments ParseArguments(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::fputs(kUsage, stdout);
    std::exit(0);
  }
  if (argc < 4) Fail("MODE, LAYERS and UNITS are needed.");
  Arguments arguments;
  RnnConfig& config = arguments.problem.config;
  SequenceShape& shape = arguments.problem.shape;
  Check(ParseRnnMode(argv[1], &config.mode));
  config.num_layers = ParseCount("LAYERS", argv[2]);
  config.num_units = ParseCount("UNITS", argv[3]);
  config.input_size = config.num_units;
  shape = {35, 20};
  const std::map<std::string, bool*> switches = {{"--training", &arguments.is_training},
                                                 {"--lengths", &arguments.has_mean_half_lengths},
                                                 {"--packed", &arguments.is_packed},
                                                 {"--explain", &arguments.explains}};
  const std::map<std::string, int64_t*> counts = {
      {"--input", &config.input_size},   {"--batch", &shape.batch_size},
      {"--steps", &shape.num_steps},     {"--projection", &config.num_proj},
      {"--threads", &arguments.threads}, {"--rounds", &arguments.rounds}};
  for (int i = 4; i < argc; ++i) {
    const std::string name = argv[i];
    if (switches.count(name) > 0) {
      *switches.at(name) = true;
      continue;
    }
    if (i + 1 == argc) Fail(name + " needs a value.");
    const char* text = argv[++i];
    if (counts.count(name) > 0) {
      *counts.at(name) = ParseCount(name, text);
    } else if (name == "--direction") {
      Check(ParseDirection(text, &config.direction));
    } else if (name == "--dtype") {
      config.data_type = ParseDataType(text);
    } else if (name == "--instruction-set") {
      arguments.instruction_set = text;
    } else {
      Fail("unknown option " + name + ".");
    }
  }
  std::mt19937 generator(3);
  std::uniform_int_distribution<int32_t> length(1, static_cast<int32_t>(shape.num_steps));
  for (int64_t b = 0; arguments.has_mean_half_lengths && b < shape.batch_size; ++b) {
    arguments.problem.lengths.push_back(length(generator));
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

void Run(const Arguments& arguments) {
  ThreadPool pool(arguments.threads);
  const Problem& problem = arguments.problem;
  const bool is_training = arguments.is_training;
  if (arguments.explains) {
    std::string text;
    Check(ExplainCpuPlan(problem.config, problem.shape, arguments.instruction_set, is_training,
                         pool, &text));
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::unique_ptr<RnnPlan> plan;
  Check(CreateCpuPlan(problem.config, problem.shape, arguments.instruction_set, &plan));
  const CallOptions options = problem.Options(is_training);
  const double params_scale = 1 / std::sqrt(static_cast<double>(problem.config.num_units));
  PlanBuffers buffers(MakeTensors(problem, params_scale), problem.config.data_type,
                      is_training ? plan->ReserveSpaceBytes() : 0);
  Memory workspace(std::max(plan->ForwardWorkspaceBytes(options),
                            is_training ? plan->BackwardWorkspaceBytes(options) : 0));
  buffers.forward.workspace = buffers.backward.workspace = workspace.data();
  const auto pass = [&](double* forward_seconds, double* backward_seconds) {
    const double begin = Now();
    Check(plan->Forward(buffers.forward, options, {&pool}));
    const double middle = Now();
    if (is_training) Check(plan->Backward(buffers.backward, options, {&pool}));
    *forward_seconds += middle - begin;
    *backward_seconds += Now() - middle;
  };
  Memory packed_weights(arguments.is_packed ? plan->PackedWeights(options).bytes : 0);
  if (packed_weights.bytes() > 0) buffers.forward.packed_weights = packed_weights.data();
  double forward = 0, backward = 0;
  pass(&forward, &backward);
  buffers.forward.packed_weights_are_ready = packed_weights.bytes() > 0;
  forward = backward = 0;
  pass(&forward, &backward);
  constexpr double kSampleSeconds = 0.002;
  const int passes = static_cast<int>(std::ceil(kSampleSeconds / (forward + backward)));
  std::vector<double> forwards, backwards, totals;
  for (int round = 0; round < arguments.rounds; ++round) {
    forward = backward = 0;
    for (int i = 0; i < passes; ++i) pass(&forward, &backward);
    forwards.push_back(forward / passes);
    backwards.push_back(backward / passes);
    totals.push_back((forward + backward) / passes);
  }
  const std::string title = Concatenate(
      Describe(problem.config), ", batch ", problem.shape.batch_size, ", ", problem.shape.num_steps,
      " steps", arguments.has_mean_half_lengths ? " (half of them on average)" : "", ", ",
      arguments.threads, " threads, ", arguments.rounds, " samples of ", passes, " passes");
  std::puts(title.c_str());
  const double operations = FloatingPointOperations(problem);
  Report("forward", forwards, operations);
  if (is_training) {
    Report("backward", backwards, 2 * operations);
    Report("training", totals, 3 * operations);
  }
  std::printf("reserve space %.3f MiB, workspace %.3f MiB\n",
              static_cast<double>(buffers.backward.reserve_space_bytes) / 1048576,
              static_cast<double>(workspace.bytes()) / 1048576);
}

}  // namespace
}  // namespace cudnn_rnn

int main(int argc, char** argv) { cudnn_rnn::Run(cudnn_rnn::ParseArguments(argc, argv)); }
