#include "tests/fuzz/fuzz_targets.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/core/any_problem.h"
#include "tests/core/plan_runner.h"
#include "tests/core/thread_pool.h"
#include "tests/core/threads.h"
#include "tests/cudnn/engine_buffers.h"
#include "tests/fuzz/fuzz_input.h"

namespace cudnn_rnn {
namespace {

// Ends the process, so that every fuzzer counts it as a crash.
void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "the target failed: %s\n", what.c_str());
  std::abort();
}

// Returns one of three pools, of 2, 3 and 5 threads.
ParallelRunner* Pool(int64_t index) {
  static EagerThreadPool* const pools[] = {new EagerThreadPool(2), new EagerThreadPool(3),
                                           new EagerThreadPool(5)};
  return pools[index];
}

RnnConfig AnyConfig(FuzzInput* input) {
  RnnConfig config;
  config.mode = static_cast<RnnMode>(input->Choice(4));
  config.input_mode = static_cast<InputMode>(input->Choice(3));
  config.direction = static_cast<Direction>(input->Choice(2));
  config.data_type = static_cast<DataType>(input->Choice(4));
  config.num_layers = input->Size();
  config.num_units = input->Size();
  config.input_size = input->Flag() ? config.num_units : input->Size();
  config.num_proj = input->Choice(4) == 0 ? input->Size() : 0;
  if (input->Flag()) config.dropout = input->Bits<float>();
  config.seed = input->Bits<int64_t>();
  return config;
}

bool IsWithin(const ParamRegion& region, int64_t begin, int64_t end) {
  return region.rows > 0 && region.columns >= 0 && region.offset >= begin &&
         region.size() <= end - region.offset;
}

void CheckLayout(const ParamLayout& layout, FuzzInput* input) {
  const int64_t size = layout.size(), first_bias = layout.first_bias();
  Require(0 < first_bias && first_bias < size, "biases are within the buffer");
  const int64_t weights = layout.num_canonical_weights(), biases = layout.num_canonical_biases();
  const uint64_t any = input->Bits<uint64_t>();
  for (int64_t index : {int64_t(0), weights - 1, static_cast<int64_t>(any % weights)}) {
    Require(IsWithin(layout.CanonicalWeight(index), 0, first_bias), "a matrix is among matrices");
  }
  for (int64_t index : {int64_t(0), biases - 1, static_cast<int64_t>(any % biases)}) {
    Require(IsWithin(layout.CanonicalBias(index), first_bias, size), "a bias is among biases");
  }
}

void FuzzSizes(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const RnnConfig config = AnyConfig(&input);
  const SequenceShape shape = {input.Size(), input.Size(), input.Flag()};
  ParamLayout layout;
  const bool has_layout = ParamLayout::Create(config, &layout).ok();
  if (has_layout) CheckLayout(layout, &input);
  Require(!has_layout || Validate(config).ok(), "only valid models have a layout");
  if (shape.num_steps < 0 || shape.batch_size < 0) return;  // callers check them
  CallOptions options;
  options.is_training = input.Flag();
  if (input.Flag() && shape.batch_size <= 256) {
    std::vector<int32_t> source(static_cast<size_t>(shape.batch_size));
    for (int32_t& length : source) {
      length = input.Flag() ? input.Bits<uint8_t>() : input.Bits<int32_t>();
    }
    if (!CopySequenceLengths(source.data(), shape, &options.sequence_lengths).ok()) return;
  }
  // A plan keeps a little for each layer and step, of which its caller has the values in memory.
  constexpr int64_t kMaxCount = int64_t(1) << 16;
  if (config.num_layers > kMaxCount || shape.num_steps > kMaxCount) return;
  std::unique_ptr<RnnPlan> plan;
  if (!CreateCpuPlan(config, shape, "", &plan).ok()) return;
  Require(has_layout, "only models with a layout have a plan");
  Require(plan->ReserveSpaceBytes() >= 0, "reserve space");
  Require(plan->ForwardWorkspaceBytes(options) >= 0, "forward workspace");
  Require(plan->BackwardWorkspaceBytes(options) >= 0, "backward workspace");
  Require(plan->PackedWeights(options).bytes >= 0, "packed weights");
}

Tensors Run(const RnnPlan& plan, const Problem& problem, const Tensors& tensors,
            const Execution& execution, PlanBuffers* buffers) {
  Tensors found = tensors;
  const CallOptions options = problem.Options(/*is_training=*/true);
  Require(CallForward(plan, options, execution, buffers).ok(), "Forward of " + problem.Text());
  Require(CallBackward(plan, options, execution, buffers).ok(), "Backward of " + problem.Text());
  buffers->ReadResults(&found);
  return found;
}

