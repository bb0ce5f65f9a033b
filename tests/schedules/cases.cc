#include "tests/schedules/cases.h"

#include <alloca.h>

#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <new>
#include <string>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/team.h"
#include "tests/schedules/interface.h"

namespace schedules {
namespace {

using cudnn_rnn::ParallelRunner;
using cudnn_rnn::RunTeam;
using cudnn_rnn::TeamMember;
using cudnn_rnn::TeamRecruiter;
using Task = std::function<void()>;

constexpr int64_t kManyCycles = int64_t(1) << 40;
constexpr int kMaxPhases = 4, kMaxItems = 4, kMaxCalls = 6, kMaxTasks = 24;

struct Thrown {};

// A call and what its members compute. Plain variables: unordered accesses are found.
struct Call {
  int64_t values[kMaxPhases + 1][kMaxItems];
  int64_t num_computed[kMaxPhases + 1][kMaxItems];
  int64_t is_present[kMaxThreads];  // in the program
  int64_t has_thrown[kMaxThreads];
};

// All that one execution consists of.
class World : public ParallelRunner {
 public:
  explicit World(const Case& of) : case_(of), recruiter_(std::make_shared<TeamRecruiter>()) {
    std::memset(calls_, 0, sizeof calls_);
  }

  int64_t num_threads() const override { return case_.members; }
  std::shared_ptr<TeamRecruiter> recruiter() override { return recruiter_; }
  // A team of three is worth while in any case.
  int64_t min_cycles_to_wake() const override { return case_.recruits_often ? 0 : kManyCycles / 2; }
  int64_t min_cycles_to_wait() const override { return 0; }
  int64_t serial_patience_ns() const override { return patience_ns(); }
  int64_t shared_patience_ns() const override { return patience_ns(); }
  int64_t linger_ns() const override { return case_.lingers ? 1000 : 0; }
  void Schedule(Task task) override;

  void RunCaller(int caller);
  void RunWorker();
  // Returns what is wrong at the end, or "".
  std::string Finish();

 private:
  int64_t patience_ns() const { return case_.is_patient ? std::numeric_limits<int64_t>::max() : 0; }
  int num_items(int64_t phase) const {
    const char items = case_.phases[phase];
    return items == 's' ? 1 : items - '0';
  }
  void RunCall(int index);
  void RunTeamOf(Call* call, bool* throws, bool* is_out_of_memory);
  void RunProgram(TeamMember* member, Call* call);
  void Compute(Call* call, int64_t phase, int64_t item);
  const char* Check(const Call& call, bool throws, bool is_out_of_memory) const;
  bool Throws(bool is_helper, int64_t item) const;
  void Push(Task task);

