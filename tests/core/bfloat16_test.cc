// Compares the engine with bfloat16 products, forward and backward, with an engine in double whose
// products round their factors in the same way.

#include <algorithm>
#include <cmath>
#include <vector>

#include "cudnn_rnn/cc/cpu/engine.h"
#include "cudnn_rnn/cc/cpu/float16.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "tests/core/naive_rnn.h"
#include "tests/core/plan_runner.h"
#include "tests/core/problems.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

const Kernels<double>* exact_kernels = nullptr;

double RoundedFactor(double value) {
  return Bfloat16ToFloat(FloatToBfloat16(static_cast<float>(value)));
}

// Returns `factors` with the left factors rounded, in `memory`.
Factors<double> RoundedFactors(const Factors<double>& factors, int64_t rows, Vector* memory) {
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t k = 0; k < factors.depth; ++k) {
      memory->push_back(
          RoundedFactor(factors.a[m * factors.a_row_stride + k * factors.a_depth_stride]));
    }
  }
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
  EXPECT(ChooseKernels<double>("portable", DataType::kDouble, &exact_kernels).ok());
  Kernels<double> kernels = *exact_kernels;
  kernels.product = RoundingProduct;
  kernels.pack_panel = RoundingPack;
  kernels.lstm.forward = RoundingCell<&Kernels<double>::lstm>;
  kernels.gru.forward = RoundingCell<&Kernels<double>::gru>;
  kernels.relu.forward = RoundingCell<&Kernels<double>::relu>;
  kernels.tanh.forward = RoundingCell<&Kernels<double>::tanh>;
  return kernels;
}

// Runs an engine forward and backward, taking the problem's rows as packed ones.
template <typename T>
void RunEngine(const Problem& problem, const Kernels<T>& kernels, Tensors* tensors) {
  ParamLayout layout;
  EXPECT(ParamLayout::Create(problem.config, &layout).ok());
  const Engine<T> engine(problem.config, layout, problem.shape, kernels);
  std::vector<int64_t> memory(PackedSequences::NumElements(problem.shape).value());
  const PackedSequences sequences =
      problem.lengths.empty()
          ? PackedSequences(problem.shape)
          : PackedSequences(problem.shape, problem.lengths.data(), memory.data());
  const auto copy = [](const Vector& values) {
    return std::vector<T>(values.begin(), values.end());
  };
  const auto room = [](int64_t size) { return std::vector<T>(static_cast<size_t>(size)); };
  const std::vector<T> input = copy(tensors->input), input_h = copy(tensors->input_h),
                       input_c = copy(tensors->input_c), params = copy(tensors->params),
                       output_backprop = copy(tensors->output_backprop),
                       output_h_backprop = copy(tensors->output_h_backprop),
                       output_c_backprop = copy(tensors->output_c_backprop);
  std::vector<T> output = room(problem.outputs()), output_h = room(problem.hidden_states()),
                 output_c = room(problem.cell_states()), input_backprop = room(problem.inputs()),
                 input_h_backprop = room(problem.hidden_states()),
                 input_c_backprop = room(problem.cell_states()),
                 params_backprop = room(problem.params());
  Memory reserve_space(engine.ReserveSpaceBytes().value());
  Memory forward_workspace(engine.ForwardWorkspaceBytes(/*is_training=*/true).value());
  Memory backward_workspace(engine.BackwardWorkspaceBytes(/*keeps_reserve_space=*/true).value());
  TeamMember alone;
  engine.Forward({input.data(), input_h.data(), input_c.data(), params.data(), output.data(),
                  output_h.data(), output_c.data(), reserve_space.data(), forward_workspace.data()},
                 sequences, /*is_training=*/true, /*dropout_call_index=*/0, &alone);
  engine.Backward({input.data(), input_h.data(), input_c.data(), params.data(), output.data(),
                   output_backprop.data(), output_h_backprop.data(), output_c_backprop.data(),
                   reserve_space.data(), /*keeps_reserve_space=*/true, input_backprop.data(),
                   input_h_backprop.data(), input_c_backprop.data(), params_backprop.data(),
                   backward_workspace.data()},
                  sequences, /*dropout_call_index=*/0, &alone);
  const auto give = [](const std::vector<T>& values, Vector* target) {
    target->assign(values.begin(), values.end());
  };
  give(output, &tensors->output);
  give(output_h, &tensors->output_h);
  give(output_c, &tensors->output_c);
  give(input_backprop, &tensors->input_backprop);
  give(input_h_backprop, &tensors->input_h_backprop);
  give(input_c_backprop, &tensors->input_c_backprop);
  give(params_backprop, &tensors->params_backprop);
}

double LargestDifference(const Vector& found, const Vector& expected) {
  double difference = 0, largest = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT(std::isfinite(found[i]));
    difference = std::max(difference, std::abs(found[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return difference / largest;
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
    RunEngine(problem, kernels, &found);
    RunEngine(problem, rounding_kernels, &expected);
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
    if (MultipliesBfloat16(kernels->instruction_set)) {
      CompareWithRoundedFactors(*kernels, rounding_kernels);
    }
  }
}

}  // namespace
}  // namespace cudnn_rnn
