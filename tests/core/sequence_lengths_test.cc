// Tests packing of sequences of different lengths, and that neither padding nor neighbors matter.

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "tests/core/engine_runner.h"
#include "tests/core/naive_rnn.h"
#include "tests/core/plan_runner.h"
#include "tests/core/problems.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

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

// A small training forward call that keeps its reserve space.
class Trained {
 public:
  explicit Trained(const std::vector<int32_t>& lengths) : lengths_(lengths) {
    EXPECT(CreateCpuPlan(RnnConfig(), {2, 3}, "", &plan_).ok());
    reserve_space_.reset(new Memory(plan_->ReserveSpaceBytes()));
    CallOptions options = Options(lengths_);
    options.is_training = true;
    Memory workspace(plan_->ForwardWorkspaceBytes(options));
    ForwardBuffers buffers;
    buffers.input = buffers.input_h = buffers.input_c = buffers.params = values_;
    buffers.output = output_;
    buffers.output_h = output_h_;
    buffers.output_c = output_c_;
    buffers.reserve_space = reserve_space_->data();
    buffers.workspace = workspace.data();
    EXPECT(plan_->Forward(buffers, options, {&runner_}).ok());
  }

  Status Backward(const std::vector<int32_t>& lengths) {
    const CallOptions options = Options(lengths);
    Memory workspace(plan_->BackwardWorkspaceBytes(options));
    BackwardBuffers buffers;
    buffers.input = buffers.input_h = buffers.input_c = buffers.params = values_;
    buffers.output = output_;
    buffers.output_h = output_h_;
    buffers.output_backprop = buffers.output_h_backprop = buffers.output_c_backprop = values_;
    buffers.reserve_space = reserve_space_->data();
    buffers.reserve_space_bytes = plan_->ReserveSpaceBytes();
    buffers.input_backprop = gradients_[0];
    buffers.input_h_backprop = gradients_[1];
    buffers.input_c_backprop = gradients_[2];
    buffers.params_backprop = gradients_[3];
    buffers.workspace = workspace.data();
    return plan_->Backward(buffers, options, {&runner_});
  }

 private:
  static CallOptions Options(const std::vector<int32_t>& lengths) {
    CallOptions options;
    options.sequence_lengths = lengths;
    return options;
  }

  const std::vector<int32_t> lengths_;
  SerialRunner runner_;
  std::unique_ptr<RnnPlan> plan_;
  std::unique_ptr<Memory> reserve_space_;
  const float values_[16] = {};
  float output_[6], output_h_[3], output_c_[3], gradients_[4][16];
};

// Refused even if no value differs: here all outputs are the same for all lengths.
TEST(ReserveSpacesOfOtherLengthsAreRefused) {
  Trained mixed({1, 2, 0});
  EXPECT(mixed.Backward({1, 2, 0}).ok());
  EXPECT_ERROR(mixed.Backward({2, 1, 0}), "reserve_space", "other sequence_lengths");
  EXPECT_ERROR(mixed.Backward({}), "other sequence_lengths");
  EXPECT_ERROR(mixed.Backward({2, 2, 2}), "other sequence_lengths");
  Trained full({});
  EXPECT(full.Backward({}).ok());
  EXPECT(full.Backward({2, 2, 2}).ok());
  EXPECT_ERROR(full.Backward({2, 2, 1}), "other sequence_lengths");
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
        problem.shape.time_major = index++ % 2 == 0;
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

// Moves the rows of a buffer of steps (or states) from one problem's major axis to the other's.
Vector Transposed(const Problem& from, const Problem& to, bool is_state, const Vector& values) {
  const int64_t outer = is_state ? from.pseudo_layers() : from.shape.num_steps;
  const int64_t rows = outer * from.shape.batch_size;
  const int64_t width = rows == 0 ? 0 : static_cast<int64_t>(values.size()) / rows;
  Vector result(values.size());
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t b = 0; b < from.shape.batch_size; ++b) {
      const int64_t source = is_state ? from.StateRow(i, b) : from.StepRow(i, b);
      const int64_t target = is_state ? to.StateRow(i, b) : to.StepRow(i, b);
      std::copy_n(values.begin() + source * width, width, result.begin() + target * width);
    }
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
    const auto transpose = [&](const Tensors& tensors) {
      Tensors result = tensors;  // params and their gradient stay unchanged
      for (Vector Tensors::*values : {&Tensors::input, &Tensors::output, &Tensors::output_backprop,
                                      &Tensors::input_backprop}) {
        result.*values = Transposed(problem, batch_major, false, tensors.*values);
      }
      for (Vector Tensors::*values :
           {&Tensors::input_h, &Tensors::input_c, &Tensors::output_h, &Tensors::output_c,
            &Tensors::output_h_backprop, &Tensors::output_c_backprop, &Tensors::input_h_backprop,
            &Tensors::input_c_backprop}) {
        result.*values = Transposed(problem, batch_major, true, tensors.*values);
      }
      return result;
    };
    Tensors expected = MakeTensors(problem);
    Tensors found = transpose(expected);
    RunCpuPlan(problem, &runner, true, &expected);
    RunCpuPlan(batch_major, &runner, true, &found);
    ExpectSameBits(found, transpose(expected), batch_major.Text());
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
      Problem alone = problem;
      alone.lengths.clear();
      alone.shape = {problem.Length(b), 1};
      const auto pick = [&](const Tensors& tensors) {
        Tensors result = tensors;
        for (Vector Tensors::*values : {&Tensors::input, &Tensors::output,
                                        &Tensors::output_backprop, &Tensors::input_backprop}) {
          const Vector& all = tensors.*values;
          const int64_t width = static_cast<int64_t>(all.size()) / problem.rows();
          (result.*values).clear();
          for (int64_t time = 0; time < problem.Length(b); ++time) {
            const auto row = all.begin() + problem.StepRow(time, b) * width;
            (result.*values).insert((result.*values).end(), row, row + width);
          }
        }
        for (Vector Tensors::*values :
             {&Tensors::input_h, &Tensors::input_c, &Tensors::output_h, &Tensors::output_c,
              &Tensors::output_h_backprop, &Tensors::output_c_backprop, &Tensors::input_h_backprop,
              &Tensors::input_c_backprop}) {
          const Vector& all = tensors.*values;
          const int64_t rows = problem.pseudo_layers() * problem.shape.batch_size;
          const int64_t width = static_cast<int64_t>(all.size()) / rows;
          (result.*values).clear();
          for (int64_t pseudo_layer = 0; pseudo_layer < problem.pseudo_layers(); ++pseudo_layer) {
            const auto row = all.begin() + problem.StateRow(pseudo_layer, b) * width;
            (result.*values).insert((result.*values).end(), row, row + width);
          }
        }
        return result;
      };
      const Tensors expected = pick(together);
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
  EXPECT(ChooseKernels<float>("portable", DataType::kFloat, &real_kernels).ok());
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
    Tensors tensors = MakeTensors(problem);
    const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t(0));
    const auto check_forward = [&] {
      EXPECT(multiply_adds == sum * num_weights, multiply_adds, " for ", sum, " steps");
      multiply_adds = 0;
    };
    multiply_adds = 0;
    RunEngine(problem, kernels, check_forward, &tensors);
    EXPECT(multiply_adds == 2 * sum * num_weights, multiply_adds, " backward for ", sum);
  }
}

}  // namespace
}  // namespace cudnn_rnn
