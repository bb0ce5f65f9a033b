// Runners that treat tasks in ways that a thread pool may, but seldom does.
#ifndef CUDNN_RNN_TESTS_CORE_UNUSUAL_RUNNERS_H_
#define CUDNN_RNN_TESTS_CORE_UNUSUAL_RUNNERS_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/cpu/thread_pool.h"
#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/team_recruiter.h"

namespace cudnn_rnn {

// Has its own recruiter and the default costs.
class UnusualRunner : public ParallelRunner {
 public:
  explicit UnusualRunner(int64_t num_threads) : num_threads_(num_threads) {}
  int64_t num_threads() const override { return num_threads_; }
  std::shared_ptr<TeamRecruiter> recruiter() override { return recruiter_; }

 private:
  const int64_t num_threads_;
  const std::shared_ptr<TeamRecruiter> recruiter_ = std::make_shared<TeamRecruiter>();
};

// Never calls a task.
class DroppingRunner : public UnusualRunner {
 public:
  using UnusualRunner::UnusualRunner;
  void Schedule(std::function<void()>) override {}
};

// Calls each task at once.
class InlineRunner : public UnusualRunner {
 public:
  using UnusualRunner::UnusualRunner;
  void Schedule(std::function<void()> task) override { task(); }
};

// Calls each task four times, two calls of Schedule further down the stack.
class RepeatingRunner : public UnusualRunner {
 public:
  using UnusualRunner::UnusualRunner;
  void Schedule(std::function<void()> task) override {
    if (depth_ == 2) return task();
    ++depth_;
    Schedule(task);
    Schedule(task);
    --depth_;
  }

 private:
  int depth_ = 0;
};

// Keeps tasks until told to run them. For one calling thread.
class KeepingRunner : public UnusualRunner {
 public:
  using UnusualRunner::UnusualRunner;
  void Schedule(std::function<void()> task) override {
    tasks_.push_back(std::move(task));
    if (before_schedule) before_schedule();
  }
  int64_t serial_patience_ns() const override {
    return patience < 0 ? UnusualRunner::serial_patience_ns() : patience;
  }
  int64_t shared_patience_ns() const override {
    return patience < 0 ? UnusualRunner::shared_patience_ns() : patience;
  }

  size_t num_tasks() const { return tasks_.size(); }
  void RunTasks() {
    for (const std::function<void()>& task : TakeTasks()) task();
  }
  void RunTasksOnThreads(std::vector<std::thread>* threads) {
    for (std::function<void()>& task : TakeTasks()) threads->emplace_back(std::move(task));
  }

  std::function<void()> before_schedule;  // on the calling thread
  int64_t patience = -1;                  // of helpers in all phases; negative: the defaults

 private:
  std::vector<std::function<void()>> TakeTasks() {
    std::vector<std::function<void()>> tasks;
    tasks.swap(tasks_);
    return tasks;
  }

  std::vector<std::function<void()>> tasks_;
};

// Schedules a call's tasks on a pool. All work is worth sharing.
class PoolRunner : public ParallelRunner {
 public:
  PoolRunner(ThreadPool* pool, int64_t num_threads) : pool_(pool), num_threads_(num_threads) {}
  int64_t num_threads() const override { return num_threads_; }
  void Schedule(std::function<void()> task) override { pool_->Schedule(std::move(task)); }
  std::shared_ptr<TeamRecruiter> recruiter() override { return pool_->recruiter(); }
  int64_t min_cycles_to_wake() const override { return 0; }
  int64_t min_cycles_to_wait() const override { return 0; }

 private:
  ThreadPool* const pool_;
  const int64_t num_threads_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_UNUSUAL_RUNNERS_H_
