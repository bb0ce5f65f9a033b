// Tests of RnnConfig and ParamLayout.

#include <limits>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

RnnConfig MakeConfig(RnnMode mode, Direction direction, int64_t num_layers, int64_t num_units,
                     int64_t input_size) {
  return {mode, InputMode::kLinear, direction, DataType::kFloat, num_layers, num_units, input_size};
}

TEST(PublishedSizes) {
  struct Case {
    RnnConfig config;
    int64_t size;
  };
  const Case cases[] = {
      {MakeConfig(RnnMode::kLstm, Direction::kUnidirectional, 1, 100, 20), 48800},
      {MakeConfig(RnnMode::kLstm, Direction::kBidirectional, 1, 100, 20), 97600},
      {MakeConfig(RnnMode::kLstm, Direction::kBidirectional, 3, 143, 143), 1315600},
      {MakeConfig(RnnMode::kGru, Direction::kUnidirectional, 1, 76, 300), 86184},
  };
  for (const Case& test : cases) {
    ParamLayout layout;
    EXPECT(ParamLayout::Create(test.config, &layout).ok());
    EXPECT(layout.size() == test.size, layout.size(), " != ", test.size);
  }
}

void CheckThatCanonicalTensorsCoverTheBuffer(const RnnConfig& config) {
  ParamLayout layout;
  EXPECT(ParamLayout::Create(config, &layout).ok());
  const int64_t pseudo_layers = config.num_layers * config.num_directions();
  const int64_t matrices = 2 * config.num_gates() + (config.has_projection() ? 1 : 0);
  EXPECT(layout.num_canonical_weights() == pseudo_layers * matrices);
  EXPECT(layout.num_canonical_biases() == pseudo_layers * 2 * config.num_gates());
  int64_t next = 0;
  const auto check = [&next](const ParamRegion& region) {
    EXPECT(region.offset == next, "weights follow one another, biases follow all weights");
    next += region.size();
  };
  for (int64_t i = 0; i < layout.num_canonical_weights(); ++i) check(layout.CanonicalWeight(i));
  for (int64_t i = 0; i < layout.num_canonical_biases(); ++i) check(layout.CanonicalBias(i));
  EXPECT(next == layout.size());
}

// Every element of the buffer is in exactly one canonical tensor, in every mode.
TEST(CanonicalTensorsCoverTheBuffer) {
  for (RnnMode mode : {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru}) {
    for (Direction direction : {Direction::kUnidirectional, Direction::kBidirectional}) {
      for (InputMode input_mode : {InputMode::kLinear, InputMode::kSkip, InputMode::kAuto}) {
        for (int64_t layers : {1, 2, 3}) {
          const bool skips = input_mode != InputMode::kLinear;
          RnnConfig config = MakeConfig(mode, direction, layers, 5, skips ? 5 : 3);
          config.input_mode = input_mode;
          CheckThatCanonicalTensorsCoverTheBuffer(config);
          if (mode != RnnMode::kLstm) continue;
          for (int64_t num_proj : {1, 2}) {
            config.num_proj = num_proj;
            CheckThatCanonicalTensorsCoverTheBuffer(config);
          }
        }
      }
    }
  }
}

// Input size 3, 5 units projected to 2, bidirectional, two layers. Offsets are counted by hand.
TEST(LayoutWithAProjection) {
  RnnConfig config = MakeConfig(RnnMode::kLstm, Direction::kBidirectional, 2, 5, 3);
  config.num_proj = 2;
  ParamLayout layout;
  EXPECT(ParamLayout::Create(config, &layout).ok());
  // Per direction, layer 0: W 4 * 5 * 3, R 4 * 5 * 2, projection 2 * 5; layer 1: W 4 * 5 * 4.
  const int64_t first = 60 + 40 + 10, second = 80 + 40 + 10;
  EXPECT(layout.size() == 2 * (first + second) + 4 * 2 * 20);
  EXPECT(layout.InputWeights(0, 0) == 0 && layout.InputWeights(0, 1) == first);
  EXPECT(layout.RecurrentWeights(0, 1) == first + 60);
  EXPECT(layout.ProjectionWeights(0, 0) == 100 && layout.ProjectionWeights(0, 1) == first + 100);
  EXPECT(layout.InputWeights(1, 1) == 2 * first + second);
  EXPECT(layout.ProjectionWeights(1, 1) == 2 * first + second + 120);
  EXPECT(layout.InputBiases(0, 0) == 2 * (first + second));
  EXPECT(layout.RecurrentBiases(1, 1) == layout.size() - 20);
  // Each (layer, direction) has 4 weights of W, 4 of R, then the projection.
  struct Expected {
    int64_t index, offset, rows, columns;
  };
  for (const Expected& expected :
       {Expected{1, 15, 5, 3}, Expected{4, 60, 5, 2}, Expected{7, 90, 5, 2}, Expected{8, 100, 2, 5},
        Expected{9, first, 5, 3}, Expected{18, 2 * first, 5, 4},
        Expected{35, 2 * first + second + 120, 2, 5}}) {
    const ParamRegion weight = layout.CanonicalWeight(expected.index);
    EXPECT(weight.offset == expected.offset && weight.rows == expected.rows &&
               weight.columns == expected.columns,
           expected.index);
  }
}

