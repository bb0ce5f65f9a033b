// Explores the schedules of all cases.
//
//   --short             with few executions of each case
//   --seed N            of the random schedules
//   --case NAME         only the cases whose names contain NAME
//   --replay CHOICES    one execution of that case, with all its operations
//
// Within a number of executions, each case is explored completely if it is small enough. Otherwise
// it is explored with at most 0, 1, 2, ... preemptions and as many reads of old stores, and what is
// left of the executions runs random schedules.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/schedules/cases.h"

extern "C" char __libc_single_threaded;

namespace schedules {
namespace {

struct Totals {
  int64_t executions = 0, complete = 0, states = 0;
  int cases = 0, exhausted = 0, failed = 0;
};

void Report(const Case& of, const Summary& summary, Totals* totals) {
  totals->executions += summary.num_executions;
  totals->complete += summary.num_complete;
  totals->states += summary.num_states;
  if (summary.failure.empty()) return;
  ++totals->failed;
  std::printf("FAILED %s: %s\n  --case '%s' --replay %s\n", of.name, summary.failure.c_str(),
              of.name, summary.choices.c_str());
}

void Explore(const Case& of, int64_t executions, uint64_t seed, Totals* totals) {
  const std::unique_ptr<Program> program = MakeProgram(of);
  ++totals->cases;
  Limits limits;
  limits.executions = executions / 2;
  Summary summary = explorer.Explore(program.get(), limits);
  Report(of, summary, totals);
  int64_t left = executions - summary.num_executions;
  if (!summary.failure.empty()) return;
  if (summary.is_exhausted) {
    ++totals->exhausted;
    std::printf("%s: all schedules; %lld states, %lld executions\n", of.name,
                static_cast<long long>(summary.num_states),
                static_cast<long long>(summary.num_executions));
    return;
  }
  int bound = -1;
  for (; left > 0; ++bound) {
    limits.preemptions = limits.old_reads = bound + 1;
    limits.executions = left;
    summary = explorer.Explore(program.get(), limits);
    Report(of, summary, totals);
    if (!summary.failure.empty()) return;
    left -= summary.num_executions;
    if (!summary.is_exhausted) break;
  }
  limits = Limits();
  limits.executions = executions / 8;
  limits.is_random = true;
  limits.seed = seed;
  summary = explorer.Explore(program.get(), limits);
  Report(of, summary, totals);
  if (!summary.failure.empty()) return;
  std::printf("%s: all schedules with up to %d preemptions and old reads, %lld others\n", of.name,
              bound, static_cast<long long>(executions + executions / 8));
}

int Run(int argc, char** argv) {
  bool is_short = false;
  uint64_t seed = 1;
  const char* name = "";
  const char* choices = nullptr;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--short") == 0) {
      is_short = true;
    } else if (std::strcmp(argv[i], "--seed") == 0 && has_value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--case") == 0 && has_value) {
      name = argv[++i];
    } else if (std::strcmp(argv[i], "--replay") == 0 && has_value) {
      choices = argv[++i];
    } else {
      std::fprintf(stderr, "unknown argument %s; see the beginning of tests/schedules/main.cc\n",
                   argv[i]);
      return 2;
    }
  }
  Totals totals;
  for (const Case& of : Cases()) {
    if (choices != nullptr ? std::strcmp(of.name, name) != 0 : !std::strstr(of.name, name))
      continue;
    if (choices == nullptr) {
      Explore(of, is_short ? 2000 : 200 * 1000, seed, &totals);
    } else {
      ++totals.cases;
      Report(of, explorer.Replay(MakeProgram(of).get(), choices), &totals);
    }
    std::fflush(stdout);
  }
  if (totals.cases == 0) {
    std::fprintf(stderr, "no case has a name that contains '%s'\n", name);
    return 2;
  }
  std::printf(
      "result: %d cases, %d of them in all schedules; %lld executions, %lld states, %d failed\n",
      totals.cases, totals.exhausted, static_cast<long long>(totals.executions),
      static_cast<long long>(totals.states), totals.failed);
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace schedules

int main(int argc, char** argv) {
  __libc_single_threaded = 0;  // Otherwise shared_ptr does not count atomically.
  return schedules::Run(argc, argv);
}
