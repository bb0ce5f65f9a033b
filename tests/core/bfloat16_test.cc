// Compares plans with bfloat16 products, forward and backward, with plans in double whose products
// round their factors in the same way; and passes with each other.

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/schedule.h"
#include "tests/core/plan_runner.h"
#include "tests/core/problem_cases.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

const Kernels<double>* exact_kernels = nullptr;

double RoundedFactor(double value) {
  return Bfloat16ToFloat(FloatToBfloat16(static_cast<float>(value)));
}

// Returns the rounded elements [rows, depth] of a matrix, row by row.
Vector RoundedRows(const double* matrix, int64_t rows, int64_t depth, int64_t row_stride,
                   int64_t depth_stride = 1) {
  Vector rounded;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t k = 0; k < depth; ++k) {
      rounded.push_back(RoundedFactor(matrix[m * row_stride + k * depth_stride]));
    }
  }
  return rounded;
}

// Returns `factors` with the left factors rounded, in `memory`.
Factors<double> RoundedFactors(const Factors<double>& factors, int64_t rows, Vector* memory) {
  *memory =
      RoundedRows(factors.a, rows, factors.depth, factors.a_row_stride, factors.a_depth_stride);
  Factors<double> rounded = factors;
  rounded.a = memory->data();
  rounded.a_row_stride = factors.depth;
  rounded.a_depth_stride = 1;
  return rounded;
}

void RoundingProduct(const ProductTile<double>& tile) {
  Vector memory;
  ProductTile<double> rounded = tile;
  rounded.factors = RoundedFactors(tile.factors, tile.rows, &memory);
  exact_kernels->product(rounded);
}

// Rounds both factors, as the plan in double does not pack the weights of a decode step.
void RoundingDotProducts(const RowMajorProduct<double>& product) {
  const Vector left = RoundedRows(product.a, product.rows, product.depth, product.a_row_stride),
               right = RoundedRows(product.b, product.columns, product.depth, product.b_row_stride);
  RowMajorProduct<double> rounded = product;
  rounded.a = left.data();
  rounded.a_row_stride = product.depth;
  rounded.b = right.data();
  rounded.b_row_stride = product.depth;
  exact_kernels->dot_products(rounded);
}

void RoundingPack(const StridedMatrix<double>& source, int64_t depth, int64_t columns,
                  double* packed) {
  exact_kernels->pack_panel(source, depth, columns, packed);
  for (int64_t i = 0; i < PanelSize(*exact_kernels, depth); ++i) {
    packed[i] = RoundedFactor(packed[i]);
  }
}

template <CellKernels<double> Kernels<double>::*Cell>
void RoundingCell(const ForwardTile<double>& tile) {
  Vector memory;
  ForwardTile<double> rounded = tile;
  rounded.recurrent = RoundedFactors(tile.recurrent, tile.rows, &memory);
  (exact_kernels->*Cell).forward(rounded);
}

Kernels<double> RoundingKernels() {
  EXPECT(ChooseKernels<double>("portable", FactorFormat::kExact, &exact_kernels).ok());
  Kernels<double> kernels = *exact_kernels;
  kernels.product = RoundingProduct;
  kernels.pack_panel = RoundingPack;
  kernels.dot_products = RoundingDotProducts;
  kernels.lstm.forward = RoundingCell<&Kernels<double>::lstm>;
  kernels.gru.forward = RoundingCell<&Kernels<double>::gru>;
  kernels.relu.forward = RoundingCell<&Kernels<double>::relu>;
  kernels.tanh.forward = RoundingCell<&Kernels<double>::tanh>;
  return kernels;
}

template <typename T>
void RunWithKernels(Problem problem, const Kernels<T>& kernels, Tensors* tensors) {
  problem.config.data_type = sizeof(T) == sizeof(float) ? DataType::kFloat : DataType::kDouble;
  std::unique_ptr<RnnPlan> plan;
  EXPECT(CreateCpuPlan(problem.config, problem.shape, kernels, &plan).ok(), problem.Text());
  SerialRunner runner;
  RunPlan(*plan, problem, {&runner}, /*is_training=*/true, tensors);
}

// Nearly all results differ only by float's error. However, if that error moves a factor across the
// midpoint of two bfloat16 numbers, the factor is off by one unit in bfloat16's last place.
void CompareWithRoundedFactors(const Kernels<float>& kernels,
                               const Kernels<double>& rounding_kernels) {
  int64_t index = 0, num_results = 0, num_close = 0;
  for (Problem problem : Problems()) {
    problem.config.data_type = DataType::kBfloat16;
    problem.config.dropout = problem.config.num_layers > 1 ? 0.4f : 0.0f;
    Tensors found = MakeTensors(problem);
    Tensors expected = found;
    problem.lengths = AllLengths(problem.shape)[index++ % 5];
    RunWithKernels(problem, kernels, &found);
    RunWithKernels(problem, rounding_kernels, &expected);
    for (const Result& result : Results()) {
      const double difference = LargestDifference(found.*result.values, expected.*result.values);
      EXPECT(difference < 1e-2, difference, " in ", result.name, " of ", problem.Text(), ", ",
             kernels.instruction_set);
      ++num_results;
      num_close += difference < 1e-5;
    }
  }
  EXPECT(num_close > num_results * 9 / 10, num_close, " of ", num_results, ", ",
         kernels.instruction_set);
}

