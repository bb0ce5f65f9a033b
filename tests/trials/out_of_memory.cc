// Lets each allocation of plans fail: out_of_memory CASES SEED. Prints how many failed.
//
// A case is a random model on 1 to 3 threads. Its calls choose the instruction set, explain and
// create the plan, run it for inference, with packed weights, and for training, and transpose a
// matrix. Allocation n of them fails, for n = 1, 2, ... until all of them pass without a failure:
// alone, or with all that follow. Each call must return kResourceExhausted or the results of the
// calls without a failure, bit for bit, and so must the same calls afterwards. Each must give back
// all memory.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/instruction_set.h"
#include "cudnn_rnn/cc/cpu/transpose.h"
#include "tests/core/plan_runner.h"
#include "tests/core/thread_pool.h"
#include "tests/trials/random_cases.h"

namespace {

std::atomic<int64_t> num_live{0};           // allocations that have not been given back
std::atomic<int64_t> num_until_failure{0};  // 0 or below: the next allocations do not fail
std::atomic<bool> all_fail{false};
std::atomic<bool> all_after_the_first_fail{false};
std::atomic<int64_t> num_failures{0};

void* Allocate(std::size_t size) {
  if (num_until_failure.load() > 0 && num_until_failure.fetch_sub(1) == 1) {
    all_fail = all_after_the_first_fail.load();
    ++num_failures;
    throw std::bad_alloc();
  }
  if (all_fail) throw std::bad_alloc();
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  ++num_live;
  return memory;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  --num_live;
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }

namespace cudnn_rnn {
namespace {

// The buffers of a case's calls, allocated before any allocation fails.
class Calls {
 public:
  Calls(const Problem& problem, const Tensors& tensors, const RnnPlan& plan)
      : problem_(problem),
        inference_(tensors, problem.config.data_type, 0),
        training_(tensors, problem.config.data_type, plan.ReserveSpaceBytes()),
        inference_workspace_(plan.ForwardWorkspaceBytes(problem.Options(false))),
        forward_workspace_(plan.ForwardWorkspaceBytes(problem.Options(true))),
        backward_workspace_(plan.BackwardWorkspaceBytes(problem.Options(true))),
        packed_weights_(plan.PackedWeights(problem.Options(false)).bytes),
        matrix_(kRows * kColumns, 2.0),
        transposed_(kRows * kColumns) {
    inference_.forward.workspace = inference_workspace_.data();
    training_.forward.workspace = forward_workspace_.data();
    training_.backward.workspace = backward_workspace_.data();
  }

  // Runs all calls. Each runs although those before it may have failed, but needs their plan and
  // their reserve space. Returns the first error.
  Status Run(ParallelRunner* runner) {
    Status first;
    const auto check = [&first](Status status) {
      if (first.ok() && !status.ok()) first = std::move(status);
    };
    std::unique_ptr<RnnPlan> plan;
    check(CatchExceptions([&] {
      InstructionSetChoice choice;
      const RnnConfig& config = problem_.config;
      return ChooseInstructionSet("", FactorFormatOf(config.data_type, config.precision),
                                  ThisProcessor(), &choice);
    }));
    check(CatchExceptions([&] {
      std::string text;
      return ExplainCpuPlan(problem_.config, problem_.shape, "", true, *runner, &text);
    }));
    check(
        CatchExceptions([&] { return CreateCpuPlan(problem_.config, problem_.shape, "", &plan); }));
    check(CatchExceptions([&] {
      return TransposeMatrices<double>(
          {{matrix_.data(), kColumns, transposed_.data(), kRows, kRows, kColumns}}, "", runner);
    }));
    if (plan == nullptr) return first;
    check(CatchExceptions(
        [&] { return plan->Forward(inference_.forward, problem_.Options(false), {runner}); }));
    for (bool are_ready : {false, true}) {
      check(CatchExceptions([&] { return RunWithPackedWeights(*plan, are_ready, runner); }));
    }
    const Status trained = CatchExceptions(
        [&] { return plan->Forward(training_.forward, problem_.Options(true), {runner}); });
    check(trained);
    if (!trained.ok()) return first;
    check(CatchExceptions(
        [&] { return plan->Backward(training_.backward, problem_.Options(true), {runner}); }));
    return first;
  }

  // Appends the results of all calls.
  void ReadResults(std::vector<Tensors>* results) const {
    Tensors inference, training;
    inference_.ReadResults(&inference);
    training_.ReadResults(&training);
    results->push_back(inference);
    results->push_back(training);
  }

 private:
  static constexpr int64_t kRows = 40, kColumns = 70;

