// A minimal test framework: named tests, and expectations that report a failure and continue.
#ifndef CUDNN_RNN_TESTS_CORE_TESTING_H_
#define CUDNN_RNN_TESTS_CORE_TESTING_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace cudnn_rnn {
namespace testing {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}

inline int& Failures() {
  static int failures = 0;
  return failures;
}

inline bool Register(const char* name, void (*run)()) {
  Tests().push_back({name, run});
  return true;
}

inline void Fail(const char* file, int line, const std::string& what) {
  ++Failures();
  std::printf("%s:%d: %s\n", file, line, what.c_str());
}

// Returns the number in an environment variable; `default_value` if the variable is not set.
inline uint32_t FromEnvironment(const char* name, uint32_t default_value) {
  const char* const text = std::getenv(name);
  return text == nullptr ? default_value : static_cast<uint32_t>(std::atoi(text));
}

// Returns whether a case of a large table runs: all do, or about one of n with
// CUDNN_RNN_TEST_SAMPLE=n, for CI with sanitizers. Any n successive values of
// CUDNN_RNN_TEST_TURN (0 by default) cover all cases. `number`: the position of the case in its
// table.
inline bool IsInSample(int64_t number) {
  static const uint32_t sample = FromEnvironment("CUDNN_RNN_TEST_SAMPLE", 1);
  static const uint32_t turn = FromEnvironment("CUDNN_RNN_TEST_TURN", 0);
  // Scattered, since what a case tests often depends on its number modulo 2 or 3.
  return sample <= 1 ||
         (static_cast<uint32_t>(number) * 2654435761u >> 16) % sample == turn % sample;
}

}  // namespace testing
}  // namespace cudnn_rnn

#define TEST(name)                                                                   \
  static void name();                                                                \
  static const bool name##_registered = ::cudnn_rnn::testing::Register(#name, name); \
  static void name()

// `...` is a text that identifies the failing case.
#define EXPECT(condition, ...)                                                  \
  do {                                                                          \
    if (!(condition)) {                                                         \
      ::cudnn_rnn::testing::Fail(                                               \
          __FILE__, __LINE__,                                                   \
          ::cudnn_rnn::Concatenate("expected " #condition " ", ##__VA_ARGS__)); \
    }                                                                           \
  } while (false)

// Expects an error whose message contains each of the parts.
#define EXPECT_ERROR(status, ...)                                        \
  do {                                                                   \
    const ::cudnn_rnn::Status error = (status);                          \
    EXPECT(!error.ok());                                                 \
    for (const char* part : {__VA_ARGS__}) {                             \
      EXPECT(error.message().find(part) != std::string::npos, "'", part, \
             "' in: ", error.message());                                 \
    }                                                                    \
  } while (false)

#endif  // CUDNN_RNN_TESTS_CORE_TESTING_H_
