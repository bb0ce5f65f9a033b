// A pool of persistent threads, like TensorFlow's intra-op pool, for measuring and testing plans
// without TensorFlow.
#ifndef CUDNN_RNN_TESTS_CORE_THREAD_POOL_H_
#define CUDNN_RNN_TESTS_CORE_THREAD_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/team_recruiter.h"

namespace cudnn_rnn {

// The calling thread counts as one of the threads; the others sleep until there is a task. If the
// queue is full, Schedule runs the task itself, as in TensorFlow's pool, whose queue has 1,024
// entries.
class ThreadPool : public ParallelRunner {
 public:
  explicit ThreadPool(int64_t num_threads, size_t queue_size = 1024)
      : num_threads_(num_threads), queue_size_(queue_size) {
    for (int64_t i = 1; i < num_threads_; ++i) threads_.emplace_back([this] { Serve(); });
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stops_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int64_t num_threads() const override { return num_threads_; }

  void Schedule(std::function<void()> task) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (tasks_.size() < queue_size_) {
        tasks_.push_back(std::move(task));
        wake_.notify_one();
        return;
      }
    }
    task();
  }

  std::shared_ptr<TeamRecruiter> recruiter() override { return recruiter_; }

 private:
  void Serve() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return stops_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  const int64_t num_threads_;
  const size_t queue_size_;
  const std::shared_ptr<TeamRecruiter> recruiter_ = std::make_shared<TeamRecruiter>();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

// Shares every phase, however little work it is.
class EagerThreadPool : public ThreadPool {
 public:
  using ThreadPool::ThreadPool;
  int64_t min_cycles_to_wake() const override { return 0; }
  int64_t min_cycles_to_wait() const override { return 0; }
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_THREAD_POOL_H_