  Status RunWithPackedWeights(const RnnPlan& plan, bool are_ready, ParallelRunner* runner) {
    ForwardBuffers buffers = inference_.forward;
    if (plan.PackedWeights(problem_.Options(false)).bytes == 0) return Status();
    if (are_ready && !has_packed_weights_) return Status();
    has_packed_weights_ = false;
    buffers.packed_weights = packed_weights_.data();
    buffers.packed_weights_are_ready = are_ready;
    CUDNN_RNN_RETURN_IF_ERROR(plan.Forward(buffers, problem_.Options(false), {runner}));
    has_packed_weights_ = true;
    return Status();
  }

  const Problem problem_;
  PlanBuffers inference_, training_;
  Memory inference_workspace_, forward_workspace_, backward_workspace_, packed_weights_;
  bool has_packed_weights_ = false;
  std::vector<double> matrix_, transposed_;
};

std::string current;  // what runs, for messages

void Require(bool condition, const std::string& what) {
  if (condition) return;
  all_fail = false;
  num_until_failure = 0;
  std::printf("FAILED: %s\n%s\n", what.c_str(), current.c_str());
  std::exit(1);
}

void NameHangingCase(int) {
  if (write(STDOUT_FILENO, "FAILED, hangs: ", 15) < 0) _exit(1);
  if (write(STDOUT_FILENO, current.data(), current.size()) < 0) _exit(1);
  _exit(1);
}

void RequireResults(const Calls& calls, const std::vector<Tensors>& expected) {
  std::vector<Tensors> found;
  calls.ReadResults(&found);
  for (size_t call = 0; call < expected.size(); ++call) {
    for (const Result& result : Results()) {
      Require(SameBits(found[call].*result.values, expected[call].*result.values), result.name);
    }
  }
}

// Runs all calls with allocation `n` failing; returns whether it was reached.
bool RunWithFailure(const Problem& problem, const Tensors& tensors, const RnnPlan& plan,
                    const std::vector<Tensors>& expected, int64_t num_threads, int64_t n) {
  const int64_t live_before = num_live;
  bool was_reached;
  {
    Calls calls(problem, tensors, plan);
    EagerThreadPool pool(num_threads);
    num_until_failure = n;
    const Status status = calls.Run(&pool);
    was_reached = num_until_failure <= 0;
    num_until_failure = 0;
    all_fail = false;
    Require(status.ok() || status.code() == StatusCode::kResourceExhausted, status.message());
    Require(status.ok() || status.message().empty() || status.message() == kOutOfHostMemoryText,
            status.message());
    if (status.ok()) RequireResults(calls, expected);
    const Status again = calls.Run(&pool);
    Require(again.ok(), "The calls after the failure: " + again.message());
    RequireResults(calls, expected);
  }
  const int64_t num_leaked = num_live - live_before;
  Require(num_leaked == 0, Concatenate(num_leaked, " allocations were not given back."));
  return was_reached;
}

bool RunCase(unsigned seed) {
  std::mt19937 random(seed);
  const Problem problem = RandomProblem(&random);
  const int64_t num_threads = RandomIn(1, 3, &random);
  const Tensors tensors = MakeTensors(problem);
  std::unique_ptr<RnnPlan> plan;
  const Status created = CreateCpuPlan(problem.config, problem.shape, "", &plan);
  Require(created.ok(), created.message());
  std::vector<Tensors> expected;
  {
    EagerThreadPool pool(num_threads);
    Calls calls(problem, tensors, *plan);
    const Status status = calls.Run(&pool);
    Require(status.ok(), status.message());
    calls.ReadResults(&expected);
    RequireResults(calls, expected);
  }
  for (bool all_follow : {false, true}) {
    all_after_the_first_fail = all_follow;
    // With helpers, the number of allocations differs between runs.
    for (int64_t n = 1, num_unreached = 0; num_unreached < (num_threads == 1 ? 1 : 3); ++n) {
      current = Concatenate(num_threads, " threads, allocation ", n,
                            all_follow ? " and all after" : "", " of ", problem.Text(), "\n");
      alarm(600);
      if (!RunWithFailure(problem, tensors, *plan, expected, num_threads, n)) ++num_unreached;
    }
  }
  return true;  // what fails ends the process
}

}  // namespace
}  // namespace cudnn_rnn

int main(int argc, char** argv) {
  signal(SIGALRM, cudnn_rnn::NameHangingCase);
  const int status = cudnn_rnn::RunCases(argc, argv, cudnn_rnn::RunCase);
  if (status == 0) std::printf("%lld\n", static_cast<long long>(num_failures.load()));
  return status;
}
