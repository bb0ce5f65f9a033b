// The specification of a forward pass in C++: what every plan must compute, whatever it packs,
// divides among threads or rounds.
//
// The code follows the formulas and nothing else: one sequence at a time, at its own length, layer
// by layer and step by step, in double. If a plan disagrees, this file is right. Change the formula
// of a cell here first, in `specification::Step`; plan_test.cc then fails until the plan follows.
// With the plans it shares only the model (rnn_config.h), the places of the parameters
// (param_layout.h) and the rounding to bfloat16 (float16.h), which have tests of their own. The
// gradients need no specification: gradients_test.cc compares them with finite differences.
//
// tests/helpers/reference.py specifies the same for the Python tests, and is compared with PyTorch.
#ifndef CUDNN_RNN_TESTS_CORE_RNN_SPECIFICATION_H_
#define CUDNN_RNN_TESTS_CORE_RNN_SPECIFICATION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "tests/core/problem.h"

namespace cudnn_rnn {

namespace specification {

inline double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

// Returns matrix [rows, columns] times vector [columns]; may round both to bfloat16.
inline Vector Multiply(const double* matrix, int64_t rows, Vector vector, bool rounds_factors) {
  const auto factor = [=](double value) {
    if (!rounds_factors) return value;
    return static_cast<double>(Bfloat16ToFloat(FloatToBfloat16(static_cast<float>(value))));
  };
  Vector product(static_cast<size_t>(rows), 0.0);
  for (double& value : vector) value = factor(value);
  for (double& sum : product) {
    for (double value : vector) sum += factor(*matrix++) * value;
  }
  return product;
}

// Computes one step of one sequence. x has the layer's input width; h [P] and c [H] are updated.
inline void Step(const RnnConfig& config, const ParamLayout& layout, int64_t layer,
                 int64_t direction, const double* params, const Vector& x, bool rounds_factors,
                 Vector* h, Vector* c) {
  const int64_t units = config.num_units, rows = config.num_gates() * units;
  Vector from_input;
  if (layout.InputWeightColumns(layer) > 0) {
    from_input = Multiply(params + layout.InputWeights(layer, direction), rows, x, rounds_factors);
  } else {
    for (int64_t j = 0; j < rows; ++j) from_input.push_back(x[j % units]);
  }
  Vector from_state =
      Multiply(params + layout.RecurrentWeights(layer, direction), rows, *h, rounds_factors);
  for (int64_t j = 0; j < rows; ++j) {
    from_input[j] += params[layout.InputBiases(layer, direction) + j];
    from_state[j] += params[layout.RecurrentBiases(layer, direction) + j];
  }
  const auto gate = [&](int64_t g, int64_t j) {
    return from_input[g * units + j] + from_state[g * units + j];
  };
  Vector new_h(static_cast<size_t>(units));
  for (int64_t j = 0; j < units; ++j) {
    switch (config.mode) {
      case RnnMode::kLstm:
        (*c)[j] = Logistic(gate(1, j)) * (*c)[j] + Logistic(gate(0, j)) * std::tanh(gate(2, j));
        new_h[j] = Logistic(gate(3, j)) * std::tanh((*c)[j]);
        break;
      case RnnMode::kGru: {
        const double r = Logistic(gate(0, j)), u = Logistic(gate(1, j));
        const double n = std::tanh(from_input[2 * units + j] + r * from_state[2 * units + j]);
        new_h[j] = (1 - u) * n + u * (*h)[j];
        break;
      }
      case RnnMode::kTanh:
        new_h[j] = std::tanh(gate(0, j));
        break;
      case RnnMode::kRelu:
        new_h[j] = std::max(0.0, gate(0, j));
        break;
    }
  }
  if (config.has_projection()) {
    new_h = Multiply(params + layout.ProjectionWeights(layer, direction), config.num_proj, new_h,
                     rounds_factors);
  }
  *h = new_h;
}

inline Vector Row(const Vector& buffer, int64_t row, int64_t width) {
  return Vector(buffer.begin() + row * width, buffer.begin() + (row + 1) * width);
}

inline void SetRow(const Vector& values, int64_t row, Vector* buffer) {
  std::copy(values.begin(), values.end(),
            buffer->begin() + row * static_cast<int64_t>(values.size()));
}

}  // namespace specification

// Computes output, output_h and output_c. With dropout, masks[layer] is the factor of a layer's
// input [T, B, LayerInputSize], time-major whatever the problem's major axis; the first layer's
// mask is not read. Without dropout, `masks` is empty. `rounds_factors` rounds the weights of
// products, and the vectors that they are multiplied with, to bfloat16.
inline void SpecifiedForward(const Problem& problem, const std::vector<Vector>& masks,
                             bool rounds_factors, Tensors* tensors) {
  const RnnConfig& config = problem.config;
  ParamLayout layout;
  if (!ParamLayout::Create(config, &layout).ok()) return;
  const int64_t directions = config.num_directions();
  const int64_t hidden_width = config.output_size();
  tensors->output.assign(problem.outputs(), 0.0);
  tensors->output_h.assign(problem.hidden_states(), 0.0);
  tensors->output_c.assign(problem.cell_states(), 0.0);
  for (int64_t b = 0; b < problem.shape.batch_size; ++b) {
    const int64_t length = problem.Length(b);
    std::vector<Vector> sequence;
    for (int64_t time = 0; time < length; ++time) {
      sequence.push_back(
          specification::Row(tensors->input, problem.StepRow(time, b), config.input_size));
    }
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      for (int64_t time = 0; time < length && layer > 0 && !masks.empty(); ++time) {
        const int64_t width = config.LayerInputSize(layer);
        const Vector mask =
            specification::Row(masks[layer], time * problem.shape.batch_size + b, width);
        for (int64_t j = 0; j < width; ++j) sequence[time][j] *= mask[j];
      }
      std::vector<Vector> outputs(sequence.size());
      for (int64_t direction = 0; direction < directions; ++direction) {
        const int64_t state = problem.StateRow(layer * directions + direction, b);
        Vector h = specification::Row(tensors->input_h, state, hidden_width), c;
        if (config.has_cell_state())
          c = specification::Row(tensors->input_c, state, config.num_units);
        std::vector<Vector> of_direction(sequence.size());
        for (int64_t step = 0; step < length; ++step) {
          const int64_t time = direction == 0 ? step : length - 1 - step;
          specification::Step(config, layout, layer, direction, tensors->params.data(),
                              sequence[time], rounds_factors, &h, &c);
          of_direction[time] = h;
        }
        for (int64_t time = 0; time < length; ++time) {
          outputs[time].insert(outputs[time].end(), of_direction[time].begin(),
                               of_direction[time].end());
        }
        specification::SetRow(h, state, &tensors->output_h);
        specification::SetRow(c, state, &tensors->output_c);
      }
      sequence = outputs;
    }
    for (int64_t time = 0; time < length; ++time) {
      specification::SetRow(sequence[time], problem.StepRow(time, b), &tensors->output);
    }
  }
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_RNN_SPECIFICATION_H_
