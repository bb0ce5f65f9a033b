// Tests what a reserve space holds: every byte is defined, and every element is finite in the type
// of the tensor.

#include "cudnn_rnn/cc/core/reserve_space.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
#include "tests/core/plan_runner.h"
#include "tests/core/problem_cases.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

constexpr DataType kDataTypes[] = {DataType::kHalf, DataType::kBfloat16, DataType::kFloat,
                                   DataType::kDouble};

template <typename T>
T Load(const char* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

double Element(const char* data, DataType data_type) {
  switch (data_type) {
    case DataType::kHalf:
      return HalfToFloat(Load<uint16_t>(data));
    case DataType::kBfloat16:
      return Bfloat16ToFloat(Load<uint16_t>(data));
    case DataType::kFloat:
      return Load<float>(data);
    case DataType::kDouble:
      break;
  }
  return Load<double>(data);
}

// Returns the first element that is not finite, or -1.
int64_t FirstNonfinite(const char* data, int64_t bytes, DataType data_type) {
  const int64_t size = SizeOf(data_type);
  for (int64_t i = 0; i < bytes / size; ++i) {
    if (!std::isfinite(Element(data + i * size, data_type))) return i;
  }
  return -1;
}

// Returns the reserve space of a forward call whose memory held `poison` before, or random bytes
// if it is negative.
std::string ReserveSpaceAfterForward(const RnnPlan& plan, const Problem& problem,
                                     const Tensors& tensors, ParallelRunner* runner, int poison) {
  const CallOptions options = problem.Options(/*is_training=*/true);
  const int64_t bytes = plan.ReserveSpaceBytes();
  PlanBuffers buffers(tensors, problem.config.data_type, bytes);
  char* const data = static_cast<char*>(buffers.forward.reserve_space);
  std::mt19937 generator(5);
  for (int64_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<char>(poison < 0 ? generator() : static_cast<unsigned>(poison));
  }
  EXPECT(CallForward(plan, options, {runner}, &buffers).ok(), problem.Text());
  return std::string(data, static_cast<size_t>(bytes));
}

void CheckReserveSpace(const Problem& problem, ParallelRunner* runner) {
  std::unique_ptr<RnnPlan> plan;
  EXPECT(CreateCpuPlan(problem.config, problem.shape, "", &plan).ok(), problem.Text());
  if (plan == nullptr) return;
  const Tensors tensors = MakeTensors(problem);
  const std::string first = ReserveSpaceAfterForward(*plan, problem, tensors, runner, 0xff);
  const std::string second = ReserveSpaceAfterForward(*plan, problem, tensors, runner, -1);
  const int64_t bytes = plan->ReserveSpaceBytes();
  EXPECT(bytes % SizeOf(problem.config.data_type) == 0, problem.Text());
  EXPECT(first == second, "old memory in the reserve space of ", problem.Text());
  const int64_t nonfinite = FirstNonfinite(first.data(), bytes, problem.config.data_type);
  EXPECT(nonfinite < 0, "element ", nonfinite, " of ", bytes, " bytes of ", problem.Text());
}

TEST(ReserveSpacesAreFiniteAndHoldNoOldMemory) {
  std::vector<Problem> problems = Problems();
  // Rows with gaps between them, in the gates.
  for (RnnMode mode : {RnnMode::kLstm, RnnMode::kGru}) {
    Problem problem = problems[0];
    problem.config = RnnConfig();
    problem.config.mode = mode;
    problem.config.num_layers = 2;
    problem.config.num_units = 256;
    problem.config.input_size = 5;
    problem.shape = {3, 4};
    problems.push_back(problem);
  }
  ThreadRunner runner(3);
  int64_t number = 0;
  for (Problem problem : problems) {
    for (DataType data_type : kDataTypes) {
      problem.config.data_type = data_type;
      for (const std::vector<int32_t>& lengths : AllLengths(problem.shape)) {
        if (!testing::IsInSample(number++)) continue;
        problem.lengths = lengths;
        CheckReserveSpace(problem, &runner);
      }
    }
  }
  for (DataType data_type : kDataTypes) {  // calls without any row
    Problem problem = problems[0];
    problem.config.data_type = data_type;
    problem.shape = {0, 3};
    CheckReserveSpace(problem, &runner);
  }
}

// A model with NaN has NaN in its reserve space, and the same gradients as with a restored one.
TEST(NonfiniteResultsSurviveTheReserveSpace) {
  for (DataType data_type : {DataType::kHalf, DataType::kBfloat16}) {
    Problem problem;
    problem.config.mode = RnnMode::kRelu;
    problem.config.num_layers = 2;
    problem.config.num_units = 3;
    problem.config.input_size = 2;
    problem.config.data_type = data_type;
    problem.shape = {2, 2};
    Tensors tensors = MakeTensors(problem);
    tensors.input[0] = std::numeric_limits<double>::infinity();
    std::unique_ptr<RnnPlan> plan;
    EXPECT(CreateCpuPlan(problem.config, problem.shape, "", &plan).ok(), problem.Text());
    ThreadRunner runner(1);
    RunPlan(*plan, problem, {&runner}, /*is_training=*/true, &tensors);
    bool has_nan = false;
    for (double value : tensors.params_backprop) has_nan = has_nan || std::isnan(value);
    EXPECT(has_nan, Name(data_type));
  }
}

template <int kExponentBits>
void CheckHalves(DataType data_type, float limit) {
  const uint32_t mantissas[] = {0, 1, 0x55555555, 0xffffffff};
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t low = 0; low < 0x10000; low += 0x80) {
      for (uint32_t mantissa : mantissas) {
        const uint32_t bits = high << 16 | low | (mantissa & 0x7f);
        const uint32_t result = MakeHalvesFinite<kExponentBits>(bits);
        if (MakeHalvesFinite<kExponentBits>(result) != bits) {
          EXPECT(false, bits, " is lost");
          return;
        }
        if (!(std::abs(FloatFromBits(bits)) < limit)) continue;
        char bytes[4];
        std::memcpy(bytes, &result, sizeof(bytes));
        if (FirstNonfinite(bytes, 4, data_type) >= 0) {
          EXPECT(false, bits, " is not finite");
          return;
        }
      }
    }
  }
}

