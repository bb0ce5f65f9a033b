// Tests packing of sequences of different lengths, and that neither padding nor neighbors matter.

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "cudnn_rnn/cc/cpu/buffer_exchange.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "tests/core/plan_runner.h"
#include "tests/core/problem_cases.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

// The example that packed_sequences.h draws.
TEST(PackingAnExample) {
  const SequenceShape shape = {5, 4};
  const std::vector<int32_t> lengths = {2, 0, 4, 2};
  std::vector<int64_t> memory(PackedSequences::NumElements(shape).value(), -7);
  const PackedSequences packed(shape, lengths.data(), memory.data());
  EXPECT(packed.num_steps() == 4 && packed.num_rows() == 8);
  const std::vector<int64_t> rows = {0, 3, 3, 1, 1, 0, 0};
  for (int64_t step = -1; step <= 5; ++step) EXPECT(packed.RowsAt(step) == rows[step + 1], step);
  EXPECT(packed.FirstRow(0) == 0 && packed.FirstRow(1) == 3 && packed.FirstRow(2) == 6);
  EXPECT(packed.FirstRow(3) == 7 && packed.FirstRow(4) == 8);
  const std::vector<int64_t> order(packed.order(), packed.order() + 4);
  EXPECT((order == std::vector<int64_t>{2, 0, 3, 1}));
  const std::vector<int64_t> positions(packed.positions(), packed.positions() + 20);
  EXPECT((positions == std::vector<int64_t>{2, 0,  3, 6,  4,  7,  10, 14, 1,  5,
                                            8, 11, 9, 12, 15, 13, 18, 16, 19, 17}));
}

// One step or one sequence has the same rows whichever axis is major.
TEST(BuffersInTheOrderOfTheEngineAreNotCopied) {
  const auto is_identity = [](int64_t outer, int64_t batch_size, bool time_major) {
    return RowMap{outer, batch_size, time_major, nullptr, 1}.IsIdentity();
  };
  EXPECT(is_identity(2, 3, true));
  EXPECT(is_identity(1, 3, false) && is_identity(3, 1, false));
  EXPECT(!is_identity(2, 2, false));
  const int64_t permutation[] = {0, 1};
  EXPECT(!(RowMap{1, 2, true, permutation, 2}).IsIdentity());
}

TEST(PackingFullLengthsPermutesNothing) {
  const SequenceShape shape = {3, 5};
  const std::vector<int32_t> lengths(5, 3);
  std::vector<int64_t> memory(PackedSequences::NumElements(shape).value());
  const PackedSequences implicit(shape), given(shape, lengths.data(), memory.data());
  EXPECT(implicit.positions() == nullptr && implicit.order() == nullptr);
  EXPECT(implicit.num_rows() == given.num_rows() && implicit.num_steps() == given.num_steps());
  for (int64_t step = -1; step <= 3; ++step) {
    EXPECT(implicit.RowsAt(step) == given.RowsAt(step), step);
    if (step >= 0) EXPECT(implicit.FirstRow(step) == given.FirstRow(step), step);
  }
  for (int64_t i = 0; i < 15; ++i) EXPECT(given.positions()[i] == i);
  for (int64_t b = 0; b < 5; ++b) EXPECT(given.order()[b] == b);
}

TEST(WrongLengthsAreRefused) {
  const std::vector<int32_t> above = {0, 3, 4, 2}, negative = {-1, 3};
  EXPECT_ERROR(CheckSequenceLengths(above, {3, 4}), "sequence_lengths[2] is 4", "3");
  EXPECT_ERROR(CheckSequenceLengths(negative, {3, 2}), "sequence_lengths[0] is -1");
  EXPECT_ERROR(CheckSequenceLengths(above, {4, 3}), "has 4 elements", "the 3 sequences");
  EXPECT(CheckSequenceLengths({}, {3, 2}).ok());
  EXPECT(CheckSequenceLengths(above, {4, 4}).ok());
  std::unique_ptr<RnnPlan> plan;
  EXPECT(CreateCpuPlan(RnnConfig(), {3, 4}, "", &plan).ok());
  SerialRunner runner;
  CallOptions options;
  options.sequence_lengths = above;
  EXPECT_ERROR(plan->Forward(ForwardBuffers(), options, {&runner}), "sequence_lengths[2]");
  EXPECT_ERROR(plan->Backward(BackwardBuffers(), options, {&runner}), "sequence_lengths[2]");
}

TEST(LengthsAreCopiedBeforeTheyAreChecked) {
  std::vector<int32_t> source = {0, 3, 2}, copy = {7};
  EXPECT(CopySequenceLengths(source.data(), {3, 3}, &copy).ok() && copy == source);
  source[1] = 1 << 30;
  EXPECT(copy[1] == 3);
  EXPECT_ERROR(CopySequenceLengths(source.data(), {3, 3}, &copy), "sequence_lengths[1]");
  EXPECT(CopySequenceLengths(nullptr, {3, 3}, &copy).ok() && copy.empty());
}