void RequireSameBits(const Tensors& found, const Tensors& expected, const std::string& what) {
  for (const Result& result : Results()) {
    Require(SameBits(found.*result.values, expected.*result.values),
            Concatenate(result.name, " differs with ", what));
  }
}

// Backward gets what a program may give it: another reserve space, output or lengths.
void DamageAndRunBackward(const RnnPlan& plan, Problem problem, const Execution& execution,
                          FuzzInput* input, PlanBuffers* buffers) {
  BackwardBuffers* const backward = &buffers->backward;
  for (int64_t flips = input->Choice(8); flips > 0; --flips) {
    const int64_t position = input->Bits<uint16_t>() % backward->reserve_space_bytes;
    static_cast<uint8_t*>(backward->reserve_space)[position] ^= input->Bits<uint8_t>();
  }
  if (input->Choice(4) == 0 && !problem.lengths.empty()) problem.lengths[0] = 0;
  if (input->Choice(4) == 0) backward->reserve_space_bytes -= input->Choice(100);
  CallOptions options = problem.Options(/*is_training=*/true);
  options.keeps_reserve_space = input->Flag();
  CallBackward(plan, options, execution, buffers);
}

// Returns a small valid model with data of any shape; `instruction_set` is one that it can use.
Problem SmallProblem(FuzzInput* input, std::string* instruction_set) {
  static const std::vector<std::string>* const all =
      new std::vector<std::string>(InstructionSets());
  *instruction_set = (*all)[static_cast<size_t>(input->Choice(static_cast<int64_t>(all->size())))];
  return AnyProblem({/*max_units=*/72, 0, /*max_steps=*/11, 0, /*max_batch=*/39}, input);
}

void FuzzPlan(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  std::string instruction_set;
  const Problem problem = SmallProblem(&input, &instruction_set);
  std::unique_ptr<RnnPlan> plan;
  const Status created = CreateCpuPlan(problem.config, problem.shape, instruction_set, &plan);
  Require(created.ok(), created.message());
  const Tensors tensors = MakeTensors(problem);
  PlanBuffers buffers(tensors, problem.config.data_type, plan->ReserveSpaceBytes());
  SerialRunner serial;
  const Tensors expected = Run(*plan, problem, tensors, {&serial}, &buffers);
  const Execution shared = {Pool(input.Choice(3))};
  RequireSameBits(Run(*plan, problem, tensors, shared, &buffers), expected,
                  Concatenate(shared.runner->num_threads(), " threads: ", problem.Text()));
  DamageAndRunBackward(*plan, problem, shared, &input, &buffers);
  PlanBuffers inference(tensors, problem.config.data_type, 0);
  const CallOptions options = problem.Options(/*is_training=*/false);
  Memory packed_weights(plan->PackedWeights(options).bytes);
  if (packed_weights.bytes() > 0) inference.forward.packed_weights = packed_weights.data();
  Tensors found[2];
  for (Tensors& one : found) {
    one = tensors;
    Require(CallForward(*plan, options, shared, &inference).ok(), "inference");
    inference.forward.packed_weights_are_ready = packed_weights.bytes() > 0;
    inference.ReadResults(&one);
  }
  RequireSameBits(found[0], found[1], "packed weights: " + problem.Text());
}

// A planner and a prepared call of the C interface, destroyed at the end.
struct ApiCall {
  cudnn_rnn_planner* planner = nullptr;
  cudnn_rnn_prepared_call* prepared = nullptr;
  ~ApiCall() {
    cudnn_rnn_release_call(prepared);
    cudnn_rnn_destroy_planner(planner);
  }
};

// Returns an enumerator, sometimes one that does not exist.
int32_t Enumerator(int64_t count, FuzzInput* input) {
  return static_cast<int32_t>(input->Choice(16) == 0 ? input->Bits<int32_t>()
                                                     : input->Choice(count));
}

// Returns a small size, sometimes any.
int64_t ApiSize(FuzzInput* input) {
  return input->Choice(16) == 0 ? input->Size() : 1 + input->Choice(12);
}

cudnn_rnn_config AnyApiConfig(FuzzInput* input) {
  cudnn_rnn_config config = {};
  config.rnn_mode = Enumerator(4, input);
  config.input_mode = Enumerator(3, input);
  config.direction = Enumerator(2, input);
  config.data_type = Enumerator(4, input);
  config.num_layers = 1 + input->Choice(3);
  config.num_units = ApiSize(input);
  config.input_size = input->Flag() ? config.num_units : ApiSize(input);
  config.num_proj = input->Choice(4) == 0 ? ApiSize(input) : 0;
  config.dropout = input->Choice(4) == 0 ? input->Bits<float>() : 0;
  return config;
}