TEST(HalvesOfFloatsAreFinite) {
  CheckHalves<5>(DataType::kHalf, std::ldexp(1.0f, 113));
  CheckHalves<8>(DataType::kBfloat16, std::ldexp(1.0f, 127));
}

TEST(InstructionSetsRearrangeTheSameBits) {
  std::mt19937 generator(1);
  std::vector<float> values(1003);
  for (float& value : values) {
    // Both fields are at or near the top in many of them.
    const uint32_t bits = static_cast<uint32_t>(generator());
    value = FloatFromBits(generator() % 2 ? bits | 0x7c007c00u : bits | 0x00007f80u);
  }
  for (const std::string& set : InstructionSets()) {
    const Kernels<float>* kernels;
    EXPECT(ChooseKernels<float>(set, FactorFormat::kExact, &kernels).ok(), set);
    for (const bool is_half : {true, false}) {
      std::vector<float> found = values;
      const Conversions<float>& conversions = is_half ? kernels->half : kernels->bfloat16;
      conversions.make_halves_finite(values.data(), static_cast<int64_t>(values.size()),
                                     found.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const uint32_t bits = BitsFromFloat(values[i]);
        const uint32_t expected = is_half ? MakeHalvesFinite<5>(bits) : MakeHalvesFinite<8>(bits);
        EXPECT(BitsFromFloat(found[i]) == expected, set, " ", is_half, " element ", i);
      }
    }
  }
}

TEST(HeadersAreFiniteInEveryType) {
  std::mt19937_64 generator(2);
  for (int i = 0; i < 2000; ++i) {
    const auto random = [&] { return i == 0 ? ~uint64_t{0} : generator(); };
    ReserveSpaceIdentity identity;
    identity.plan = random();
    identity.output_h = random();
    identity.lengths = random();
    identity.settings = {FloatFromBits(static_cast<uint32_t>(random())),
                         static_cast<int64_t>(random()), static_cast<int64_t>(random()),
                         static_cast<Precision>(i % 4)};
    const int64_t call = static_cast<int64_t>(random());
    std::string header(static_cast<size_t>(kReserveHeaderBytes), '\xff');
    WriteReserveHeader(identity, call, &header[0]);
    for (DataType data_type : kDataTypes) {
      EXPECT(FirstNonfinite(header.data(), kReserveHeaderBytes, data_type) < 0, Name(data_type));
    }
    int64_t found_call = 0;
    EXPECT(ReadReserveHeader(identity, kReserveHeaderBytes, header.data(), kReserveHeaderBytes,
                             &found_call)
               .ok());
    EXPECT(found_call == call);
  }
}

TEST(SettingsAreTakenFromTheHeader) {
  RnnConfig forward;
  forward.precision = Precision::kMedium;
  forward.dropout = 0.25f;
  forward.seed = -3;
  forward.seed2 = int64_t{1} << 40;
  char header[kReserveHeaderBytes];
  WriteReserveHeader(IdentityOf(forward, {4, 5}, {}), 1, header);
  RnnConfig gradient;
  TakeSettingsFromHeader(header, kReserveHeaderBytes - 1, &gradient);
  EXPECT(gradient.dropout == 0 && gradient.seed == 0, "too short for a header");
  EXPECT(gradient.precision == Precision::kDefault);
  TakeSettingsFromHeader(header, kReserveHeaderBytes, &gradient);
  EXPECT(gradient.dropout == 0.25f && gradient.seed == -3 && gradient.seed2 == int64_t{1} << 40);
  EXPECT(gradient.precision == Precision::kMedium);
  EXPECT(PlanFingerprint(gradient, {4, 5}) == PlanFingerprint(forward, {4, 5}));
  gradient.precision = Precision::kHigh;
  EXPECT(PlanFingerprint(gradient, {4, 5}) == PlanFingerprint(forward, {4, 5}));
  RnnConfig given;
  given.seed2 = 7;
  TakeSettingsFromHeader(header, kReserveHeaderBytes, &given);
  EXPECT(given.dropout == 0 && given.seed == 0 && given.seed2 == 7, "given attributes count");
  EXPECT(given.precision == Precision::kMedium, "whatever the attributes are");
  header[0] ^= 1;
  gradient = RnnConfig();
  TakeSettingsFromHeader(header, kReserveHeaderBytes, &gradient);
  EXPECT(gradient.dropout == 0 && gradient.seed2 == 0, "no header");
}