// Refused even if no value differs: with these states and parameters, all outputs are 0.
void ExpectLengths(const std::vector<int32_t>& forward,
                   const std::vector<std::vector<int32_t>>& accepted,
                   const std::vector<std::vector<int32_t>>& refused) {
  SerialRunner runner;
  const Problem problem = {RnnConfig(), {2, 3}, forward};
  Tensors tensors = MakeTensors(problem);
  for (Vector Tensors::*values : {&Tensors::input_h, &Tensors::input_c, &Tensors::params}) {
    std::fill((tensors.*values).begin(), (tensors.*values).end(), 0.0);
  }
  std::unique_ptr<RnnPlan> plan;
  EXPECT(CreateCpuPlan(problem.config, problem.shape, "", &plan).ok(), problem.Text());
  PlanBuffers buffers(tensors, DataType::kFloat, plan->ReserveSpaceBytes());
  CallOptions options = problem.Options(/*is_training=*/true);
  EXPECT(CallForward(*plan, options, {&runner}, &buffers).ok(), problem.Text());
  for (const std::vector<int32_t>& lengths : accepted) {
    options.sequence_lengths = lengths;
    EXPECT(CallBackward(*plan, options, {&runner}, &buffers).ok(), problem.Text());
  }
  for (const std::vector<int32_t>& lengths : refused) {
    options.sequence_lengths = lengths;
    EXPECT_ERROR(CallBackward(*plan, options, {&runner}, &buffers), "reserve_space",
                 "other sequence_lengths");
  }
}

TEST(ReserveSpacesOfOtherLengthsAreRefused) {
  ExpectLengths({1, 2, 0}, {{1, 2, 0}}, {{2, 1, 0}, {}, {2, 2, 2}});
  ExpectLengths({}, {{}, {2, 2, 2}}, {{2, 2, 1}});
}

// NaN in the padding of inputs reaches no result, and the padding of results is exactly 0.
TEST(PaddingIsNeverReadAndBecomesZero) {
  SerialRunner runner;
  for (DataType data_type : {DataType::kFloat, DataType::kBfloat16}) {
    int64_t index = 0;
    for (Problem problem : Problems()) {
      problem.config.data_type = data_type;
      problem.config.dropout = 0.3f;
      for (const std::vector<int32_t>& lengths : AllLengths(problem.shape)) {
        problem.lengths = lengths;
        problem.shape.time_major = index % 2 == 0;
        if (!testing::IsInSample(index++)) continue;
        Tensors with_nan = MakeTensors(problem), with_numbers = with_nan;
        FillPadding(problem, problem.config.input_size, 5, &with_numbers.input);
        FillPadding(problem, problem.output_width(), 5, &with_numbers.output_backprop);
        RunCpuPlan(problem, &runner, true, &with_nan);
        RunCpuPlan(problem, &runner, true, &with_numbers);
        ExpectSameBits(with_nan, with_numbers, problem.Text());
        for (const Result& result : Results()) {
          for (double value : with_nan.*result.values) {
            EXPECT(std::isfinite(value), result.name, " ", problem.Text());
          }
        }
        Tensors zeros = with_nan;
        FillPadding(problem, problem.output_width(), 0, &zeros.output);
        FillPadding(problem, problem.config.input_size, 0, &zeros.input_backprop);
        ExpectSameBits(with_nan, zeros, problem.Text());
      }
    }
  }
}

TEST(FullLengthsAreAsNone) {
  SerialRunner runner;
  for (Problem problem : Problems()) {
    for (bool time_major : {true, false}) {
      problem.shape.time_major = time_major;
      problem.lengths.clear();
      Tensors none = MakeTensors(problem), full = none;
      RunCpuPlan(problem, &runner, true, &none);
      problem.lengths.assign(static_cast<size_t>(problem.shape.batch_size),
                             static_cast<int32_t>(problem.shape.num_steps));
      RunCpuPlan(problem, &runner, true, &full);
      ExpectSameBits(full, none, problem.Text());
    }
  }
}

// Copies the rows of the sequences of `to` from a buffer of steps (or states) of `from`, in which
// they are sequences `first` and following.
Vector CopySequences(const Problem& from, int64_t first, const Problem& to, bool is_state,
                     const Vector& values) {
  const int64_t from_rows = is_state ? from.pseudo_layers() * from.shape.batch_size : from.rows();
  const int64_t width = from_rows == 0 ? 0 : static_cast<int64_t>(values.size()) / from_rows;
  const int64_t outer = is_state ? to.pseudo_layers() : to.shape.num_steps;
  Vector result(static_cast<size_t>(outer * to.shape.batch_size * width));
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t b = 0; b < to.shape.batch_size; ++b) {
      const int64_t source = is_state ? from.StateRow(i, first + b) : from.StepRow(i, first + b);
      const int64_t target = is_state ? to.StateRow(i, b) : to.StepRow(i, b);
      std::copy_n(values.begin() + source * width, width, result.begin() + target * width);
    }
  }
  return result;
}

