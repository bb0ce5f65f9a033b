// Runs all tests, or those whose names contain the first argument. With TEST_TOTAL_SHARDS and
// TEST_SHARD_INDEX in the environment (Bazel's names), runs only one shard of them.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cudnn_rnn/cc/core/status.h"
#include "tests/core/testing.h"

namespace {

int NumberFrom(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}

// A last resort that names a hanging test. Even with sanitizers on a busy core, all tests together
// take far less.
constexpr unsigned kMaxSeconds = 3600;
const char* current_test = "no test";

void NameHangingTest(int) {
  for (const char* text : {"FAILED, hangs: ", current_test, "\n"}) {
    if (write(STDOUT_FILENO, text, std::strlen(text)) < 0) break;
  }
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  using cudnn_rnn::testing::Failures;
  const int num_shards = NumberFrom("TEST_TOTAL_SHARDS", 1);
  const int shard = NumberFrom("TEST_SHARD_INDEX", 0);
  signal(SIGALRM, NameHangingTest);
  alarm(kMaxSeconds);
  int chosen = 0, passed = 0, failed = 0;
  for (const auto& test : cudnn_rnn::testing::Tests()) {
    if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
    if (chosen++ % num_shards != shard) continue;
    const int before = Failures();
    current_test = test.name;
    test.run();
    const bool ok = Failures() == before;
    ++(ok ? passed : failed);
    if (!ok) std::printf("FAILED %s\n", test.name);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  // A name that matches no test is an error; a shard without tests is not.
  return failed == 0 && chosen > 0 ? 0 : 1;
}
