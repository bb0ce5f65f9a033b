// Tests the text form of problems.

#include "tests/core/problem_text.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/core/any_problem.h"
#include "tests/core/problem_cases.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

Status Parse(const std::string& text, Problem* problem) {
  return ParseProblemText(text, &problem->config, &problem->shape, &problem->lengths);
}

bool AreEqual(const Problem& a, const Problem& b) {
  return KeyOf(a.config) == KeyOf(b.config) && a.config.input_mode == b.config.input_mode &&
         a.shape.num_steps == b.shape.num_steps && a.shape.batch_size == b.shape.batch_size &&
         a.shape.time_major == b.shape.time_major && a.lengths == b.lengths;
}

// tests/tooling/test_benchmarks.py reads this table and checks that benchmarks/configurations.py
// means the same models by these names.
TEST(NamesOfTheCpuBenchmarkAreRead) {
  struct Case {
    const char* text;
    const char* mode;
    int64_t layers, units, input;
    const char* direction;
    int64_t batch, steps;
    std::vector<int32_t> lengths;
  };
  const Case cases[] = {
      {"lstm-2x650-b20-t35", "lstm", 2, 650, 650, "unidirectional", 20, 35, {}},
      {"lstm-3x320-i80-b12-t150", "lstm", 3, 320, 80, "unidirectional", 12, 150, {}},
      {"gru-2x256-bi-b32-t100", "gru", 2, 256, 256, "bidirectional", 32, 100, {}},
      {"rnn_tanh-1x16-i3-bi-b3-t6", "rnn_tanh", 1, 16, 3, "bidirectional", 3, 6, {}},
      {"rnn_relu-4x5-b1-t1", "rnn_relu", 4, 5, 5, "unidirectional", 1, 1, {}},
      {"lstm-1x24-b6-t9-half", "lstm", 1, 24, 24, "unidirectional", 6, 9, {4, 1, 8, 5, 2, 7}},
      {"gru-2x76-i9-bi-b5-t60-half", "gru", 2, 76, 9, "bidirectional", 5, 60, {30, 6, 42, 18, 54}},
  };
  for (const Case& test : cases) {
    Problem found;
    const Status status = Parse(test.text, &found);
    EXPECT(status.ok(), status.message());
    EXPECT(std::string(Name(found.config.mode)) == test.mode, test.text);
    EXPECT(found.config.num_layers == test.layers, test.text);
    EXPECT(found.config.num_units == test.units && found.config.input_size == test.input,
           test.text);
    EXPECT(std::string(Name(found.config.direction)) == test.direction, test.text);
    EXPECT(found.shape.batch_size == test.batch && found.shape.num_steps == test.steps, test.text);
    EXPECT(found.shape.time_major && found.config.data_type == DataType::kFloat, test.text);
    EXPECT(found.lengths == test.lengths, test.text);
    EXPECT(found.Text() == test.text, found.Text());
  }
}

TEST(PartsThatTheCpuBenchmarkLacks) {
  Problem expected;
  expected.config = {RnnMode::kLstm,
                     InputMode::kSkip,
                     Direction::kBidirectional,
                     DataType::kHalf,
                     1,
                     21,
                     21,
                     14,
                     0.25f,
                     -5,
                     7};
  expected.shape = {4, 3, false};
  expected.lengths = {4, 0, 2};
  const std::string text =
      "lstm-1x21-p14-skip-bi-b3-t4-lengths:4,0,2-batch_major-dropout:0.25-seed:-5-seed2:7-float16";
  EXPECT(expected.Text() == text, expected.Text());
  Problem found;
  EXPECT(Parse(text, &found).ok() && AreEqual(found, expected), found.Text());
  EXPECT(Parse("gru-1x2-float16-t3-auto-b4-i5", &found).ok());
  EXPECT(found.Text() == "gru-1x2-i5-auto-b4-t3-float16", found.Text());
}

TEST(EveryProblemIsReadFromItsText) {
  struct {
    std::mt19937 generator{11};
    int64_t Choice(int64_t count) {
      return std::uniform_int_distribution<int64_t>(0, count - 1)(generator);
    }
    bool Flag() { return Choice(2) == 1; }
  } source;
  std::vector<Problem> problems = Problems();
  for (int i = 0; i < 2000; ++i) problems.push_back(AnyProblem({40, 0, 6, 0, 20}, &source));
  for (const Problem& problem : problems) {
    Problem found;
    const Status status = Parse(problem.Text(), &found);
    EXPECT(status.ok() && AreEqual(found, problem), problem.Text(), status.message());
  }
}

TEST(WrongTextsAreRefused) {
  struct Case {
    const char* text;
    const char* error;
  };
  const Case cases[] = {
      {"", "rnn_mode must be one of"},
      {"lstn-1x2-b1-t1", "is 'lstn'"},
      {"lstm", "LAYERSxUNITS must follow"},
      {"lstm-2-b1-t1", "LAYERSxUNITS must follow"},
      {"lstm-2x3x4-b1-t1", "LAYERSxUNITS must follow"},
      {"lstm-x3-b1-t1", "LAYERSxUNITS must follow"},
      {"lstm-0x3-b1-t1", "num_layers must be at least 1"},
      {"lstm-2x3-t1", "-bBATCH is missing"},
      {"lstm-2x3-b1", "-tSTEPS is missing"},
      {"lstm-2x3-b1-t1-", "''"},
      {"lstm-2x3-b1-t1-big", "'big'"},
      {"lstm-2x3-b-t1", "'b'"},
      {"lstm-2x3-b1.5-t1", "'b1.5'"},
      {"lstm-2x3-b+1-t1", "'b+1'"},
      {"lstm-2x3-b1-t1000000001", "'t1000000001'"},
      {"lstm-2x3-b1-t1-seed:99999999999999999999", "seed:9"},
      {"lstm-2x3-b1-t1-dropout:x", "'dropout:x'"},
      {"lstm-2x3-b1-t1-dropout:2", "dropout must be between 0 and 1"},
      {"lstm-2x3-b1-t1-lengths:1,", "'lengths:1,'"},
      {"lstm-2x3-b2-t1-lengths:1", "sequence_lengths has 1 elements"},
      {"lstm-2x3-b1-t1-lengths:2", "sequence_lengths[0] is 2"},
      {"gru-2x3-p2-b1-t1", "only lstm has a projection"},
      {"lstm-1x512-b1-t100-decode", "a single step is -t1"},
  };
  for (const Case& test : cases) {
    Problem found;
    found.shape.batch_size = 77;
    const std::string text = Concatenate("The model '", test.text, "' cannot be read: ");
    EXPECT_ERROR(Parse(test.text, &found), text.c_str(), test.error, "lstm-2x650-b20-t35");
    EXPECT(found.shape.batch_size == 77, test.text);
  }
}

}  // namespace
}  // namespace cudnn_rnn
