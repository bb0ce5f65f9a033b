// Tests that teams compute each item once and phases in order, whatever the runner does.

#include "cudnn_rnn/cc/core/team.h"

#include <atomic>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/testing.h"
#include "tests/core/thread_pool.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

using Task = FunctionRunner::Task;

constexpr int64_t kWorthATeam = int64_t(1) << 40;

// Runs phases that depend on the phase before: item i of phase p sums two items of phase p - 1.
// Returns false if an item was computed too early or not exactly once.
bool RunPhases(ParallelRunner* runner, int64_t num_items, int64_t num_phases) {
  std::vector<std::vector<int64_t>> values(static_cast<size_t>(num_phases + 1),
                                           std::vector<int64_t>(static_cast<size_t>(num_items)));
  for (int64_t i = 0; i < num_items; ++i) values[0][i] = i;
  RunTeam(runner, kWorthATeam, [&](TeamMember* member) {
    for (int64_t phase = 0; phase < num_phases; ++phase) {
      const auto compute = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t other = (i * 7 + phase) % num_items;
          values[phase + 1][i] += values[phase][i] + values[phase][other] % 1000 + 1;
        }
      };
      if (phase % 5 == 3) {  // by the caller alone
        member->Single([&] { compute(0, num_items); });
      } else {
        member->ForEach(num_items, kWorthATeam, compute, 1 + phase % 4);
      }
    }
  });
  std::vector<int64_t> expected = values[0];
  for (int64_t phase = 0; phase < num_phases; ++phase) {
    std::vector<int64_t> next(expected.size());
    for (int64_t i = 0; i < num_items; ++i) {
      next[i] = expected[i] + expected[(i * 7 + phase) % num_items] % 1000 + 1;
    }
    expected = next;
    if (values[phase + 1] != expected) return false;
  }
  return true;
}

TEST(TeamComputesEveryItemOnceAndInOrder) {
  for (int64_t num_threads : {1, 2, 3, 7}) {
    for (int64_t num_items : {1, 2, 5, 64}) {
      ThreadRunner runner(num_threads);
      EXPECT(RunPhases(&runner, num_items, 200), num_threads, " threads, ", num_items, " items");
    }
  }
}

TEST(TeamNeedsNobodyBesideTheCaller) {
  KeepingRunner runner(4);
  EXPECT(RunPhases(&runner, 50, 20));
  // The team is gone: the tasks must do nothing.
  runner.RunTasks();
}

TEST(TeamNeedsNoTaskToRun) {
  FunctionRunner runner(4, [](const Task&) {});
  EXPECT(RunPhases(&runner, 50, 20));
}

// A pool runs tasks inside Schedule if its queue is full.
TEST(TeamDoesNotWaitForItselfWhereTasksRunInsideSchedule) {
  FunctionRunner runner(3, [](const Task& task) { task(); });
  EXPECT(RunPhases(&runner, 50, 200));
}

TEST(TeamDoesNotWaitForItselfWhereTasksRunTwiceAndDeepInsideSchedule) {
  // Calls each task four times, two calls of Schedule further down the stack.
  int depth = 0;
  std::function<void(const Task&)> repeat = [&](const Task& task) {
    if (depth == 2) return task();
    ++depth;
    repeat(task);
    repeat(task);
    --depth;
  };
  FunctionRunner runner(3, repeat);
  EXPECT(RunPhases(&runner, 50, 200));
}

// Tasks of one call run inside another call's Schedule, on the stack of its thread.
TEST(TeamsDoNotWaitForEachOtherWhereTheirTasksMix) {
  KeepingRunner runner(3);
  bool inner = true;
  int64_t depth = 0;
  runner.before_schedule = [&] {
    if (depth == 3) return;
    ++depth;
    runner.RunTasks();
    inner = RunPhases(&runner, 20, 10) && inner;
    --depth;
  };
  EXPECT(RunPhases(&runner, 50, 20));
  EXPECT(inner);
}