  const Case case_;
  const std::shared_ptr<TeamRecruiter> recruiter_;
  std::mutex mutex_;  // of the queue
  Task tasks_[kMaxTasks];
  int num_pushed_ = 0, num_popped_ = 0;
  int64_t num_tasks_ = 0;
  int64_t num_ended_calls_ = 0;
  bool has_called_inline_ = false;
  Call calls_[kMaxCalls];  // the last one: inside Schedule
};

void World::Push(Task task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (num_pushed_ == kMaxTasks) explorer.Fail("too many tasks are scheduled");
  tasks_[num_pushed_++].swap(task);
  ++num_tasks_;
  // Concurrent callers may each see the other's vacancies.
  const int64_t limit = case_.members * case_.callers * (case_.pool == Pool::kRunsTwice ? 2 : 1);
  if (num_tasks_ > limit) explorer.Fail("the queue is longer than the pool has threads");
}

void World::Schedule(Task task) {
  switch (case_.pool) {
    case Pool::kRuns:
    case Pool::kRunsLater:
    case Pool::kKeeps:
      return Push(std::move(task));
    case Pool::kRunsTwice:
      Push(task);
      return Push(task);
    case Pool::kRunsInline:
      return task();
    case Pool::kRunsEither:
      return explorer.Choose(2, "inline") == 1 ? task() : Push(task);
    case Pool::kDestroys:
      return;
    case Pool::kThrows:
      if (explorer.Choose(2, "throws") == 1) throw Thrown();
      return Push(task);
    case Pool::kCallsInline:
      Push(task);
      if (has_called_inline_) return;
      has_called_inline_ = true;
      return RunCall(kMaxCalls - 1);
  }
}

void World::RunWorker() {
  if (case_.pool == Pool::kRunsLater) explorer.WaitForPositive(&num_ended_calls_);
  for (;;) {
    explorer.Forget(0, nullptr, 0);
    explorer.WaitForPositive(&num_tasks_);
    Task task;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (num_tasks_ == 0) continue;  // Another worker was faster.
      --num_tasks_;
      task.swap(tasks_[num_popped_++]);
    }
    task();
  }
}

void World::RunCaller(int caller) {
  for (int call = 0; call < case_.calls; ++call) {
    explorer.Forget(static_cast<uint64_t>(call), nullptr, 0);
    RunCall(caller * case_.calls + call);
    if (case_.pool == Pool::kRunsLater) ++num_ended_calls_;
  }
}

// A late access to one call's team must not find the next one's at its address, so each call has
// bytes of its own of the stack.
void World::RunCall(int index) {
  bool throws = false, is_out_of_memory = false;
  void* const unused = alloca(static_cast<size_t>(2048 * (index % 4)));
  asm volatile("" : : "r"(unused) : "memory");
  RunTeamOf(&calls_[index], &throws, &is_out_of_memory);
  explorer.EndFrames();
  const char* const wrong = Check(calls_[index], throws, is_out_of_memory);
  if (wrong != nullptr) explorer.Fail(wrong);
}

void __attribute__((noinline)) World::RunTeamOf(Call* call, bool* throws, bool* is_out_of_memory) {
  try {
    SetAllocationsMayFail(case_.runs_out_of_memory && explorer.running() == 0);
    RunTeam(this, kManyCycles, [this, call](TeamMember* member) { RunProgram(member, call); });
  } catch (const Thrown&) {
    *throws = true;
  } catch (const std::bad_alloc&) {
    *is_out_of_memory = true;
  }
  SetAllocationsMayFail(false);
}

void World::RunProgram(TeamMember* member, Call* call) {
  struct Presence {
    explicit Presence(int64_t* flag) : flag(flag) { ++*flag; }
    ~Presence() { --*flag; }
    int64_t* const flag;
  } const presence(&call->is_present[explorer.running()]);
  const bool is_helper = explorer.running() >= case_.callers;
  const uint64_t history = explorer.history();
  // All that ForEach keeps is in the member and, during a slice, in the number of its first item.
  const auto forget = [&](int64_t phase, int64_t item) {
    explorer.Forget(Mix(Mix(history, static_cast<uint64_t>(phase)), static_cast<uint64_t>(item)),
                    member, sizeof *member);
  };
  for (int64_t phase = 1; case_.phases[phase - 1] != '\0'; ++phase) {
    forget(phase, -1);
    const auto throw_if = [&](bool throws) {
      if (phase != 2 || !throws) return;
      call->has_thrown[explorer.running()] = 1;
      throw Thrown();
    };
    throw_if(case_.thrower == (is_helper ? Thrower::kHelper : Thrower::kCaller) &&
             !member->has_left());
    const auto work = [&](int64_t begin, int64_t end) {
      forget(phase, begin);
      for (int64_t item = begin; item < end; ++item) {
        throw_if(case_.thrower == Thrower::kEveryItem ||
                 (case_.thrower == Thrower::kFirstItem && item == 0));
        Compute(call, phase, item);
      }
    };
    if (case_.phases[phase - 1] == 's') {
      member->Single([&] { work(0, 1); });
    } else {
      member->ForEach(num_items(phase - 1), kManyCycles, work, /*max_slices_per_member=*/1);
    }
  }
  forget(0, -1);
}

// Each item reads all items of the phase before.
void World::Compute(Call* call, int64_t phase, int64_t item) {
  int64_t sum = phase;
  if (phase > 1) {
    for (int i = 0; i < num_items(phase - 2); ++i) sum += (i + 1) * call->values[phase - 1][i];
  }
  call->values[phase][item] = sum * (item + 1);
  ++call->num_computed[phase][item];
}

const char* World::Check(const Call& call, bool throws, bool is_out_of_memory) const {
  bool has_thrown = false;
  for (int thread = 0; thread < kMaxThreads; ++thread) {
    has_thrown = has_thrown || call.has_thrown[thread] != 0;
    if (call.is_present[thread] != 0) return "a call returns before its program has ended";
  }
  if (throws && !has_thrown) return "a call throws what its program has not thrown";
  if (!throws && has_thrown) return "a call does not throw what its program throws";
  if (throws) return nullptr;
  Call expected;
  std::memset(&expected, 0, sizeof expected);
  for (int64_t phase = 1; case_.phases[phase - 1] != '\0'; ++phase) {
    for (int64_t item = 0; item < num_items(phase - 1); ++item) {
      const_cast<World*>(this)->Compute(&expected, phase, item);
      const int64_t num_computed = call.num_computed[phase][item];
      if (num_computed != (is_out_of_memory ? 0 : 1)) return "a slice is not computed once";
      if (is_out_of_memory) continue;
      if (call.values[phase][item] != expected.values[phase][item]) return "a result is wrong";
    }
  }
  return nullptr;
}

// Counts tasks and drops them.
class CountingRunner : public ParallelRunner {
 public:
  CountingRunner(int64_t num_threads, std::shared_ptr<TeamRecruiter> recruiter)
      : num_threads_(num_threads), recruiter_(std::move(recruiter)) {}
  int64_t num_threads() const override { return num_threads_; }
  std::shared_ptr<TeamRecruiter> recruiter() override { return recruiter_; }
  void Schedule(Task) override { ++num_tasks; }