TEST(ProductsOfBfloat16RoundTheirFactors) {
  const Kernels<double> rounding_kernels = RoundingKernels();
  for (const Kernels<float>* kernels : AllKernels<float>()) {
    if (kernels->rounds() && kernels->planes == 1) {
      CompareWithRoundedFactors(*kernels, rounding_kernels);
    }
  }
}

// With AMX, x of layers with many gates is rounded once, of all steps or of a block of steps.
TEST(LayersWithManyGatesRoundTheirFactors) {
  const Kernels<double> rounding_kernels = RoundingKernels();
  // The second problem has 33 MiB of gates, which inference computes in blocks.
  for (const SequenceShape& shape : {SequenceShape{9, 3}, SequenceShape{800, 7}}) {
    const bool has_blocks = shape.num_steps == 800;
    Problem problem;
    problem.config = {RnnMode::kLstm,
                      InputMode::kLinear,
                      has_blocks ? Direction::kUnidirectional : Direction::kBidirectional,
                      DataType::kFloat,
                      /*num_layers=*/has_blocks ? 1 : 2,
                      /*num_units=*/385,
                      /*input_size=*/5,
                      /*num_proj=*/4};
    problem.shape = shape;
    problem.lengths = AllLengths(shape)[2];
    const Tensors given = MakeTensors(problem);
    Tensors expected = given;
    if (!has_blocks) RunWithKernels(problem, rounding_kernels, &expected);
    for (const Kernels<float>* kernels : AllKernels<float>()) {
      if (kernels->row_multiple == 1) continue;
      const Schedule schedule = MakeSchedule(problem.config, shape, *kernels);
      EXPECT((schedule.steps_per_block.value < shape.num_steps) == has_blocks);
      std::unique_ptr<RnnPlan> plan;
      EXPECT(CreateCpuPlan(problem.config, shape, *kernels, &plan).ok(), problem.Text());
      Tensors training = given, inference = given;
      SerialRunner serial;
      RunPlan(*plan, problem, {&serial}, /*is_training=*/true, &training);
      ThreadRunner runner(3, /*min_cycles_to_wait=*/0);
      RunPlan(*plan, problem, {&runner}, /*is_training=*/false, &inference);
      EXPECT(SameBits(inference.output, training.output), problem.Text());
      if (has_blocks || kernels->planes > 1) continue;
      const double difference = LargestDifference(training.output, expected.output);
      EXPECT(difference < 1e-2, difference, " in ", problem.Text());
    }
  }
}

// With AMX, inference computes the input products in each step, training those of all steps before.
TEST(InputProductsInStepsHaveTheSameBits) {
  constexpr Direction kOne = Direction::kUnidirectional, kBoth = Direction::kBidirectional;
  struct Case {
    RnnMode mode;
    Direction direction;
    int64_t num_units, input_size, num_proj, num_steps, batch_size;
    size_t lengths;
  };
  // Tiles of more than 64 rows are computed in parts.
  const Case cases[] = {
      {RnnMode::kLstm, kOne, 32, 20, 0, 7, 150, 0}, {RnnMode::kLstm, kBoth, 48, 70, 0, 5, 9, 3},
      {RnnMode::kLstm, kOne, 64, 33, 17, 4, 70, 3}, {RnnMode::kGru, kBoth, 32, 1, 0, 5, 70, 2},
      {RnnMode::kGru, kOne, 16, 40, 0, 1, 8, 0},    {RnnMode::kTanh, kOne, 75, 7, 0, 6, 33, 3},
      {RnnMode::kRelu, kBoth, 37, 20, 0, 3, 65, 0},
  };
  for (const Kernels<float>* kernels : AllKernels<float>()) {
    if (kernels->row_multiple == 1 || kernels->planes > 1) continue;
    for (const Case& test : cases) {
      Problem problem;
      problem.config = {test.mode, InputMode::kLinear, test.direction,  DataType::kFloat,
                        2,         test.num_units,     test.input_size, test.num_proj};
      problem.shape = {test.num_steps, test.batch_size};
      problem.lengths = AllLengths(problem.shape)[test.lengths];
      const Decision<bool> in_steps =
          MakeSchedule(problem.config, problem.shape, *kernels).products_in_steps;
      EXPECT(in_steps.value, problem.Text(), in_steps.reason);
      std::unique_ptr<RnnPlan> plan;
      EXPECT(CreateCpuPlan(problem.config, problem.shape, *kernels, &plan).ok(), problem.Text());
      const Tensors given = MakeTensors(problem);
      Tensors expected = given;
      SerialRunner serial;
      RunPlan(*plan, problem, {&serial}, /*is_training=*/true, &expected);
      for (const int num_threads : {1, 2, 5}) {
        ThreadRunner runner(num_threads, /*min_cycles_to_wait=*/0);
        Tensors found = given;
        RunPlan(*plan, problem, {&runner}, /*is_training=*/false, &found);
        for (Vector Tensors::*values : {&Tensors::output, &Tensors::output_h, &Tensors::output_c}) {
          EXPECT(SameBits(found.*values, expected.*values), problem.Text(), ", ", num_threads,
                 " threads");
        }
      }
    }
  }
}

}  // namespace
}  // namespace cudnn_rnn