bool AreEqual(const ForwardChoice& a, const ForwardChoice& b) {
  return a.algorithm == b.algorithm && a.allow_tf32 == b.allow_tf32 &&
         a.uses_dropout == b.uses_dropout;
}

TEST(ReserveSpacesCarryTheChoiceOfTheForwardCall) {
  EXPECT(ReserveSpaceElements(0, 4, ForwardChoice()) == 0);
  EXPECT(ReserveSpaceElements(13, 4, ForwardChoice()) == 4);
  for (int32_t algorithm = 1; algorithm <= 4; ++algorithm) {
    for (const bool allow_tf32 : {false, true}) {
      const ForwardChoice choice = {algorithm, allow_tf32, !allow_tf32};
      for (const int64_t bytes : {0, 1, 64, 1000, 1024}) {
        for (const int64_t element_size : {2, 8}) {
          const int64_t elements = ReserveSpaceElements(bytes, element_size, choice);
          EXPECT(elements * element_size >= bytes && elements * element_size < bytes + 64 * 8);
          const ForwardChoice read = ChoiceOfReserveSpace(elements);
          EXPECT(AreEqual(read, choice));
        }
      }
      char header[kReserveHeaderBytes];
      WriteReserveHeader(ReserveSpaceIdentity(), 3, header, choice);
      int64_t call = 0;
      ForwardChoice read;
      EXPECT(ReadReserveHeader(ReserveSpaceIdentity(), kReserveHeaderBytes, header,
                               kReserveHeaderBytes, &call, "host_reserved", &read)
                 .ok());
      EXPECT(call == 3 && AreEqual(read, choice));
    }
  }
}

TEST(ReserveSpacesOfOthersAreRefused) {
  RnnConfig config;
  config.num_units = 3;
  config.input_size = 2;
  ReserveSpaceIdentity identity;
  identity.plan = PlanFingerprint(config, {4, 5});
  identity.output_h = 77;
  char header[kReserveHeaderBytes];
  WriteReserveHeader(identity, 12, header);
  int64_t call = 0;
  const auto read = [&](const ReserveSpaceIdentity& expected, const char* name, bool is_empty) {
    return ReadReserveHeader(expected, kReserveHeaderBytes, is_empty ? nullptr : header,
                             is_empty ? 0 : kReserveHeaderBytes, &call, name);
  };
  EXPECT(read(identity, "reserve_space", false).ok() && call == 12);
  ReserveSpaceIdentity other_plan = identity, other_output = identity, other_lengths = identity;
  ++other_plan.plan;
  ++other_output.output_h;
  ++other_lengths.lengths;
  EXPECT_ERROR(read(identity, "reserve_space", true), "reserve_space", "192", "0", "is_training");
  EXPECT_ERROR(read(other_plan, "reserve_space", false), "reserve_space",
               "not made for this model");
  header[0] ^= 1;
  EXPECT_ERROR(read(identity, "reserve_space", false), "reserve_space has no header",
               "auto_mixed_precision_cpu");
  EXPECT_ERROR(read(identity, "host_reserved", false), "host_reserved has no header");
  header[0] ^= 1;
  EXPECT_ERROR(read(other_output, "reserve_space", false), "reserve_space", "another forward call");
  EXPECT_ERROR(read(other_lengths, "reserve_space", false), "reserve_space",
               "other sequence_lengths");
  EXPECT_ERROR(read(other_plan, "host_reserved", false), "host_reserved", "forward call",
               "rnn_mode", "dropout", "seed", "shape");
  EXPECT_ERROR(read(identity, "host_reserved", true), "host_reserved", "is_training");
  EXPECT(IdentityOf(config, {4, 5}, {}).plan == identity.plan);
  EXPECT(IdentityOf(config, {4, 2}, {4, 4}).lengths == 0);
  EXPECT(IdentityOf(config, {4, 2}, {4, 3}).lengths != IdentityOf(config, {4, 2}, {3, 4}).lengths);
  // Each field of the config and of the shape changes the fingerprint.
  std::vector<RnnConfig> others(10, config);
  others[0].mode = RnnMode::kGru;
  others[1].direction = Direction::kBidirectional;
  others[2].data_type = DataType::kHalf;
  others[3].num_layers = 2;
  others[4].num_units = 2;
  others[5].input_size = 3;
  others[6].dropout = 0.5f;
  others[7].seed = 1;
  others[8].seed2 = 1;
  others[9].num_proj = 1;
  for (const RnnConfig& other : others) EXPECT(PlanFingerprint(other, {4, 5}) != identity.plan);
  EXPECT(PlanFingerprint(config, {5, 4}) != identity.plan);
  EXPECT(PlanFingerprint(config, {4, 5, false}) != identity.plan);
}
}  // namespace
}  // namespace cudnn_rnn
