// Runs every test, or those whose names contain the first argument.

#include <cstring>

#include "cudnn_rnn/cc/core/status.h"
#include "tests/core/testing.h"

int main(int argc, char** argv) {
  using cudnn_rnn::testing::Failures;
  int passed = 0, failed = 0;
  for (const auto& test : cudnn_rnn::testing::Tests()) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    const int before = Failures();
    test.run();
    const bool ok = Failures() == before;
    ++(ok ? passed : failed);
    if (!ok) std::printf("FAILED %s\n", test.name);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