Tensors CopySequences(const Problem& from, int64_t first, const Problem& to,
                      const Tensors& tensors) {
  Tensors result = tensors;  // params and their gradient stay unchanged
  for (Vector Tensors::*values :
       {&Tensors::input, &Tensors::output, &Tensors::output_backprop, &Tensors::input_backprop}) {
    result.*values = CopySequences(from, first, to, /*is_state=*/false, tensors.*values);
  }
  for (Vector Tensors::*values :
       {&Tensors::input_h, &Tensors::input_c, &Tensors::output_h, &Tensors::output_c,
        &Tensors::output_h_backprop, &Tensors::output_c_backprop, &Tensors::input_h_backprop,
        &Tensors::input_c_backprop}) {
    result.*values = CopySequences(from, first, to, /*is_state=*/true, tensors.*values);
  }
  return result;
}

TEST(TheMajorAxisDoesNotChangeABit) {
  SerialRunner runner;
  int64_t index = 0;
  for (Problem problem : Problems()) {
    problem.config.data_type = index % 2 == 0 ? DataType::kFloat : DataType::kHalf;
    problem.config.dropout = 0.3f;
    problem.lengths = AllLengths(problem.shape)[index++ % 4];
    Problem batch_major = problem;
    batch_major.shape.time_major = false;
    Tensors expected = MakeTensors(problem);
    Tensors found = CopySequences(problem, 0, batch_major, expected);
    RunCpuPlan(problem, &runner, true, &expected);
    RunCpuPlan(batch_major, &runner, true, &found);
    ExpectSameBits(found, CopySequences(problem, 0, batch_major, expected), batch_major.Text());
  }
}

// A sequence's results are bit-identical alone and without padding. Skips sequences of one step:
// alone, they take the path of a decode loop, which adds in a different order.
TEST(SequencesDoNotInfluenceOneAnother) {
  SerialRunner runner;
  for (Problem problem : Problems()) {
    problem.lengths = AllLengths(problem.shape)[3];
    Tensors together = MakeTensors(problem);
    RunCpuPlan(problem, &runner, true, &together);
    for (int64_t b = 0; b < problem.shape.batch_size; b += 4) {
      if (problem.Length(b) == 1 && problem.shape.num_steps > 1) continue;
      const Problem alone = {problem.config, {problem.Length(b), 1}, {}};
      const Tensors expected = CopySequences(problem, b, alone, together);
      Tensors found = expected;
      RunCpuPlan(alone, &runner, true, &found);
      found.params_backprop = expected.params_backprop;  // a sum over all sequences
      ExpectSameBits(found, expected, Concatenate("sequence ", b, " of ", problem.Text()));
    }
  }
}

// Kernels that count their multiply-adds.
int64_t multiply_adds = 0;
const Kernels<float>* real_kernels = nullptr;

void CountingProduct(const ProductTile<float>& tile) {
  multiply_adds += tile.rows * tile.columns * tile.factors.depth;
  real_kernels->product(tile);
}

void CountingLstm(const ForwardTile<float>& tile) {
  multiply_adds += tile.rows * tile.units * 4 * tile.recurrent.depth;
  real_kernels->lstm.forward(tile);
}

// The cost depends on the sum of lengths, not on padding: each step of each sequence takes one
// multiply-add per weight in the forward pass and two in the backward pass.
TEST(PaddingCostsNoArithmetic) {
  EXPECT(ChooseKernels<float>("portable", FactorFormat::kExact, &real_kernels).ok());
  Kernels<float> kernels = *real_kernels;
  kernels.product = CountingProduct;
  kernels.lstm.forward = CountingLstm;
  Problem problem;
  problem.config.num_units = 24;
  problem.config.input_size = 7;
  problem.config.num_layers = 2;
  problem.config.direction = Direction::kBidirectional;
  problem.shape = {40, 32};
  const int64_t num_weights = problem.params() - 4 * 2 * 4 * problem.config.num_units;
  std::vector<int32_t> few(32, 1);
  few[5] = 40;
  few[6] = 0;
  for (const std::vector<int32_t>& lengths : {few, std::vector<int32_t>(32, 40)}) {
    problem.lengths = lengths;
    const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t(0));
    std::unique_ptr<RnnPlan> plan;
    EXPECT(CreateCpuPlan(problem.config, problem.shape, kernels, &plan).ok(), problem.Text());
    PlanBuffers buffers(MakeTensors(problem), DataType::kFloat, plan->ReserveSpaceBytes());
    const CallOptions options = problem.Options(/*is_training=*/true);
    SerialRunner runner;
    multiply_adds = 0;
    EXPECT(CallForward(*plan, options, {&runner}, &buffers).ok(), problem.Text());
    EXPECT(multiply_adds == sum * num_weights, multiply_adds, " for ", sum, " steps of ",
           problem.Text());
    multiply_adds = 0;
    EXPECT(CallBackward(*plan, options, {&runner}, &buffers).ok(), problem.Text());
    EXPECT(multiply_adds == 2 * sum * num_weights, multiply_adds, " backward for ", sum,
           " steps of ", problem.Text());
  }
}

}  // namespace
}  // namespace cudnn_rnn
