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

TEST(InputsThatFailedBefore) {
  // 2^50 sequences without steps: inputs of no size, and states larger than any memory.
  const std::vector<uint8_t> many_states = {0xde, 0xbb, 0xff, 0x30, 0x35, 0x31, 0xff, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0x02, 0xff, 0x7f, 0x00, 0x30, 0x00,
                                            0x00, 0x00, 0x35, 0x32, 0x04, 0xff, 0x01};
  kFuzzTargets[2].run(many_states.data(), many_states.size());
  // Clang fused multiplications and additions in some instances of a kernel only, so that last bits
  // depended on the number of threads.
  const std::vector<uint8_t> half = {0xbf, 0xbf, 0xeb, 0x00, 0x00, 0x9d,
                                     0xbf, 0xb7, 0xbf, 0xb7, 0xb7};
  kFuzzTargets[1].run(half.data(), half.size());
  const std::vector<uint8_t> single = {0x0a, 0x35, 0x61, 0x62, 0x6e, 0x05,
                                       0x31, 0x25, 0x33, 0x39, 0x30};
  kFuzzTargets[1].run(single.data(), single.size());
  // An empty batch of very many steps in bfloat16 divided by the size of one step's gates, 0.
  const std::vector<uint8_t> no_sequences = {0x19, 0x37, 0x37, 0x05, 0x05, 0x5d, 0x05,
                                             0x5d, 0xf6, 0x2a, 0x03, 0x3a, 0xef, 0xad,
                                             0xad, 0xff, 0x37, 0x0a, 0x00, 0xfe, 0xff};
  kFuzzTargets[2].run(no_sequences.data(), no_sequences.size());
}

}  // namespace
}  // namespace cudnn_rnn
