// A short run of the fuzzers' targets with random inputs; tests/trials/fuzz runs them at length.

#include <random>
#include <vector>

#include "tests/core/testing.h"
#include "tests/fuzz/fuzz_targets.h"

namespace cudnn_rnn {
namespace {

void RunRandomInputs(const FuzzTarget& target, int count) {
  std::mt19937 generator(29);
  std::vector<uint8_t> bytes(160);
  for (int i = 0; i < count; ++i) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
    target.run(bytes.data(), bytes.size() - static_cast<size_t>(i % 64));
  }
}

// A target that fails ends the process.
TEST(SizesOfRandomModelsAreCheckedOrRefused) { RunRandomInputs(kFuzzTargets[0], 20000); }
TEST(RandomModelsRunTheSameOnAnyThreads) { RunRandomInputs(kFuzzTargets[1], 100); }
TEST(TheCApiSurvivesRandomInputs) { RunRandomInputs(kFuzzTargets[2], 500); }

}  // namespace
}  // namespace cudnn_rnn
