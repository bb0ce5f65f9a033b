// Threads and kernels for the core's tests.
#ifndef CUDNN_RNN_TESTS_CORE_THREADS_H_
#define CUDNN_RNN_TESTS_CORE_THREADS_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/team_recruiter.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

// Starts a thread for each task; the destructor joins all threads.
class ThreadRunner : public ParallelRunner {
 public:
  // By default, shares all work, however little, and gives helpers little patience (nanoseconds),
  // so that many of them leave and come back.
  explicit ThreadRunner(int64_t num_threads, int64_t min_cycles_to_wait = 0,
                        int64_t patience = 100 * 1000)
      : num_threads_(num_threads), min_cycles_to_wait_(min_cycles_to_wait), patience_(patience) {}
  ~ThreadRunner() override {
    for (std::thread& thread : threads_) thread.join();
  }

  int64_t num_threads() const override { return num_threads_; }
  void Schedule(std::function<void()> task) override { threads_.emplace_back(std::move(task)); }
  std::shared_ptr<TeamRecruiter> recruiter() override { return recruiter_; }
  int64_t min_cycles_to_wake() const override { return 0; }
  int64_t min_cycles_to_wait() const override { return min_cycles_to_wait_; }
  int64_t serial_patience_ns() const override { return patience_; }
  int64_t shared_patience_ns() const override { return patience_; }

 private:
  const int64_t num_threads_;
  const int64_t min_cycles_to_wait_;
  const int64_t patience_;
  const std::shared_ptr<TeamRecruiter> recruiter_ = std::make_shared<TeamRecruiter>();
  std::vector<std::thread> threads_;
};

// Returns the instruction sets that this processor supports, oldest first.
inline std::vector<std::string> InstructionSets() {
  std::vector<std::string> all;
  for (const char* instruction_set : {"portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"}) {
    const Kernels<float>* kernels;
    if (ChooseKernels<float>(instruction_set, DataType::kFloat, &kernels).ok()) {
      all.push_back(instruction_set);
    }
  }
  return all;
}

// Returns whether the instruction set rounds factors to bfloat16 in bfloat16 models.
inline bool MultipliesBfloat16(const std::string& instruction_set) {
  return instruction_set == "avx512_bf16" || instruction_set == "amx_bf16";
}

// Returns all kernels for T, each once; bfloat16 models have all of float's kernels and more.
template <typename T>
std::vector<const Kernels<T>*> AllKernels() {
  const DataType data_type =
      std::is_same<T, double>::value ? DataType::kDouble : DataType::kBfloat16;
  std::vector<const Kernels<T>*> all;
  for (const std::string& instruction_set : InstructionSets()) {
    const Kernels<T>* kernels;
    if (ChooseKernels<T>(instruction_set, data_type, &kernels).ok() &&
        kernels->instruction_set == instruction_set) {
      all.push_back(kernels);
    }
  }
  return all;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_THREADS_H_