// Callers share a pool with few threads and a short queue. Tasks that do not fit in the queue run
// inside Schedule, as in TensorFlow's pool, whose queue has 1,024 entries.
TEST(TeamsOfManyCallersShareAPoolWithAShortQueue) {
  for (size_t queue_size : {0, 1, 3}) {
    ThreadPool pool(/*num_threads=*/3, queue_size);
    std::vector<std::thread> callers;
    std::atomic<int64_t> wrong{0};
    for (int caller = 0; caller < 5; ++caller) {
      callers.emplace_back([&pool, &wrong, caller] {
        for (int round = 0; round < 100; ++round) {
          FunctionRunner runner(
              2 + caller % 3, [&pool](Task task) { pool.Schedule(std::move(task)); },
              pool.recruiter());
          if (!RunPhases(&runner, 1 + 10 * caller, caller == 0 ? 300 : 10)) ++wrong;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT(wrong == 0, wrong.load(), " of 500, queue of ", queue_size);
  }
}

// The queue stays short however many calls run while no thread of the pool is free.
TEST(TeamLeavesFewTasksInTheQueueOfABusyPool) {
  KeepingRunner runner(4);
  for (int call = 0; call < 1000; ++call) RunPhases(&runner, 8, 3);
  EXPECT(runner.num_tasks() <= 4, runner.num_tasks());
  // The waiting tasks serve a later call.
  std::atomic<bool> is_computed{false};
  std::atomic<int64_t> others{0};
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::thread> threads;
  RunTeam(&runner, kWorthATeam, [&](TeamMember* member) {
    member->ForEach(2, kWorthATeam, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() != caller) {
        ++others;
        is_computed = true;
        return;
      }
      if (threads.empty()) runner.RunTasksOnThreads(&threads);
      while (!is_computed) std::this_thread::yield();
    });
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT(others == 1, others.load());
}

// Two helpers arrive late, while a phase is being computed.
TEST(TeamTakesInLateMembers) {
  KeepingRunner runner(3);
  runner.patience = std::numeric_limits<int64_t>::max();
  std::vector<std::thread> threads;
  std::atomic<int64_t> computed{0}, arrived{0};
  const std::thread::id caller = std::this_thread::get_id();
  constexpr int64_t kPhases = 30, kItems = 6;
  RunTeam(&runner, kWorthATeam, [&](TeamMember* member) {
    const bool is_caller = std::this_thread::get_id() == caller;
    ++arrived;
    for (int64_t phase = 0; phase < kPhases; ++phase) {
      member->ForEach(kItems, kWorthATeam, [&](int64_t begin, int64_t end) {
        if (is_caller && phase == 10 && begin == 0) {
          runner.RunTasksOnThreads(&threads);
          while (arrived < 3) std::this_thread::yield();
        }
        computed += end - begin;
      });
      EXPECT(computed >= (phase + 1) * kItems, phase);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT(threads.size() == 2);
  EXPECT(computed == kPhases * kItems, computed.load());
}

// A helper that lingers joins the next call without a new task, and ends if it is not to linger.
TEST(LingeringHelpersJoinTheNextCall) {
  KeepingRunner runner(2);
  std::vector<std::thread> threads;
  std::atomic<int64_t> present{0};
  size_t num_scheduled = 0;
  // In the first two calls the helper waits for the next call longer than any test takes.
  for (int64_t linger :
       {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max(), int64_t{0}}) {
    runner.linger = linger;
    present = 0;
    RunTeam(&runner, kWorthATeam, [&](TeamMember*) {
      if (++present == 1 && threads.empty()) runner.RunTasksOnThreads(&threads);
      while (present < 2) std::this_thread::yield();
    });
    runner.RunTasksOnThreads(&threads);
    num_scheduled = threads.size();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(num_scheduled == 1, num_scheduled);
}

// While the caller computes alone, the helper gives its thread back; when there is enough to share
// again, a helper computes with the caller again.
TEST(TeamGivesAnIdleHelpersThreadBackAndRecruitsAgain) {
  KeepingRunner runner(2);
  runner.patience = 0;
  std::vector<std::thread> threads;
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int64_t> helped{0};
  // Runs tasks on threads until a helper has computed a part of the phase.
  const auto share = [&](TeamMember* member, int64_t expected) {
    member->ForEach(2, kWorthATeam, [&, expected](int64_t, int64_t) {
      if (std::this_thread::get_id() != caller) {
        ++helped;
        return;
      }
      while (helped < expected) {
        runner.RunTasksOnThreads(&threads);
        std::this_thread::yield();
      }
    });
  };
  RunTeam(&runner, kWorthATeam, [&](TeamMember* member) {
    share(member, 1);
    member->Single([&] {
      // The helpers' threads end before the call does.
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    });
    // This phase recruits a helper again.
    share(member, 2);
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT(helped >= 2, helped.load());
}

TEST(TeamIsNotWorthWhileForLittleWork) {
  KeepingRunner runner(4);
  int64_t members = 0;
  RunTeam(&runner, 100, [&](TeamMember* member) {
    ++members;
    EXPECT(member->team_size() == 1);
  });
  EXPECT(members == 1 && runner.num_tasks() == 0);
}

// On many cores, little work wakes few threads, and longer phases have more slices, also if the
// cost in cycles exceeds 64 bits.
TEST(TeamIsAsLargeAsTheWorkIsWorth) {
  KeepingRunner runner(50);
  int64_t slices = 0;
  RunTeam(&runner, 5 * runner.min_cycles_to_wake(), [&](TeamMember* member) {
    EXPECT(member->team_size() == 6, member->team_size());
    const auto count = [&](int64_t, int64_t) { ++slices; };
    member->ForEach(1000, runner.min_cycles_to_wait() / 1000, count);
    EXPECT(slices == 4, slices);
    slices = 0;
    member->ForEach(1000, runner.min_cycles_to_wait(), count);
    EXPECT(slices == 6 * Team::kSlicesPerMember, slices);
    for (int64_t item_cost : {int64_t(1) << 20, (int64_t(1) << 20) + 1, int64_t(1) << 62}) {
      slices = 0;
      member->ForEach(1000, item_cost, count);
      EXPECT(slices == 6 * Team::kMaxSlicesPerMember, slices);
    }
    slices = 0;
    member->ForEach(1000, runner.min_cycles_to_wait() / 50, count);
    EXPECT(slices == 6 * Team::kSlicesPerMember, slices);
    slices = 0;
    member->ForEach(1000, int64_t(1) << 20, count, /*max_slices_per_member=*/1);
    EXPECT(slices == 6, slices);
  });
  EXPECT(runner.num_tasks() == 5, runner.num_tasks());
}

TEST(TeamIsNoLargerThanItsProgramAllows) {
  KeepingRunner runner(50);
  RunTeam(
      &runner, kWorthATeam, [](TeamMember* member) { EXPECT(member->team_size() == 7); },
      /*max_members=*/7);
  EXPECT(runner.num_tasks() == 6, runner.num_tasks());
}

// One helper of three has come. It is enough for phases with two slices.
TEST(TeamRecruitsOnlyForPhasesWithMoreSlicesThanMembers) {
  std::vector<std::thread> threads;
  int64_t scheduled = 0;
  FunctionRunner runner(4, [&](Task task) {
    if (scheduled++ == 0) threads.emplace_back(std::move(task));
  });
  runner.patience = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> arrived{0};
  std::atomic<bool> caller_arrived{false};
  const std::thread::id caller = std::this_thread::get_id();
  RunTeam(&runner, kWorthATeam, [&](TeamMember* member) {
    const bool is_caller = std::this_thread::get_id() == caller;
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    for (int64_t num_items : {2, 2, 4}) {
      EXPECT(!is_caller || scheduled == 3, scheduled);
      member->ForEach(num_items, kWorthATeam, [&, num_items, is_caller](int64_t, int64_t) {
        // The helper leaves slices of the last phase for the caller.
        if (is_caller && num_items == 4) caller_arrived = true;
        while (num_items == 4 && !caller_arrived) std::this_thread::yield();
      });
    }
  });
  EXPECT(scheduled > 3, scheduled);
  for (std::thread& thread : threads) thread.join();
}

// Similar phases have the same items on the same member while all members are present.
TEST(TeamKeepsItemsWithTheirMember) {
  ThreadRunner runner(2, /*min_cycles_to_wait=*/0, std::numeric_limits<int64_t>::max());
  constexpr int64_t kItems = 10, kPhases = 50;
  std::vector<std::vector<std::thread::id>> owners(kPhases, std::vector<std::thread::id>(kItems));
  std::atomic<int64_t> arrived{0};
  RunTeam(&runner, kWorthATeam, [&](TeamMember* member) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    for (int64_t phase = 0; phase < kPhases; ++phase) {
      std::atomic<int64_t>& started = arrived;  // Lets each member take only its own slice.
      member->ForEach(
          kItems, kWorthATeam,
          [&](int64_t begin, int64_t end) {
            ++started;
            while (started < 2 + 2 * (phase + 1)) std::this_thread::yield();
            for (int64_t i = begin; i < end; ++i) owners[phase][i] = std::this_thread::get_id();
          },
          /*max_slices_per_member=*/1);
    }
  });
  for (int64_t phase = 1; phase < kPhases; ++phase) EXPECT(owners[phase] == owners[0], phase);
  EXPECT(owners[0].front() != owners[0].back());
}

// Where a program throws.
enum class Thrower { kCallersSlice, kHelpersSlice, kCaller, kHelper };

// Runs phases with two members, one of which throws. Returns the text of what RunTeam threw.
std::string RunThrowingPhases(Thrower thrower, int64_t throwing_phase) {
  ThreadRunner runner(2, /*min_cycles_to_wait=*/0, std::numeric_limits<int64_t>::max());
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int64_t> arrived{0}, present{0};
  try {
    RunTeam(&runner, kWorthATeam, [&](TeamMember* member) {
      struct Presence {  // Destroyed however the program ends.
        explicit Presence(std::atomic<int64_t>* count) : count(count) { ++*count; }
        ~Presence() { --*count; }
        std::atomic<int64_t>* const count;
      } presence(&present);
      const bool is_caller = std::this_thread::get_id() == caller;
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
      for (int64_t phase = 0; phase < 10; ++phase) {
        const bool throws = phase == throwing_phase;
        if (throws && thrower == (is_caller ? Thrower::kCaller : Thrower::kHelper)) {
          throw std::runtime_error("outside of a slice");
        }
        member->ForEach(
            2, kWorthATeam,
            [&](int64_t, int64_t) {
              if (throws &&
                  thrower == (is_caller ? Thrower::kCallersSlice : Thrower::kHelpersSlice)) {
                throw std::runtime_error("in a slice");
              }
            },
            /*max_slices_per_member=*/1);
      }
    });
  } catch (const std::runtime_error& error) {
    EXPECT(present == 0, present.load(), " members are still in the program");
    return error.what();
  }
  return "";
}

TEST(TeamThrowsWhatAMemberThrowsWhenAllHaveLeft) {
  for (int64_t phase : {0, 5, 9}) {
    for (int round = 0; round < 20; ++round) {
      EXPECT(RunThrowingPhases(Thrower::kCaller, phase) == "outside of a slice", phase);
      EXPECT(RunThrowingPhases(Thrower::kHelper, phase) == "outside of a slice", phase);
      // One member may compute both slices of a phase; the other then throws nothing.
      for (Thrower thrower : {Thrower::kCallersSlice, Thrower::kHelpersSlice}) {
        const std::string thrown = RunThrowingPhases(thrower, phase);
        EXPECT(thrown.empty() || thrown == "in a slice", thrown);
      }
    }
  }
}

// The caller has computed its own slice and waits for that of the helper, which throws.
TEST(TeamThrowsAtTheBarrierWhatAHelperThrows) {
  ThreadRunner runner(2, /*min_cycles_to_wait=*/0, std::numeric_limits<int64_t>::max());
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> helper_works{false}, caller_is_done{false};
  std::string thrown;
  try {
    RunTeam(&runner, kWorthATeam, [&](TeamMember* member) {
      member->ForEach(
          2, kWorthATeam,
          [&](int64_t, int64_t) {
            if (std::this_thread::get_id() == caller) {
              while (!helper_works) std::this_thread::yield();
              caller_is_done = true;
              return;
            }
            helper_works = true;
            while (!caller_is_done) std::this_thread::yield();
            throw std::runtime_error("in a slice");
          },
          /*max_slices_per_member=*/1);
    });
  } catch (const std::runtime_error& error) {
    thrown = error.what();
  }
  EXPECT(thrown == "in a slice", thrown);
}

}  // namespace
}  // namespace cudnn_rnn
