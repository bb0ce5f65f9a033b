// Interface to the threads that a plan may use, independent of who owns them.
#ifndef CUDNN_RNN_CC_CORE_PARALLEL_RUNNER_H_
#define CUDNN_RNN_CC_CORE_PARALLEL_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace cudnn_rnn {

class TeamRecruiter;

class ParallelRunner {
 public:
  virtual ~ParallelRunner() = default;

  // Returns how many threads may work at once, including the calling one; at least 1.
  virtual int64_t num_threads() const = 0;

  // Passes `task` to the threads. They may call it at any time, more than once or never, even
  // inside Schedule on the calling thread, or destroy it. Not called if num_threads() is 1.
  virtual void Schedule(std::function<void()> task) = 0;

  // Returns the recruiter of these threads, shared by all runners of a thread pool. Not called if
  // num_threads() is 1.
  virtual std::shared_ptr<TeamRecruiter> recruiter() = 0;

  // Processor cycles of work that justify waking other threads and, once threads work together,
  // waiting for one another.
  virtual int64_t min_cycles_to_wake() const { return 30000; }
  virtual int64_t min_cycles_to_wait() const { return 4000; }

  // Nanoseconds without work after which a helper gives its thread back. Serial, while the caller
  // computes alone: about the cost of waking a thread. Shared, while others compute slices of a
  // phase: longer than a slow slice takes, since the next phase is probably shared too.
  virtual int64_t serial_patience_ns() const { return 50 * 1000; }
  virtual int64_t shared_patience_ns() const { return 1000 * 1000; }

  // Nanoseconds for which a helper keeps its thread after a call and polls for the next one, if the
  // last two calls followed each other as soon: longer than TensorFlow takes between two calls of a
  // session. 0: not at all.
  virtual int64_t linger_ns() const { return 400 * 1000; }
};

// Runs everything on the calling thread.
class SerialRunner : public ParallelRunner {
 public:
  int64_t num_threads() const override { return 1; }
  void Schedule(std::function<void()>) override {}
  std::shared_ptr<TeamRecruiter> recruiter() override { return nullptr; }
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_PARALLEL_RUNNER_H_
