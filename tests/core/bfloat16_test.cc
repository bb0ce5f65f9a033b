// Compares plans with bfloat16 products, forward and backward, with plans in double whose products
// round their factors in the same way.

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
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

}  // namespace
}  // namespace cudnn_rnn
