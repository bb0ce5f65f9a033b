// Threads and kernels for the core's tests.
#ifndef CUDNN_RNN_TESTS_CORE_THREADS_H_
#define CUDNN_RNN_TESTS_CORE_THREADS_H_

#include <algorithm>
#include <thread>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {

// New threads for each call, each with one contiguous range.
class ThreadRunner : public ParallelRunner {
 public:
  explicit ThreadRunner(int num_threads) : num_threads_(num_threads) {}

  void Run(int64_t num_items, int64_t, const Work& work) override {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < num_threads_; ++i) {
      const int64_t begin = num_items * i / num_threads_;
      const int64_t end = num_items * (i + 1) / num_threads_;
      if (begin < end) threads.emplace_back([=, &work] { work(begin, end); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const int64_t num_threads_;
};

// Those that this processor runs.
template <typename T>
std::vector<const Kernels<T>*> AllKernels() {
  std::vector<const Kernels<T>*> all;
  for (const char* instruction_set : {"portable", "avx2", "avx512"}) {
    const Kernels<T>* kernels;
    if (ChooseKernels<T>(instruction_set, &kernels).ok()) all.push_back(kernels);
  }
  return all;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_THREADS_H_
