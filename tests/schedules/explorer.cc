#include "tests/schedules/explorer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/schedules/interface.h"

namespace schedules {
namespace {

// No program under test takes as many steps, unless a loop does not end.
constexpr int64_t kMaxSteps = 4000;
constexpr int64_t kExecutionsPerReport = 500 * 1000;
// The clock of a thread that reads it more often without waiting goes on.
constexpr int kMaxEqualReadings = 2;

const char* NameOf(int order) {
  switch (order) {
    case __ATOMIC_RELAXED:
      return "relaxed";
    case __ATOMIC_RELEASE:
      return "release";
    case __ATOMIC_ACQ_REL:
      return "acq_rel";
    case __ATOMIC_SEQ_CST:
      return "seq_cst";
    default:
      return "acquire";
  }
}

}  // namespace

Explorer explorer;

struct Explorer::Inside {
  Inside() { explorer.is_inside_ = true; }
  ~Inside() { explorer.is_inside_ = false; }
};

Summary Explorer::Explore(Program* program, const Limits& limits) {
  program_ = program;
  limits_ = limits;
  summary_ = Summary();
  known_.clear();
  choices_.clear();
  random_ = Mix(limits.seed, 1);
  do {
    if (limits.is_random) choices_.clear();
    RunExecution();
    if (!summary_.failure.empty()) break;
    if (limits.shows_progress && summary_.num_executions % kExecutionsPerReport == 0) {
      std::fprintf(stderr, "%lld executions, %lld states\n",
                   static_cast<long long>(summary_.num_executions),
                   static_cast<long long>(known_.size()));
    }
    if (summary_.num_executions >= limits.executions) break;
    summary_.is_exhausted = !limits.is_random && !NextChoices();
  } while (!summary_.is_exhausted);
  summary_.num_states = static_cast<int64_t>(known_.size());
  return summary_;
}

Summary Explorer::Replay(Program* program, const std::string& choices) {
  program_ = program;
  summary_ = Summary();
  choices_.clear();
  // As RecordFailure writes them.
  limits_ = Limits();
  limits_.knows_values = choices[0] == 'v';
  limits_.preemptions = limits_.old_reads = std::atoi(choices.c_str() + 1);
  for (size_t i = choices.find(':') + 1; i < choices.size(); ++i) {
    const char c = choices[i];
    choices_.push_back({c <= '9' ? c - '0' : c - 'a' + 10, -1});
  }
  traces_ = true;
  RunExecution();
  traces_ = false;
  return summary_;
}

// Proceeds to the next list of choices; returns false after the last one.
bool Explorer::NextChoices() {
  choices_.resize(std::min(choices_.size(), depth_));
  while (!choices_.empty() && choices_.back().chosen + 1 == choices_.back().num_options) {
    choices_.pop_back();
  }
  if (choices_.empty()) return false;
  ++choices_.back().chosen;
  return true;
}

void Explorer::RunExecution() {
  ++summary_.num_executions;
  memory_.Reset(!limits_.knows_values);
  ResetHeaps();
  depth_ = 0;
  num_steps_ = clock_ = 0;
  preemptions_ = old_reads_ = 0;
  is_over_ = false;
  heap_ = kMaxThreads;
  program_->SetUp();
  heap_ = -1;
  num_threads_ = program_->num_threads();
  for (int i = 0; i < num_threads_; ++i) {
    Thread* const thread = &threads_[i];
    thread->fiber.Prepare(Stack(i), kStackBytes, &RunFiber);
    thread->status = Status::kReady;
    thread->hash = static_cast<uint64_t>(i);
    thread->last_reading = thread->num_readings = 0;
    thread->is_in_wait_loop = thread->can_time_out = thread->has_timed_out = false;
  }
  is_inside_ = true;
  running_ = 0;
  main_.SwitchTo(&threads_[0].fiber);
  running_ = -1;
  is_inside_ = false;
  summary_.max_steps = std::max(summary_.max_steps, num_steps_);
  if (!is_over_) return;
  ++summary_.num_complete;
  heap_ = kMaxThreads;
  std::string wrong = program_->TearDown();
  if (wrong.empty() && NumLiveObjects() > 0) wrong = "objects are never deleted";
  heap_ = -1;
  site_ = nullptr;
  if (!wrong.empty()) RecordFailure(wrong);
}

void Explorer::RunFiber() {
  explorer.is_inside_ = false;
  const int thread = explorer.running_;
  explorer.program_->RunThread(thread);
  explorer.is_inside_ = true;
  explorer.threads_[thread].status = Status::kDone;
  explorer.Step();
}

void Explorer::Abandon() { threads_[running_].fiber.LeaveFor(&main_); }

void Explorer::Fail(const std::string& what) {
  is_inside_ = true;
  RecordFailure(what);
  Abandon();
}

void Explorer::RecordFailure(const std::string& what) {
  summary_.failure = what;
  if (site_ != nullptr) {
    char text[64];
    std::snprintf(text, sizeof text, " [%p]", site_);
    summary_.failure += text;
  }
  summary_.choices = limits_.knows_values ? "v" : "g";
  summary_.choices += std::to_string(limits_.preemptions) + ":";
  choices_.resize(std::min(choices_.size(), depth_));
  for (const Choice& choice : choices_) {
    summary_.choices +=
        static_cast<char>(choice.chosen < 10 ? '0' + choice.chosen : 'a' + choice.chosen - 10);
  }
  if (traces_) std::printf("thread %d: %s\n", running_, summary_.failure.c_str());
}

int Explorer::Pick(int num_options, const char* what) {
  if (num_options == 1) return 0;
  if (depth_ >= choices_.size()) {
    int chosen = 0;
    if (limits_.is_random) {
      random_ = Mix(random_, 1);
      // Mostly continues, so that threads get far in different ways.
      if (random_ >> 62 == 0) chosen = static_cast<int>((random_ >> 20) % num_options);
    }
    choices_.push_back({chosen, num_options});
  }
  Choice* const choice = &choices_[depth_++];
  if (choice->num_options == -1) choice->num_options = num_options;  // in Replay
  if (choice->num_options != num_options) {
    std::fprintf(stderr, "%s has %d options, but had %d: the program is not deterministic\n", what,
                 num_options, choice->num_options);
    std::abort();
  }
  return choice->chosen;
}

int Explorer::Choose(int num_options, const char* what) {
  const Inside inside;
  const int chosen = Pick(num_options, what);
  Thread* const thread = &threads_[running_];
  thread->is_in_wait_loop = false;
  thread->hash = Mix(thread->hash, static_cast<uint64_t>(chosen));
  Trace(what, nullptr, static_cast<uint64_t>(chosen), -1);
  return chosen;
}

void Explorer::Forget(uint64_t state, const void* bytes, size_t size) {
  if (!limits_.knows_values) return;
  uint64_t hash = Mix(state, HeapState(running_));
  for (size_t i = 0; i < size; ++i) hash = Mix(hash, static_cast<const unsigned char*>(bytes)[i]);
  threads_[running_].hash = hash;
}

void Explorer::AddOptions(int index) {
  const Thread& thread = threads_[index];
  switch (thread.status) {
    case Status::kReady:
      options_.push_back({index, false});
      break;
    case Status::kLocks:
      if (thread.lock->owner < 0) options_.push_back({index, false});
      break;
    case Status::kWaits:
      if (memory_.HasNews(index)) options_.push_back({index, false});
      if (thread.can_time_out) options_.push_back({index, true});
      break;
    case Status::kIdles:
      if (*thread.count > 0) options_.push_back({index, false});
      break;
    case Status::kDone:
      break;
  }
}

bool Explorer::IsKnown() {
  uint64_t state = limits_.preemptions < Limits::kNone ? static_cast<uint64_t>(running_) : 0;
  if (limits_.knows_values) state = memory_.HashValues();
  state = Mix(state, static_cast<uint64_t>(clock_));
  for (int i = 0; i < num_threads_; ++i) {
    const Thread& thread = threads_[i];
    uint64_t status = static_cast<uint64_t>(i * 8 + static_cast<int>(thread.status));
    if (thread.status == Status::kWaits && limits_.knows_values) {
      status += memory_.HasNews(i) * 64 + thread.can_time_out * 128;
    }
    state = Mix(state, Mix(thread.hash, status));
  }
  const Budget used = {static_cast<int16_t>(limits_.preemptions < Limits::kNone ? preemptions_ : 0),
                       static_cast<int16_t>(limits_.old_reads < Limits::kNone ? old_reads_ : 0)};
  const auto inserted = known_.insert({state, used});
  if (inserted.second) return false;
  Budget* const before = &inserted.first->second;
  if (before->preemptions <= used.preemptions && before->old_reads <= used.old_reads) return true;
  if (before->preemptions >= used.preemptions && before->old_reads >= used.old_reads) {
    *before = used;
  }
  return false;
}

void Explorer::Step() {
  if (++num_steps_ > kMaxSteps) Fail("a loop does not end");
  options_.clear();
  AddOptions(running_);
  const size_t num_own = options_.size();
  const Status status = threads_[running_].status;
  const bool is_free = num_own == 0 || status == Status::kWaits || status == Status::kIdles;
  if (is_free || preemptions_ < limits_.preemptions) {
    for (int i = 0; i < num_threads_; ++i) {
      if (i != running_) AddOptions(i);
    }
  } else {
    summary_.is_limited = true;
  }
  if (options_.empty()) {
    for (int i = 0; i < num_threads_; ++i) {
      const Status blocked = threads_[i].status;
      if (blocked == Status::kLocks) Fail("deadlock: a thread waits for a mutex for ever");
      if (blocked == Status::kWaits) Fail("deadlock: a thread waits for a store for ever");
    }
    is_over_ = true;
    Abandon();
  }
  if (!limits_.is_random && !traces_ && depth_ >= choices_.size() && IsKnown()) Abandon();
  const int chosen = Pick(static_cast<int>(options_.size()), "a step");
  if (!is_free && static_cast<size_t>(chosen) >= num_own) ++preemptions_;
  Continue(options_[static_cast<size_t>(chosen)]);
}

void Explorer::Continue(const Option& option) {
  Thread* const to = &threads_[option.thread];
  if (option.times_out) to->has_timed_out = true;
  if (option.thread == running_) return;
  Thread* const from = &threads_[running_];
  running_ = option.thread;
  from->fiber.SwitchTo(&to->fiber);
}

void Explorer::Trace(const char* what, const void* address, uint64_t value, int order) {
  if (!traces_) return;
  std::printf("thread %d: %-12s", running_, what);
  if (address != nullptr) std::printf(" %p", address);
  std::printf(" %lld", static_cast<long long>(value));
  if (order >= 0) std::printf(" %s [%p]", NameOf(order), site_);
  std::printf("\n");
}

void Explorer::Access(const void* address, size_t size, bool is_write, const void* site) {
  const Inside inside;
  const char* const wrong = memory_.CheckPlain(running_, address, size, is_write);
  site_ = site;
  if (wrong != nullptr) Fail(wrong);
}

// Before an atomic operation: others may run first.
void Explorer::Operate(const void* address, size_t size, const void* site, const char* what) {
  // Reference counts of shared_ptr, the only atomics of 4 bytes, are not worth exploring: they
  // order their users, but take effect together with the operation before.
  if (size != 4) Step();
  site_ = site;
  if (size == 4 && address < Heap(0)) Fail("an atomic of 4 bytes that is no reference count");
  const char* const wrong = memory_.CheckAtomic(running_, address, size);
  if (wrong != nullptr) Fail(std::string(what) + ": " + wrong);
}

uint64_t Explorer::LoadAtomic(const void* address, size_t size, int order, const void* site) {
  const Inside inside;
  Operate(address, size, site, "load");
  int num_readable = memory_.NumReadable(running_, address, size, order);
  if (size == 4 || limits_.knows_values) num_readable = 1;
  if (num_readable > 1 && old_reads_ >= limits_.old_reads) {
    num_readable = 1;
    summary_.is_limited = true;
  }
  const int option = Pick(num_readable, "a load");
  if (option > 0) ++old_reads_;
  const uint64_t value = memory_.Load(running_, address, option, order, &threads_[running_].hash);
  Trace(option > 0 ? "load (old)" : "load", address, value, order);
  return value;
}

void Explorer::BeginUpdate(const void* address, size_t size, const void* site) {
  const Inside inside;
  threads_[running_].is_in_wait_loop = false;
  Operate(address, size, site, "update");
}

void Explorer::LoadNewest(const void* address, size_t size, int order) {
  const Inside inside;
  memory_.NumReadable(running_, address, size, order);
  const uint64_t value =
      memory_.Load(running_, address, /*option=*/0, order, &threads_[running_].hash);
  Trace("update from", address, value, order);
}

void Explorer::EndUpdate(void* address, uint64_t value, int order) {
  const Inside inside;
  memory_.Store(running_, address, value, order, /*is_update=*/true, &threads_[running_].hash);
  Trace("update to", address, value, order);
}

void Explorer::StoreAtomic(void* address, size_t size, uint64_t value, int order,
                           const void* site) {
  const Inside inside;
  Operate(address, size, site, "store");
  Thread* const thread = &threads_[running_];
  thread->is_in_wait_loop = false;
  memory_.NumReadable(running_, address, size, order);
  memory_.Store(running_, address, value, order, /*is_update=*/false, &thread->hash);
  Trace("store", address, value, order);
}

void Explorer::LockMutex(const void* mutex) {
  const Inside inside;
  Thread* const thread = &threads_[running_];
  thread->lock = memory_.FindLock(mutex);
  thread->status = Status::kLocks;
  thread->is_in_wait_loop = false;
  Step();
  thread->status = Status::kReady;
  memory_.Acquire(running_, thread->lock, &thread->hash);
  Trace("lock", mutex, 0, -1);
}

void Explorer::UnlockMutex(const void* mutex) {
  const Inside inside;
  Thread* const thread = &threads_[running_];
  Lock* const lock = memory_.FindLock(mutex);
  if (lock->owner != running_) Fail("unlocks a mutex that it has not locked");
  thread->hash = Mix(thread->hash, 2);
  memory_.Release(running_, lock, thread->hash);
  Trace("unlock", mutex, 0, -1);
}

void Explorer::WaitForPositive(const int64_t* count) {
  const Inside inside;
  Thread* const thread = &threads_[running_];
  thread->count = count;
  thread->status = Status::kIdles;
  Step();
  thread->status = Status::kReady;
  thread->hash = Mix(thread->hash, 5);
}

void Explorer::Wait() {
  const Inside inside;
  Thread* const thread = &threads_[running_];
  // A loop around Backoff::Wait keeps nothing from one round to the next, so that the state is the
  // same whatever the rounds so far have read, apart from what the thread knows of memory now.
  if (!thread->is_in_wait_loop) thread->hash_at_wait = thread->hash;
  thread->is_in_wait_loop = true;
  thread->hash = Mix(thread->hash_at_wait, limits_.knows_values ? 4 : memory_.HashView(running_));
  thread->has_timed_out = false;
  thread->status = Status::kWaits;
  Trace("waits", nullptr, 0, -1);
  Step();
  thread->status = Status::kReady;
  if (thread->has_timed_out) thread->hash = Mix(thread->hash, 6);
  thread->can_time_out = false;
  memory_.BeginRound(running_);
}

bool Explorer::IsOver(bool can_be_over) {
  const Inside inside;
  Thread* const thread = &threads_[running_];
  if (!can_be_over) return false;
  if (thread->has_timed_out) {
    thread->has_timed_out = thread->is_in_wait_loop = false;
    thread->hash = Mix(thread->hash, 3);
    Trace("time is up", nullptr, 0, -1);
    return true;
  }
  thread->can_time_out = true;
  return false;
}

int64_t Explorer::ReadClock() {
  const Inside inside;
  Step();
  Thread* const thread = &threads_[running_];
  if (thread->last_reading != clock_) thread->num_readings = 0;
  clock_ += thread->num_readings == kMaxEqualReadings ? 1 : Pick(2, "a second passes");
  thread->num_readings = thread->last_reading == clock_ ? thread->num_readings + 1 : 1;
  thread->last_reading = clock_;
  thread->hash = Mix(thread->hash, static_cast<uint64_t>(clock_));
  Trace("clock", nullptr, static_cast<uint64_t>(clock_), -1);
  return clock_;
}

void Explorer::EndLife(const void* begin, const void* end) {
  const Inside inside;
  const char* const wrong =
      memory_.EndLife(running_, static_cast<const char*>(begin), static_cast<const char*>(end));
  if (wrong != nullptr) Fail(wrong);
}

void Explorer::EndFrames() {
  EndLife(Stack(running_), static_cast<const char*>(__builtin_frame_address(0)));
}

}  // namespace schedules