  int64_t num_tasks = 0;

 private:
  const int64_t num_threads_;
  const std::shared_ptr<TeamRecruiter> recruiter_;
};

std::string World::Finish() {
  if (case_.workers == 0) {
    for (Task& task : tasks_) task = nullptr;
  } else if (num_tasks_ > 0) {
    return "a task never starts";
  }
  // Nothing waits any more, so the next call schedules a task for each helper.
  CountingRunner runner(case_.members, recruiter_);
  RunTeam(&runner, kManyCycles, [](TeamMember*) {});
  if (runner.num_tasks != case_.members - 1) {
    return "a later call schedules " + std::to_string(runner.num_tasks) + " tasks, expected " +
           std::to_string(case_.members - 1);
  }
  return "";
}

class CaseProgram : public Program {
 public:
  explicit CaseProgram(const Case& of) : case_(of) {}

  int num_threads() const override { return case_.callers + case_.workers; }
  void SetUp() override { world_ = new World(case_); }
  void RunThread(int thread) override {
    thread < case_.callers ? world_->RunCaller(thread) : world_->RunWorker();
  }
  std::string TearDown() override {
    const std::string wrong = world_->Finish();
    delete world_;
    return wrong;
  }

 private:
  const Case case_;
  World* world_ = nullptr;  // in the heap that the explorer empties
};

}  // namespace

std::unique_ptr<Program> MakeProgram(const Case& of) {
  return std::unique_ptr<Program>(new CaseProgram(of));
}