TEST(DescriptionsNameWhatIsNotUsual) {
  RnnConfig config = MakeConfig(RnnMode::kLstm, Direction::kBidirectional, 2, 5, 5);
  config.data_type = DataType::kFloat;
  const std::string usual = Describe(config);
  EXPECT(usual == "lstm, bidirectional, 2 layers, 5 units, input 5, float", usual);
  config.input_mode = InputMode::kSkip;
  EXPECT(Describe(config) == usual + ", skip_input", Describe(config));
  config.num_proj = 3;
  config.dropout = 0.5f;
  EXPECT(Describe(config) == usual + ", skip_input, projection 3, dropout 0.5", Describe(config));
}

TEST(ErrorsNameTheArgument) {
  const auto lstm = [](int64_t layers, int64_t units, int64_t input_size) {
    return MakeConfig(RnnMode::kLstm, Direction::kUnidirectional, layers, units, input_size);
  };
  EXPECT_ERROR(Validate(lstm(0, 3, 3)), "num_layers", "at least 1", "0");
  EXPECT_ERROR(Validate(lstm(1, -2, 3)), "num_units", "at least 1", "-2");
  EXPECT_ERROR(Validate(lstm(1, 3, 0)), "input_size", "at least 1", "0");
  RnnConfig config = lstm(1, 3, 4);
  config.input_mode = InputMode::kSkip;
  EXPECT_ERROR(Validate(config), "skip_input", "input_size is 4", "num_units is 3");
  config = lstm(1, 3, 3);
  for (float dropout : {-0.1f, 1.1f, std::numeric_limits<float>::quiet_NaN(),
                        std::numeric_limits<float>::infinity()}) {
    config.dropout = dropout;
    EXPECT_ERROR(Validate(config), "dropout", "between 0 and 1");
  }
  config = lstm(1, 4, 3);
  for (int64_t num_proj : {-1, 4, 5}) {
    config.num_proj = num_proj;
    EXPECT_ERROR(Validate(config), "num_proj", "below num_units", "4");
  }
  config = MakeConfig(RnnMode::kGru, Direction::kUnidirectional, 1, 4, 3);
  config.num_proj = 2;
  EXPECT_ERROR(Validate(config), "num_proj", "gru", "only lstm");
  RnnMode mode;
  EXPECT_ERROR(ParseRnnMode("LSTM", &mode), "rnn_mode", "LSTM", "gru");
  InputMode input_mode;
  EXPECT_ERROR(ParseInputMode("", &input_mode), "input_mode", "skip_input");
  Direction direction;
  EXPECT_ERROR(ParseDirection("both", &direction), "direction", "both", "bidirectional");
}

TEST(EveryFieldOfAConfigIsInItsKey) {
  const RnnConfig config;
  std::vector<RnnConfig> others(10, config);
  others[0].mode = RnnMode::kGru;
  others[1].input_mode = InputMode::kSkip;
  others[2].direction = Direction::kBidirectional;
  others[3].data_type = DataType::kDouble;
  others[4].num_layers = 2;
  others[5].num_units = 2;
  others[6].input_size = 2;
  others[7].num_proj = 1;
  others[8].dropout = 0.5f;
  others[9].seed = 1;
  others.push_back(config);
  others[10].seed2 = 1;
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT(KeyOf(others[i]) != KeyOf(config), "field ", i);
    const bool is_of_dropout = i >= 8;
    EXPECT((KeyOf(WithoutDropout(others[i])) == KeyOf(config)) == is_of_dropout, "field ", i);
  }
  RnnConfig automatic = others[1];
  automatic.input_mode = InputMode::kAuto;
  EXPECT(KeyOf(automatic) == KeyOf(others[1]), "the sizes are equal, so it skips the input");
}

TEST(SizesThatOverflowAreRefused) {
  const int64_t large = std::numeric_limits<int32_t>::max();
  ParamLayout layout;
  const auto create = [&](int64_t layers, int64_t units, int64_t input_size) {
    return ParamLayout::Create(
        MakeConfig(RnnMode::kLstm, Direction::kBidirectional, layers, units, input_size), &layout);
  };
  EXPECT_ERROR(create(large, large, large), "num_layers", "64 bits");
  EXPECT_ERROR(create(1, large, 1), "num_units", "64 bits");
  EXPECT_ERROR(create(1, std::numeric_limits<int64_t>::max(), 1), "64 bits");
  EXPECT_ERROR(create(std::numeric_limits<int64_t>::max(), 1, 1), "64 bits");
  EXPECT_ERROR(create(1, 1, std::numeric_limits<int64_t>::max()), "64 bits");
  // A unidirectional layer with one unit has 4 * (input_size + 3) parameters of at most 8 bytes.
  const auto create_narrow = [&](int64_t input_size) {
    return ParamLayout::Create(
        MakeConfig(RnnMode::kLstm, Direction::kUnidirectional, 1, 1, input_size), &layout);
  };
  const int64_t smallest_refused = (int64_t{1} << 58) - 3;
  EXPECT_ERROR(create_narrow(smallest_refused), "64 bits");
  EXPECT(create_narrow(smallest_refused - 1).ok());
  // A size beyond 32 bits but within 64 is valid, and creating its layout takes no memory.
  EXPECT(create(1000, 1000, 1000).ok());
  EXPECT(layout.size() > large);
}

}  // namespace
}  // namespace cudnn_rnn
