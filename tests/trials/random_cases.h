// Trials that run random cases: PROGRAM CASES SEED.
#ifndef CUDNN_RNN_TESTS_TRIALS_RANDOM_CASES_H_
#define CUDNN_RNN_TESTS_TRIALS_RANDOM_CASES_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/core/any_problem.h"

namespace cudnn_rnn {

// Returns a number in [first, last].
inline int64_t RandomIn(int64_t first, int64_t last, std::mt19937* random) {
  return std::uniform_int_distribution<int64_t>(first, last)(*random);
}

inline Problem RandomProblem(std::mt19937* random) {
  struct {
    std::mt19937* random;
    int64_t Choice(int64_t count) { return RandomIn(0, count - 1, random); }
    bool Flag() { return Choice(2) == 1; }
  } source{random};
  return AnyProblem({/*max_units=*/40, 1, /*max_steps=*/6, 1, /*max_batch=*/20}, &source);
}

// Calls run_case(seed), which returns whether all was right, for CASES seeds from SEED on, until
// one fails. Returns the exit status.
template <typename RunCase>
int RunCases(int argc, char** argv, RunCase run_case) {
  if (argc != 3) {
    std::printf("expected: %s CASES SEED\n", argv[0]);
    return 2;
  }
  const long num_cases = std::atol(argv[1]), first = std::atol(argv[2]);
  for (long i = 0; i < num_cases; ++i) {
    if (!run_case(static_cast<unsigned>(first + i))) {
      std::printf("%s 1 %ld repeats this case.\n", argv[0], first + i);
      return 1;
    }
    if ((i + 1) % 50 == 0) {
      std::printf("case %ld of %ld\n", i + 1, num_cases);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_TRIALS_RANDOM_CASES_H_
