// Runs all tests, or those whose names contain the first argument.
//
//   --list          prints the names of all tests
//   --only NAME     runs the test of this name; prints nothing if it passes

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "cudnn_rnn/cc/core/status.h"
#include "tests/core/testing.h"

namespace {

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
  const char* const part = argc > 1 ? argv[argc - 1] : "";
  const bool lists = std::strcmp(part, "--list") == 0;
  const bool is_one = argc > 2 && std::strcmp(argv[1], "--only") == 0;
  signal(SIGALRM, NameHangingTest);
  alarm(kMaxSeconds);
  int passed = 0, failed = 0;
  for (const auto& test : cudnn_rnn::testing::Tests()) {
    if (lists) std::puts(test.name);
    if (is_one ? std::strcmp(test.name, part) != 0 : std::strstr(test.name, part) == nullptr) {
      continue;
    }
    const int before = Failures();
    current_test = test.name;
    test.run();
    const bool ok = Failures() == before;
    ++(ok ? passed : failed);
    if (!ok) std::printf("FAILED %s\n", test.name);
  }
  if (lists) return 0;
  if (!is_one) std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;  // a name that matches no test is an error
}
