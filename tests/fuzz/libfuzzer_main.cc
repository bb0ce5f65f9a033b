// The target named by $CUDNN_RNN_FUZZ_TARGET, for libFuzzer: tests/trials/fuzz.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/fuzz/fuzz_targets.h"

namespace {

const cudnn_rnn::FuzzTarget* target = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const wanted = std::getenv("CUDNN_RNN_FUZZ_TARGET");
  for (const cudnn_rnn::FuzzTarget& one : cudnn_rnn::kFuzzTargets) {
    if (wanted != nullptr && std::string(wanted) == one.name) target = &one;
  }
  if (target != nullptr) return 0;
  std::fputs("CUDNN_RNN_FUZZ_TARGET must be sizes, plan or c_api\n", stderr);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target->run(data, size);
  return 0;
}
