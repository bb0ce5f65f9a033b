// A model with its data, and the buffers of a plan's calls, for measuring and testing plans without
// TensorFlow.
#ifndef CUDNN_RNN_TESTS_CORE_PROBLEM_H_
#define CUDNN_RNN_TESTS_CORE_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "tests/core/buffers.h"
#include "tests/core/problem_text.h"

namespace cudnn_rnn {

constexpr double kNoResult = 99.0;  // in buffers of results; no computation yields it

using Vector = std::vector<double>;

// A model and the shape of its data.
struct Problem {
  RnnConfig config;
  SequenceShape shape;
  std::vector<int32_t> lengths;  // [B]; empty: no lengths given, all full

  int64_t Length(int64_t b) const {
    return lengths.empty() ? shape.num_steps : lengths[static_cast<size_t>(b)];
  }
  int64_t pseudo_layers() const { return config.num_layers * config.num_directions(); }
  int64_t output_width() const { return config.num_directions() * config.output_size(); }
  int64_t rows() const { return shape.num_steps * shape.batch_size; }
  // Numbers of elements of the buffers; cell_states() is 0 without a cell state.
  int64_t inputs() const { return rows() * config.input_size; }
  int64_t outputs() const { return rows() * output_width(); }
  int64_t hidden_states() const {
    return pseudo_layers() * shape.batch_size * config.output_size();
  }
  int64_t cell_states() const {
    return config.has_cell_state() ? pseudo_layers() * shape.batch_size * config.num_units : 0;
  }
  int64_t params() const {
    ParamLayout layout;
    return ParamLayout::Create(config, &layout).ok() ? layout.size() : 0;
  }
  // Indices of rows in the buffers of steps and of states.
  int64_t StepRow(int64_t time, int64_t b) const {
    return shape.time_major ? time * shape.batch_size + b : b * shape.num_steps + time;
  }
  int64_t StateRow(int64_t pseudo_layer, int64_t b) const {
    return shape.time_major ? pseudo_layer * shape.batch_size + b
                            : b * pseudo_layers() + pseudo_layer;
  }

  CallOptions Options(bool is_training) const {
    CallOptions options;
    options.is_training = is_training;
    options.sequence_lengths = lengths;
    return options;
  }
  std::string Text() const { return ProblemText(config, shape, lengths); }
};

// The buffers of a problem, in the shapes of rnn_plan.h, as double for every data type.
struct Tensors {
  Vector input, input_h, input_c, params;
  Vector output, output_h, output_c;
  Vector output_backprop, output_h_backprop, output_c_backprop;
  Vector input_backprop, input_h_backprop, input_c_backprop, params_backprop;
};

// Sets the padding in a buffer of steps, whose rows have `width` elements.
inline void FillPadding(const Problem& problem, int64_t width, double value, Vector* buffer) {
  for (int64_t b = 0; b < problem.shape.batch_size; ++b) {
    for (int64_t time = problem.Length(b); time < problem.shape.num_steps; ++time) {
      std::fill_n(buffer->begin() + problem.StepRow(time, b) * width, width, value);
    }
  }
}

// Returns random inputs and random output gradients, the weights of a weighted sum of the three
// outputs, rounded to the data type. Padding is NaN.
inline Tensors MakeTensors(const Problem& problem, double params_scale = 0.5) {
  std::mt19937 generator(17);
  const auto random = [&](int64_t size, double scale) {
    std::uniform_real_distribution<double> uniform(-scale, scale);
    Vector values(static_cast<size_t>(size));
    for (double& value : values) value = uniform(generator);
    return Buffer(values, problem.config.data_type).Values();
  };
  Tensors tensors;
  tensors.input = random(problem.inputs(), 1);
  tensors.input_h = random(problem.hidden_states(), 1);
  tensors.input_c = random(problem.cell_states(), 1);
  tensors.params = random(problem.params(), params_scale);
  tensors.output_backprop = random(problem.outputs(), 1);
  tensors.output_h_backprop = random(problem.hidden_states(), 1);
  tensors.output_c_backprop = random(problem.cell_states(), 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  FillPadding(problem, problem.config.input_size, nan, &tensors.input);
  FillPadding(problem, problem.output_width(), nan, &tensors.output_backprop);
  return tensors;
}

// All buffers of a forward call and of the backward calls that follow it, except workspaces.
class PlanBuffers {
 public:
  // Holds inputs and output gradients as in `tensors`. An inference call has no reserve space.
  PlanBuffers(const Tensors& tensors, DataType data_type, int64_t reserve_space_bytes)
      : data_type_(data_type), reserve_space_(reserve_space_bytes) {
    backward.input = forward.input = Add(tensors.input);
    backward.input_h = forward.input_h = Add(tensors.input_h);
    backward.input_c = forward.input_c = Add(tensors.input_c);
    backward.params = forward.params = Add(tensors.params);
    backward.output = forward.output = AddResult(tensors.output_backprop, &Tensors::output);
    backward.output_h = forward.output_h = AddResult(tensors.input_h, &Tensors::output_h);
    forward.output_c = AddResult(tensors.input_c, &Tensors::output_c);
    backward.output_backprop = Add(tensors.output_backprop);
    backward.output_h_backprop = Add(tensors.output_h_backprop);
    backward.output_c_backprop = Add(tensors.output_c_backprop);
    backward.input_backprop = AddResult(tensors.input, &Tensors::input_backprop);
    backward.input_h_backprop = AddResult(tensors.input_h, &Tensors::input_h_backprop);
    backward.input_c_backprop = AddResult(tensors.input_c, &Tensors::input_c_backprop);
    backward.params_backprop = AddResult(tensors.params, &Tensors::params_backprop);
    if (reserve_space_bytes == 0) return;
    backward.reserve_space = forward.reserve_space = reserve_space_.data();
    backward.reserve_space_bytes = reserve_space_bytes;
  }

  // Copies the results to `tensors`; those of calls that have not run are meaningless.
  void ReadResults(Tensors* tensors) const {
    for (const auto& result : results_) tensors->*result.first = result.second->Values();
  }
  // Undoes a backward call.
  void ClearGradients() {
    constexpr size_t kForwardResults = 3;
    for (size_t i = kForwardResults; i < results_.size(); ++i) results_[i].second->Fill(kNoResult);
  }

  ForwardBuffers forward;
  BackwardBuffers backward;

 private:
  void* Add(const Vector& values) {
    buffers_.emplace_back(new Buffer(values, data_type_));
    return buffers_.back()->data();
  }
  // Adds a buffer as large as `like`.
  void* AddResult(const Vector& like, Vector Tensors::*result) {
    void* const data = Add(Vector(like.size(), kNoResult));
    results_.emplace_back(result, buffers_.back().get());
    return data;
  }

  const DataType data_type_;
  Memory reserve_space_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::pair<Vector Tensors::*, Buffer*>> results_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CORE_PROBLEM_H_
