// Runs plans while a thread writes to their inputs: concurrent_writers CASES SEED.
//
// A case is a random model on 1 to 3 threads. The writer writes random bits to all inputs of the
// calls, the gradients' inputs and the reserve space included, and right and wrong numbers to the
// sequence lengths. Calls may return anything, or refuse their inputs. When the writer has stopped,
// results must be those of before, bit for bit. Prints the numbers of calls and of refusals.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/core/thread_pool.h"
#include "tests/trials/random_cases.h"

namespace cudnn_rnn {
namespace {

constexpr int kRounds = 12;

int64_t num_calls = 0;
int64_t num_refused = 0;

// The buffers of a case's calls.
class Calls {
 public:
  Calls(const Problem& problem, const RnnPlan& plan) : problem_(problem), plan_(plan) {
    const int64_t size = SizeOf(problem.config.data_type);
    const int64_t input = problem.inputs() * size, output = problem.outputs() * size;
    const int64_t hidden = problem.hidden_states() * size, cell = problem.cell_states() * size;
    const int64_t params = problem.params() * size;
    backward_.input = forward_.input = AddInput(input);
    backward_.input_h = forward_.input_h = AddInput(hidden);
    backward_.input_c = forward_.input_c = AddInput(cell);
    backward_.params = forward_.params = AddInput(params);
    backward_.output_backprop = AddInput(output);
    backward_.output_h_backprop = AddInput(hidden);
    backward_.output_c_backprop = AddInput(cell);
    lengths_ = static_cast<int32_t*>(Add(problem.shape.batch_size * 4, &lengths_memory_));
    std::copy(problem.lengths.begin(), problem.lengths.end(), lengths_);
    num_filled_ = inputs_.size();
    backward_.output = forward_.output = AddInput(output);
    backward_.output_h = forward_.output_h = AddInput(hidden);
    reserve_space_ = AddInput(plan.ReserveSpaceBytes());
    backward_.reserve_space = forward_.reserve_space = reserve_space_;
    backward_.reserve_space_bytes = plan.ReserveSpaceBytes();
    forward_.output_c = AddResult(cell);
    backward_.input_backprop = AddResult(input);
    backward_.input_h_backprop = AddResult(hidden);
    backward_.input_c_backprop = AddResult(cell);
    backward_.params_backprop = AddResult(params);
  }

  // Gives all inputs small random values.
  void Fill(std::mt19937* random) {
    for (size_t i = 0; i < num_filled_; ++i) {
      // Bytes below 0x3f make small positive numbers of each data type.
      char* const bytes = inputs_[i]->data();
      for (int64_t byte = 0; byte < inputs_[i]->bytes(); ++byte) {
        bytes[byte] = static_cast<char>(RandomIn(0, 0x3e, random));
      }
    }
    std::copy(problem_.lengths.begin(), problem_.lengths.end(), lengths_);
  }

  // Returns the results of a training call, inference and a gradient, in one string of bytes.
  std::string Run(ParallelRunner* runner) {
    std::string results;
    for (bool is_training : {false, true}) {
      CallOptions options;
      if (!ReadLengths(is_training, &options)) continue;
      Memory workspace(plan_.ForwardWorkspaceBytes(options));
      forward_.workspace = workspace.data();
      forward_.reserve_space = is_training ? reserve_space_ : nullptr;
      Count(plan_.Forward(forward_, options, {runner}));
      Append(inputs_.size() - 3, 2, &results);
    }
    CallOptions options;
    if (!ReadLengths(/*is_training=*/true, &options)) return results;
    options.keeps_reserve_space = ++num_gradients_ % 2 == 0;
    Memory workspace(plan_.BackwardWorkspaceBytes(options));
    backward_.workspace = workspace.data();
    Count(plan_.Backward(backward_, options, {runner}));
    for (const auto& result : results_) {
      results.append(result->data(), static_cast<size_t>(result->bytes()));
    }
    return results;
  }

