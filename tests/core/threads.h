// Threads and kernels for the core's tests.
#ifndef CUDNN_RNN_TESTS_CORE_THREADS_H_
#define CUDNN_RNN_TESTS_CORE_THREADS_H_

#include <algorithm>
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

// Passes each task to a function.
class FunctionRunner : public ParallelRunner {
 public:
  using Task = std::function<void()>;

  FunctionRunner(int64_t num_threads, std::function<void(Task)> schedule,
                 std::shared_ptr<TeamRecruiter> recruiter = std::make_shared<TeamRecruiter>())
      : num_threads_(num_threads),
        schedule_(std::move(schedule)),
        recruiter_(std::move(recruiter)) {}

  int64_t num_threads() const override { return num_threads_; }
  void Schedule(Task task) override { schedule_(std::move(task)); }
  std::shared_ptr<TeamRecruiter> recruiter() override { return recruiter_; }
  int64_t serial_patience_ns() const override {
    return patience < 0 ? ParallelRunner::serial_patience_ns() : patience;
  }
  int64_t shared_patience_ns() const override {
    return patience < 0 ? ParallelRunner::shared_patience_ns() : patience;
  }
  int64_t linger_ns() const override { return linger; }

  int64_t patience = -1;  // of helpers in all phases; negative: the defaults
  int64_t linger = 0;     // of helpers after a call

 private:
  const int64_t num_threads_;
  const std::function<void(Task)> schedule_;
  const std::shared_ptr<TeamRecruiter> recruiter_;
};

// Starts a thread for each task; the destructor joins all threads.
class ThreadRunner : public FunctionRunner {
 public:
  // By default, shares all work, however little, and gives helpers little patience (nanoseconds),
  // so that many of them leave and come back.
  explicit ThreadRunner(int64_t num_threads, int64_t min_cycles_to_wait = 0,
                        int64_t patience_ns = 100 * 1000)
      : FunctionRunner(num_threads, [this](Task task) { threads_.emplace_back(std::move(task)); }),
        min_cycles_to_wait_(min_cycles_to_wait) {
    patience = patience_ns;
  }
  ~ThreadRunner() override {
    for (std::thread& thread : threads_) thread.join();
  }

  int64_t min_cycles_to_wake() const override { return 0; }
  int64_t min_cycles_to_wait() const override { return min_cycles_to_wait_; }

 private:
  const int64_t min_cycles_to_wait_;
  std::vector<std::thread> threads_;
};

// Keeps tasks until told to run them. For one calling thread.
class KeepingRunner : public FunctionRunner {
 public:
  explicit KeepingRunner(int64_t num_threads)
      : FunctionRunner(num_threads, [this](Task task) {
          tasks_.push_back(std::move(task));
          if (before_schedule) before_schedule();
        }) {}

  size_t num_tasks() const { return tasks_.size(); }
  void RunTasks() {
    for (const Task& task : TakeTasks()) task();
  }
  void RunTasksOnThreads(std::vector<std::thread>* threads) {
    for (Task& task : TakeTasks()) threads->emplace_back(std::move(task));
  }

  std::function<void()> before_schedule;  // on the calling thread

 private:
  std::vector<Task> TakeTasks() {
    std::vector<Task> tasks;
    tasks.swap(tasks_);
    return tasks;
  }

  std::vector<Task> tasks_;
};

// Returns the instruction sets that this processor and the system support, oldest first.
inline std::vector<std::string> InstructionSets() {
  std::vector<std::string> all;
  for (InstructionSet one : InstructionSetsOf(ThisProcessor().architecture)) {
    const Kernels<float>* kernels;
    if (ChooseKernels<float>(Name(one), FactorFormat::kRounded, &kernels).ok()) {
      all.push_back(Name(one));
    }
  }
  return all;
}

// Returns whether the instruction set rounds factors to bfloat16 if they may be.
inline bool MultipliesBfloat16(const std::string& instruction_set) {
  return instruction_set.find("bf16") != std::string::npos;
}

// Returns all kernels for T, each once.
template <typename T>
std::vector<const Kernels<T>*> AllKernels() {
  std::vector<FactorFormat> formats = {FactorFormat::kExact};
  if (std::is_same<T, float>::value) {
    formats.insert(formats.end(), {FactorFormat::kSplit, FactorFormat::kRounded});
  }
  std::vector<const Kernels<T>*> all;
  for (const std::string& instruction_set : InstructionSets()) {
    for (FactorFormat factors : formats) {
      const Kernels<T>* kernels;
      EXPECT(ChooseKernels<T>(instruction_set, factors, &kernels).ok(), instruction_set);
      for (const Kernels<T>* one : {kernels, KernelsForFewRows(*kernels)}) {
        const bool is_new = one != nullptr && std::find(all.begin(), all.end(), one) == all.end();
        if (is_new) all.push_back(one);
      }
    }
  }
  return all;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_THREADS_H_
