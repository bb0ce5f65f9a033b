// Explores the schedules of all cases; tests/trials/schedules builds and runs this program.
//
// Each case is explored three times, each time with a limited number of executions: in states that
// are values and in states that are graphs (explorer.h), both with more and more preemptions and
// reads of old stores until there are no more or the executions are used up, and in random
// schedules. With --all: instead, in states that are values without any limit.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/schedules/cases.h"

extern "C" char __libc_single_threaded __attribute__((weak));  // since glibc 2.32

namespace schedules {
namespace {

constexpr int64_t kExecutions = 200 * 1000, kShortExecutions = 1500;

struct Totals {
  int64_t executions = 0, states = 0;
  int cases = 0, complete = 0, failed = 0;
};

bool Report(const Case& of, const Summary& summary, Totals* totals) {
  totals->executions += summary.num_executions;
  totals->states += summary.num_states;
  if (summary.failure.empty()) return true;
  ++totals->failed;
  std::printf("FAILED %s: %s\n  --case '%s' --replay '%s'\n", of.name, summary.failure.c_str(),
              of.name, summary.choices.c_str());
  return false;
}

// Explores with higher and higher limits until `executions` are used up. Returns false if an
// execution fails. `reached`: the last limit within which all schedules were run.
bool Deepen(const Case& of, Program* program, bool knows_values, int64_t executions, int* reached,
            Totals* totals) {
  *reached = -1;
  for (int limit : {0, 1, 2, 3, 4, 6, 8, Limits::kNone}) {
    Limits limits;
    limits.knows_values = knows_values;
    limits.preemptions = limits.old_reads = limit;
    limits.executions = executions;
    const Summary summary = explorer.Explore(program, limits);
    if (!Report(of, summary, totals)) return false;
    executions -= summary.num_executions;
    if (!summary.is_exhausted) break;
    *reached = summary.is_limited ? limit : Limits::kNone;
    if (!summary.is_limited) break;
  }
  return true;
}

std::string NameOf(int limit) {
  if (limit == Limits::kNone) return "all";
  return limit < 0 ? "none" : "up to " + std::to_string(limit) + " preemptions";
}

void Explore(const Case& of, int64_t executions, uint64_t seed, Totals* totals) {
  const std::unique_ptr<Program> program = MakeProgram(of);
  const Totals before = *totals;
  ++totals->cases;
  int values = 0, graphs = 0;
  if (!Deepen(of, program.get(), /*knows_values=*/true, executions, &values, totals)) return;
  if (!Deepen(of, program.get(), /*knows_values=*/false, executions, &graphs, totals)) return;
  Limits limits;
  limits.executions = executions / 8;
  limits.is_random = true;
  limits.seed = seed;
  if (!Report(of, explorer.Explore(program.get(), limits), totals)) return;
  totals->complete += values == Limits::kNone;
  std::printf("%s: values: %s; graphs: %s; %lld executions, %lld states\n", of.name,
              NameOf(values).c_str(), NameOf(graphs).c_str(),
              static_cast<long long>(totals->executions - before.executions),
              static_cast<long long>(totals->states - before.states));
}

// Explores all schedules with sequential consistency, in as many executions as that takes.
void ExploreAll(const Case& of, Totals* totals) {
  ++totals->cases;
  Limits limits;
  limits.knows_values = true;
  limits.shows_progress = true;
  const Summary summary = explorer.Explore(MakeProgram(of).get(), limits);
  if (!Report(of, summary, totals)) return;
  ++totals->complete;
  std::printf("%s: all schedules: %lld executions, %lld states\n", of.name,
              static_cast<long long>(summary.num_executions),
              static_cast<long long>(summary.num_states));
}

int Run(int argc, char** argv) {
  int64_t executions = kExecutions;
  uint64_t seed = 1;
  bool is_unlimited = false;
  const char* name = "";
  const char* choices = nullptr;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--short") == 0) {
      executions = kShortExecutions;
    } else if (std::strcmp(argv[i], "--all") == 0) {
      is_unlimited = true;
    } else if (std::strcmp(argv[i], "--executions") == 0 && has_value) {
      executions = std::atoll(argv[++i]);
    } else if (std::strcmp(argv[i], "--seed") == 0 && has_value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--case") == 0 && has_value) {
      name = argv[++i];
    } else if (std::strcmp(argv[i], "--replay") == 0 && has_value) {
      choices = argv[++i];
    } else {
      std::fprintf(stderr, "unknown argument %s; see tests/trials/schedules --help\n", argv[i]);
      return 2;
    }
  }
  if (executions < 1) {
    std::fprintf(stderr, "--executions is %lld; expected a number above 0\n",
                 static_cast<long long>(executions));
    return 2;
  }
  Totals totals;
  for (const Case& of : Cases()) {
    const bool is_chosen = choices != nullptr ? std::strcmp(of.name, name) == 0
                                              : std::strstr(of.name, name) != nullptr;
    if (!is_chosen) continue;
    if (choices != nullptr) {
      ++totals.cases;
      Report(of, explorer.Replay(MakeProgram(of).get(), choices), &totals);
    } else if (is_unlimited) {
      ExploreAll(of, &totals);
    } else {
      Explore(of, executions, seed, &totals);
    }
    std::fflush(stdout);
  }
  if (totals.cases == 0) {
    std::fprintf(stderr, "no case has a name that contains '%s'\n", name);
    return 2;
  }
  std::printf("result: %lld executions of %d programs, %d of them in all schedules; %d failed\n",
              static_cast<long long>(totals.executions), totals.cases, totals.complete,
              totals.failed);
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace schedules

int main(int argc, char** argv) {
  // Otherwise shared_ptr does not count atomically.
  if (&__libc_single_threaded != nullptr) __libc_single_threaded = 0;
  return schedules::Run(argc, argv);
}