// `lengths` is what the call points to.
cudnn_rnn_call AnyApiCall(FuzzInput* input, std::vector<int32_t>* lengths) {
  cudnn_rnn_call call = {};
  call.num_steps = ApiSize(input);
  call.batch_size = ApiSize(input);
  call.time_major = input->Flag();
  call.is_training = input->Flag();
  call.keeps_reserve_space = input->Flag();
  if (input->Flag() && call.batch_size >= 0 && call.batch_size <= 256) {
    for (int64_t b = 0; b < call.batch_size; ++b) {
      lengths->push_back(static_cast<int32_t>(input->Choice(call.num_steps > 0 ? 14 : 1)));
    }
    call.sequence_lengths = lengths->data();
  }
  return call;
}

// Whether a fuzzer can afford to run a call.
bool IsSmall(const cudnn_rnn_config& config, const cudnn_rnn_call& call,
             const cudnn_rnn_sizes& sizes) {
  int64_t params_size;
  Require(cudnn_rnn_params_size(&config, &params_size) == 0, "a prepared call has a valid model");
  const CheckedSize limit(int64_t(1) << 20);
  const int64_t num_steps = std::max<int64_t>(call.num_steps, 1);  // States need no steps.
  const CheckedSize values =
      CheckedSize(num_steps) * call.batch_size * std::max(config.input_size, 2 * config.num_units);
  return !(limit < values || limit < CheckedSize(params_size) ||
           limit < CheckedSize(sizes.reserve_space_bytes) ||
           limit < CheckedSize(sizes.forward_workspace_bytes) ||
           limit < CheckedSize(sizes.backward_workspace_bytes));
}

Problem ProblemOf(const cudnn_rnn_config& config, const cudnn_rnn_call& call,
                  const std::vector<int32_t>& lengths) {
  Problem problem;
  problem.config.mode = static_cast<RnnMode>(config.rnn_mode);
  problem.config.input_mode = static_cast<InputMode>(config.input_mode);
  problem.config.direction = static_cast<Direction>(config.direction);
  problem.config.data_type = static_cast<DataType>(config.data_type);
  problem.config.num_layers = config.num_layers;
  problem.config.num_units = config.num_units;
  problem.config.input_size = config.input_size;
  problem.config.num_proj = config.num_proj;
  problem.shape = {call.num_steps, call.batch_size, call.time_major != 0};
  problem.lengths = lengths;
  return problem;
}

// Runs a call forward and backward, sometimes with sizes of buffers that are too small.
void RunApiCall(const Problem& problem, const cudnn_rnn_call& call, const cudnn_rnn_sizes& sizes,
                cudnn_rnn_prepared_call* prepared, FuzzInput* input) {
  PlanBuffers buffers(MakeTensors(problem), problem.config.data_type, sizes.reserve_space_bytes);
  const auto damaged = [input](int64_t bytes) {
    return input->Choice(16) == 0 ? bytes - input->Choice(100) : bytes;
  };
  Memory workspace(std::max(sizes.forward_workspace_bytes, sizes.backward_workspace_bytes));
  cudnn_rnn_forward_buffers forward = ToC(buffers.forward);
  forward.workspace = workspace.data();
  forward.reserve_space_bytes = damaged(sizes.reserve_space_bytes);
  forward.workspace_bytes = damaged(sizes.forward_workspace_bytes);
  cudnn_rnn_backward_buffers backward = ToC(buffers.backward);
  backward.workspace = workspace.data();
  backward.workspace_bytes = damaged(sizes.backward_workspace_bytes);
  backward.reserve_space_bytes = damaged(sizes.reserve_space_bytes);
  const bool has_run = cudnn_rnn_forward(prepared, &forward) == 0;
  const int status = cudnn_rnn_backward(prepared, &backward);
  Require(status != 0 || (has_run && call.is_training), "backward needs a training forward");
}

void FuzzCApi(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const cudnn_rnn_config config = AnyApiConfig(&input);
  std::vector<int32_t> lengths;
  const cudnn_rnn_call call = AnyApiCall(&input, &lengths);
  ApiCall api;
  Require(cudnn_rnn_create_cpu_planner(&api.planner) == 0, "a planner");
  cudnn_rnn_sizes sizes = {};
  const int status = cudnn_rnn_prepare(api.planner, &config, &call, &api.prepared, &sizes);
  Require((status == 0) == (api.prepared != nullptr), "a prepared call or an error");
  Require(status == 0 || *cudnn_rnn_last_error() != '\0', "an error has a message");
  if (status != 0 || !IsSmall(config, call, sizes)) return;
  RunApiCall(ProblemOf(config, call, lengths), call, sizes, api.prepared, &input);
}

}  // namespace

const FuzzTarget kFuzzTargets[3] = {{"sizes", FuzzSizes}, {"plan", FuzzPlan}, {"c_api", FuzzCApi}};

}  // namespace cudnn_rnn
