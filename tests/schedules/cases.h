// Programs of teams, each a row of a table, to be run in all their schedules. Another program is
// another row in cases.cc; what a pool does with tasks is another value of Pool.
#ifndef CUDNN_RNN_TESTS_SCHEDULES_CASES_H_
#define CUDNN_RNN_TESTS_SCHEDULES_CASES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/schedules/explorer.h"

namespace schedules {

// What a pool does with a task.
enum class Pool {
  kRuns,         // A worker runs it, at any time, also after the call.
  kRunsLater,    // The same, but never before the end of the first call.
  kRunsTwice,    // Two workers may run it, also at the same time.
  kRunsInline,   // Schedule runs it.
  kRunsEither,   // A worker or Schedule runs it.
  kKeeps,        // The task is destroyed when all is over.
  kDestroys,     // Schedule destroys it.
  kThrows,       // Schedule throws, or a worker runs the task.
  kCallsInline,  // The first Schedule runs another whole call; then kRuns.
};

// Who throws in the second phase.
enum class Thrower { kNobody, kFirstItem, kEveryItem, kHelper, kCaller };

struct Case {
  const char* name;
  int members;  // at most, of each call
  int callers;  // at the same time
  int calls;    // of each caller, one after another
  int workers;  // of the pool
  Pool pool;
  // A digit is a phase with so many items, "s" a phase for the caller alone.
  const char* phases;
  bool is_patient = false;      // Helpers do not leave before the end of the call.
  bool recruits_often = false;  // in each phase with vacancies
  Thrower thrower = Thrower::kNobody;
  bool runs_out_of_memory = false;  // one allocation of the first caller fails, any of them or none
  bool lingers = false;             // Helpers may linger between calls.
};

const std::vector<Case>& Cases();
std::unique_ptr<Program> MakeProgram(const Case& of);

}  // namespace schedules

#endif  // CUDNN_RNN_TESTS_SCHEDULES_CASES_H_