  // Writes to all inputs until `is_over`.
  void Write(unsigned seed, const std::atomic<bool>& is_over) {
    std::mt19937 random(seed);
    const int32_t steps = static_cast<int32_t>(problem_.shape.num_steps);
    while (!is_over) {
      for (const auto& input : inputs_) {
        if (input->bytes() == 0) continue;
        volatile char* const bytes = input->data();
        // Half of the writes are in the first bytes, where the reserve space has its header.
        const int64_t most =
            random() % 2 == 0 ? std::min<int64_t>(64, input->bytes()) : input->bytes();
        bytes[static_cast<int64_t>(random()) % most] = static_cast<char>(random());
      }
      volatile int32_t* const lengths = lengths_;
      const int32_t values[] = {
          steps, 0, steps + 1, -1, 1 << 30, -(1 << 30), static_cast<int32_t>(random())};
      for (size_t i = 0; i < 20; ++i) {
        const size_t b = random() % static_cast<size_t>(problem_.shape.batch_size);
        lengths[b] = values[random() % 7];
        // Long enough that other cores see it, shorter than the lengths are read.
        for (volatile int i = 0; i < 200;) i = i + 1;
        lengths[b] = static_cast<int32_t>(random() % static_cast<unsigned>(steps + 1));
      }
    }
  }

 private:
  static void* Add(int64_t bytes, std::unique_ptr<Memory>* memory) {
    memory->reset(new Memory(bytes));
    return bytes == 0 ? nullptr : (*memory)->data();
  }
  void* AddInput(int64_t bytes) {
    inputs_.emplace_back();
    return Add(bytes, &inputs_.back());
  }
  void* AddResult(int64_t bytes) {
    results_.emplace_back();
    return Add(bytes, &results_.back());
  }
  static bool Count(const Status& status) {
    ++num_calls;
    if (!status.ok()) ++num_refused;
    return status.ok();
  }
  bool ReadLengths(bool is_training, CallOptions* options) {
    options->is_training = is_training;
    const Status status = CopySequenceLengths(problem_.lengths.empty() ? nullptr : lengths_,
                                              problem_.shape, &options->sequence_lengths);
    return status.ok() || Count(status);
  }
  void Append(size_t first, size_t count, std::string* results) const {
    for (size_t i = first; i < first + count; ++i) {
      results->append(inputs_[i]->data(), static_cast<size_t>(inputs_[i]->bytes()));
    }
  }

  const Problem problem_;
  const RnnPlan& plan_;
  ForwardBuffers forward_;
  BackwardBuffers backward_;
  void* reserve_space_ = nullptr;
  int32_t* lengths_ = nullptr;
  int64_t num_gradients_ = 0;
  size_t num_filled_ = 0;
  std::unique_ptr<Memory> lengths_memory_;
  std::vector<std::unique_ptr<Memory>> inputs_;  // the last three are results of Forward, too
  std::vector<std::unique_ptr<Memory>> results_;
};

// Returns a small model with lengths of so many sequences that reading them takes microseconds.
Problem ProblemOfManySequences(std::mt19937* random) {
  Problem problem = RandomProblem(random);
  problem.config.num_layers = problem.config.num_units = problem.config.input_size = 1;
  problem.config.num_proj = 0;
  problem.shape.batch_size = 5000;
  problem.lengths.assign(5000, static_cast<int32_t>(problem.shape.num_steps));
  return problem;
}

bool RunCase(unsigned seed) {
  std::mt19937 random(seed);
  const Problem problem = seed % 8 == 0 ? ProblemOfManySequences(&random) : RandomProblem(&random);
  EagerThreadPool pool(RandomIn(1, 3, &random));
  std::unique_ptr<RnnPlan> plan;
  if (!CreateCpuPlan(problem.config, problem.shape, "", &plan).ok()) return false;
  Calls calls(problem, *plan);
  std::mt19937 values(seed);
  calls.Fill(&values);
  const std::string expected = calls.Run(&pool);
  std::atomic<bool> is_over{false};
  std::thread writer([&] { calls.Write(seed, is_over); });
  for (int round = 0; round < kRounds; ++round) calls.Run(&pool);
  is_over = true;
  writer.join();
  values.seed(seed);
  calls.Fill(&values);
  const int64_t refused_before = num_refused;
  const bool is_right = calls.Run(&pool) == expected && num_refused == refused_before;
  if (!is_right) std::printf("FAILED: other results afterwards: %s\n", problem.Text().c_str());
  return is_right;
}

}  // namespace
}  // namespace cudnn_rnn

int main(int argc, char** argv) {
  const int status = cudnn_rnn::RunCases(argc, argv, cudnn_rnn::RunCase);
  if (status == 0) {
    std::printf("%lld %lld\n", static_cast<long long>(cudnn_rnn::num_calls),
                static_cast<long long>(cudnn_rnn::num_refused));
  }
  return status;
}
