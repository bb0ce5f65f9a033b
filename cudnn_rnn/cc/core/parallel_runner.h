// How a plan uses threads without knowing whose they are.
#ifndef CUDNN_RNN_CC_CORE_PARALLEL_RUNNER_H_
#define CUDNN_RNN_CC_CORE_PARALLEL_RUNNER_H_

#include <cstdint>
#include <functional>

namespace cudnn_rnn {

class ParallelRunner {
 public:
  using Work = std::function<void(int64_t begin, int64_t end)>;

  virtual ~ParallelRunner() = default;

  // Calls `work` on disjoint ranges that together are [0, num_items), on any threads, and returns
  // when all are done. `item_cost` is a rough number of processor cycles for one item. A plan's
  // items never depend on one another and are the same whatever the number of threads, so results
  // are too.
  virtual void Run(int64_t num_items, int64_t item_cost, const Work& work) = 0;
};

// Everything on the calling thread.
class SerialRunner : public ParallelRunner {
 public:
  void Run(int64_t num_items, int64_t, const Work& work) override {
    if (num_items > 0) work(0, num_items);
  }
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_PARALLEL_RUNNER_H_
