// Calls a target with random inputs. Needs no fuzzer, so any compiler and sanitizer will do.
//
//   random_inputs TARGET COUNT [SEED [FIRST]]
//
// An input depends only on SEED and its number, so `TARGET 1 SEED FIRST` repeats input FIRST alone.
// After a crash, the last line names it.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz_targets.h"

int main(int argc, char** argv) {
  const cudnn_rnn::FuzzTarget* target = nullptr;
  for (const cudnn_rnn::FuzzTarget& one : cudnn_rnn::kFuzzTargets) {
    if (argc > 2 && std::strcmp(argv[1], one.name) == 0) target = &one;
  }
  if (target == nullptr) {
    std::fputs("usage: random_inputs sizes|plan|c_api COUNT [SEED [FIRST]]\n", stderr);
    return 2;
  }
  const long long count = std::atoll(argv[2]), seed = argc > 3 ? std::atoll(argv[3]) : 1;
  const long long first = argc > 4 ? std::atoll(argv[4]) : 0;
  std::vector<uint8_t> bytes(160);
  for (long long number = first; number < first + count; ++number) {
    std::seed_seq sequence{seed, number};
    std::mt19937 generator(sequence);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
    const bool is_milestone = (number + 1 - first) % (count < 20 ? 1 : count / 20) == 0;
    std::fprintf(stderr, "\r%s, input %lld of seed %lld%s", target->name, number, seed,
                 is_milestone ? "\n" : "");
    target->run(bytes.data(), bytes.size());
  }
  std::printf("%lld inputs of %s\n", count, target->name);
  return 0;
}
