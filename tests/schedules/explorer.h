// A deterministic scheduler that runs a program of several threads in all its schedules.
//
// The threads are fibers. Before each operation that other threads can notice (an atomic, a mutex,
// the queue of the pool) the running thread asks the explorer, which may continue another one. All
// else that is not determined is chosen by the explorer as well: which store a load reads, whether
// time is up, what the pool does with a task. An execution is thus a list of choices. The explorer
// runs the program again and again, depth first over these lists.
//
// Two lists that lead to the same state need only one continuation. A hash of the state is looked
// up in a table before each step; an execution that reaches a known state ends there. A state is
// identified in one of two ways:
//
// - Graphs: by what each thread has done and which store each of its loads has read (the
//   happens-before graph), not by the order in which independent operations ran. Such states have
//   the same future, races and old stores included. If there are too many, preemptions are limited
//   (switches away from a thread that could continue; away from a thread that waits, they are
//   free), and so are reads of old stores.
// - Values: by the newest values of all atomics, by what locks guard (all that was written outside
//   the owners' stacks while they were locked), and by what each thread has done and read since it
//   last called Forget. These are far fewer, so that programs can be explored without limits. Loads
//   read the newest store only. Races are found only in the executions that are run.
#ifndef CUDNN_RNN_TESTS_SCHEDULES_EXPLORER_H_
#define CUDNN_RNN_TESTS_SCHEDULES_EXPLORER_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/schedules/fibers.h"
#include "tests/schedules/memory.h"

namespace schedules {

// What is explored.
class Program {
 public:
  virtual ~Program() = default;
  virtual int num_threads() const = 0;
  // Called at the beginning of each execution, before its threads.
  virtual void SetUp() = 0;
  virtual void RunThread(int thread) = 0;
  // Called when all threads are done or idle. Returns what is wrong, or "".
  virtual std::string TearDown() = 0;
};

struct Limits {
  static constexpr int kNone = 1 << 14;

  bool knows_values = false;  // States are values, not graphs.
  int preemptions = kNone;
  int old_reads = kNone;  // of stores that are not the newest
  int64_t executions = int64_t(1) << 40;
  bool is_random = false;  // Random choices, with repetition, until `executions`.
  uint64_t seed = 1;
  bool shows_progress = false;  // on stderr
};

struct Summary {
  int64_t num_executions = 0;  // including those that ended at a known state
  int64_t num_complete = 0;
  int64_t num_states = 0;
  int64_t max_steps = 0;
  bool is_exhausted = false;  // Nothing is left within the limits.
  bool is_limited = false;    // The limits have left something out.
  std::string failure;        // the first one; "" if all executions were right
  std::string choices;        // of the failure, for Replay
};

class Explorer {
 public:
  Summary Explore(Program* program, const Limits& limits);
  // Runs one execution, of Summary::choices, and prints its operations.
  Summary Replay(Program* program, const std::string& choices);

  // True in the explored code, false in the explorer, in SetUp and in TearDown.
  bool is_active() const { return running_ >= 0 && !is_inside_; }
  // Whose heap new objects belong to; -1: none of the explored ones.
  int heap() const { return is_inside_ ? -1 : running_ >= 0 ? running_ : heap_; }
  int running() const { return running_; }

  // Called in explored code, by the running thread.

  int Choose(int num_options, const char* what);
  // Returns a hash of what the thread has done.
  uint64_t history() const { return threads_[running_].hash; }
  // Declares that what the thread will do depends only on `state`, these bytes and memory that all
  // threads have.
  void Forget(uint64_t state, const void* bytes, size_t size);
  [[noreturn]] void Fail(const std::string& what);
  void Access(const void* address, size_t size, bool is_write, const void* site);
  uint64_t LoadAtomic(const void* address, size_t size, int order, const void* site);
  // A read-modify-write calls BeginUpdate, reads the newest store, and may then store.
  void BeginUpdate(const void* address, size_t size, const void* site);
  void LoadNewest(const void* address, size_t size, int order);
  void EndUpdate(void* address, uint64_t value, int order);
  void StoreAtomic(void* address, size_t size, uint64_t value, int order, const void* site);
  void LockMutex(const void* mutex);
  void UnlockMutex(const void* mutex);
  // Waits until *count is positive. A thread that waits here for ever is idle, not blocked.
  void WaitForPositive(const int64_t* count);
  // Waits until another thread stores something that this one has read since its last wait, or, if
  // it has called IsOver(true) since then, until time is up.
  void Wait();
  bool IsOver(bool can_be_over);
  // Returns the seconds of a clock. Between two readings, any time may pass, but in a loop it does.
  int64_t ReadClock();
  void EndLife(const void* begin, const void* end);
  // Ends the life of all objects below the caller's frame.
  void EndFrames();

 private:
  enum class Status { kReady, kLocks, kWaits, kIdles, kDone };
  struct Thread {
    Fiber fiber;
    Status status;
    uint64_t hash;          // of all that the thread has done and read
    uint64_t hash_at_wait;  // before its first wait in this loop
    bool is_in_wait_loop;   // Since its last wait it has only loaded.
    bool can_time_out, has_timed_out;
    int64_t last_reading;  // of the clock
    int num_readings;      // of the same time
    Lock* lock;
    const int64_t* count;
  };
  struct Choice {
    int chosen, num_options;
  };
  struct Option {
    int thread;
    bool times_out;
  };
  struct Inside;  // a scope in which the explorer itself runs
  struct Budget {
    int16_t preemptions, old_reads;
  };

  static void RunFiber();
  void RunExecution();
  bool NextChoices();
  int Pick(int num_options, const char* what);
  // Continues the thread that is chosen. Of several threads, the running one comes first.
  void Step();
  void AddOptions(int thread);
  void Continue(const Option& option);
  bool IsKnown();
  [[noreturn]] void Abandon();
  void RecordFailure(const std::string& what);
  void Operate(const void* address, size_t size, const void* site, const char* what);
  void Trace(const char* what, const void* address, uint64_t value, int order);

  Memory memory_;
  Thread threads_[kMaxThreads];
  Fiber main_;
  Program* program_ = nullptr;
  Limits limits_;
  Summary summary_;
  int num_threads_ = 0, running_ = -1, heap_ = -1;
  bool is_inside_ = false, is_over_ = false, traces_ = false;
  std::vector<Choice> choices_;
  size_t depth_ = 0;
  int64_t num_steps_ = 0, clock_ = 0;
  int preemptions_ = 0, old_reads_ = 0;
  uint64_t random_ = 0;
  const void* site_ = nullptr;
  std::vector<Option> options_;
  std::unordered_map<uint64_t, Budget> known_;
};

extern Explorer explorer;

}  // namespace schedules

#endif  // CUDNN_RNN_TESTS_SCHEDULES_EXPLORER_H_