const std::vector<Case>& Cases() {
  constexpr bool kPatient = true, kOften = true, kLingers = true;
  static const std::vector<Case> cases = {
      // name, members, callers, calls, workers, pool, phases
      {"one helper", 2, 1, 1, 1, Pool::kRuns, "22"},
      {"one patient helper", 2, 1, 1, 1, Pool::kRuns, "2s2", kPatient},
      {"one helper, recruited often", 2, 1, 1, 1, Pool::kRuns, "2s2", !kPatient, kOften},
      {"two helpers, one phase", 3, 1, 1, 2, Pool::kRuns, "2", kPatient},
      {"two helpers", 3, 1, 1, 2, Pool::kRuns, "33"},
      {"two patient helpers", 3, 1, 1, 2, Pool::kRuns, "3s2", kPatient},
      {"two helpers, recruited often", 3, 1, 1, 2, Pool::kRuns, "3s3", !kPatient, kOften},
      {"two calls", 2, 1, 2, 1, Pool::kRuns, "22"},
      {"two calls, two helpers", 3, 1, 2, 2, Pool::kRuns, "3"},
      {"two callers", 2, 2, 1, 1, Pool::kRuns, "22"},
      {"two callers, two helpers", 2, 2, 1, 2, Pool::kRuns, "2"},
      {"two callers, two calls each", 2, 2, 2, 1, Pool::kRuns, "2"},
      {"late tasks", 2, 1, 2, 1, Pool::kRunsLater, "22", kPatient},
      {"late tasks, two helpers", 3, 1, 2, 2, Pool::kRunsLater, "3"},
      {"tasks run twice", 2, 1, 1, 2, Pool::kRunsTwice, "22"},
      {"tasks run inline", 3, 1, 2, 0, Pool::kRunsInline, "3s3", !kPatient, kOften},
      {"tasks run inline, two callers", 2, 2, 1, 0, Pool::kRunsInline, "2s2", kPatient, kOften},
      {"tasks run inline or not", 3, 1, 1, 1, Pool::kRunsEither, "33", kPatient, kOften},
      {"tasks run inline or not, two callers", 2, 2, 1, 1, Pool::kRunsEither, "2", kPatient},
      {"tasks never run", 3, 1, 2, 0, Pool::kKeeps, "3s3", kPatient, kOften},
      {"tasks are destroyed", 3, 1, 2, 0, Pool::kDestroys, "3s3", kPatient, kOften},
      {"tasks are destroyed, two callers", 2, 2, 1, 0, Pool::kDestroys, "2", kPatient, kOften},
      {"Schedule throws", 3, 1, 2, 1, Pool::kThrows, "3", kPatient},
      {"a call inside Schedule", 2, 1, 1, 1, Pool::kCallsInline, "22"},
      {"out of memory", 3, 1, 2, 1, Pool::kRuns, "3", kPatient, !kOften, Thrower::kNobody, true},
      {"a slice throws", 2, 1, 1, 1, Pool::kRuns, "222", kPatient, !kOften, Thrower::kFirstItem},
      {"all slices throw", 2, 1, 1, 1, Pool::kRuns, "222", kPatient, !kOften, Thrower::kEveryItem},
      {"a slice throws, two helpers", 3, 1, 1, 2, Pool::kRuns, "33", kPatient, !kOften,
       Thrower::kFirstItem},
      {"all slices throw, two helpers", 3, 1, 1, 2, Pool::kRuns, "13", kPatient, !kOften,
       Thrower::kEveryItem},
      {"helpers throw", 3, 1, 1, 2, Pool::kRuns, "33", kPatient, !kOften, Thrower::kHelper},
      {"the caller throws", 3, 1, 1, 2, Pool::kRuns, "33", kPatient, !kOften, Thrower::kCaller},
      {"a slice throws, next call", 2, 1, 2, 1, Pool::kRuns, "22", !kPatient, !kOften,
       Thrower::kFirstItem},
      {"lingering", 2, 1, 2, 1, Pool::kRuns, "2", kPatient, !kOften, Thrower::kNobody, false,
       kLingers},
      {"lingering, three calls", 2, 1, 3, 1, Pool::kRuns, "2", !kPatient, !kOften, Thrower::kNobody,
       false, kLingers},
      {"lingering, two callers", 2, 2, 2, 1, Pool::kRuns, "2", kPatient, !kOften, Thrower::kNobody,
       false, kLingers},
      {"lingering, two helpers", 3, 1, 2, 2, Pool::kRuns, "3", kPatient, !kOften, Thrower::kNobody,
       false, kLingers},
      {"lingering, recruited often", 2, 1, 2, 1, Pool::kRuns, "2s2", !kPatient, kOften,
       Thrower::kNobody, false, kLingers},
  };
  return cases;
}

}  // namespace schedules
