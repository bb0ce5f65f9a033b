#include "cudnn_rnn/cc/cpu/decode_step.h"

#include <algorithm>

#include "cudnn_rnn/cc/cpu/gemm.h"

namespace cudnn_rnn {
namespace {

// With at least this many whole tiles per member, members divide the units into whole tiles,
// otherwise into single vectors.
constexpr int64_t kTilesPerMember = 6;

template <typename T>
class DecodeStep {
 public:
  DecodeStep(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
             const PackedSequences& sequences, const ForwardLayer<T>& layer, bool keeps_steps)
      : model_(model),
        tensors_(tensors),
        rows_(sequences.num_rows()),
        layer_(layer),
        keeps_steps_(keeps_steps),
        input_size_(model.layout.InputWeightColumns(layer.index)) {}

  void Run(TeamMember* member) const {
    const int64_t lanes = model_.kernels.lanes, tile_columns = model_.kernels.tile_vectors * lanes;
    const int64_t depth = input_size_ + model_.output_size;
    if (HasPanels() && !tensors_.packed_weights_are_ready) PackWeights(member);
    if (HasPanels() || model_.schedule.recurrent_weights.value == Packing::kNone) {
      const bool has_many_tiles =
          HasPanels() && model_.units >= kTilesPerMember * member->team_size() * tile_columns;
      ForColumns(model_.units, has_many_tiles ? tile_columns : lanes, model_.gates * depth, member,
                 [&](int64_t direction, const Range& units) {
                   for (int64_t gate = 0; gate < model_.gates; ++gate) {
                     ComputeGates(direction, {gate * model_.units + units.first, units.count});
                   }
                   ComputeStates(direction, units);
                 });
    } else {
      // Whole tiles of adjacent columns, whatever their gates.
      ForColumns(
          model_.gate_width, tile_columns, depth, member,
          [&](int64_t direction, const Range& columns) { ComputeGates(direction, columns); });
      ForColumns(model_.units, lanes, /*depth=*/0, member,
                 [&](int64_t direction, const Range& units) { ComputeStates(direction, units); });
    }
    if (!model_.config.has_projection()) return;
    ForColumns(model_.output_size, lanes, model_.units, member,
               [&](int64_t direction, const Range& units) { ProjectStates(direction, units); });
  }

 private:
  struct Range {
    int64_t first;
    int64_t count;
  };

  // Calls compute(direction, range) for ranges that together cover the columns of all directions,
  // shared by the team in items of `item_columns`. `depth` is the number of multiply-adds per row
  // and column.
  template <typename Compute>
  void ForColumns(int64_t num_columns, int64_t item_columns, int64_t depth, TeamMember* member,
                  const Compute& compute) const {
    const int64_t num_items = (num_columns + item_columns - 1) / item_columns;  // of a direction
    const int64_t item_cost = StepCycles(model_.kernels.lanes, rows_, item_columns, depth);
    member->ForEach(num_items * model_.directions, item_cost, [&](int64_t begin, int64_t end) {
      for (int64_t d = begin / num_items; d * num_items < end; ++d) {
        const int64_t first = std::max(begin - d * num_items, int64_t{0}) * item_columns;
        const int64_t last = std::min((end - d * num_items) * item_columns, num_columns);
        compute(d, {first, last - first});
      }
    });
  }

  bool HasPanels() const { return layer_.panels.recurrent[0] != nullptr; }

  void PackWeights(TeamMember* member) const {
    for (int64_t d = 0; d < model_.directions && input_size_ > 0; ++d) {
      for (int64_t gate = 0; gate < model_.gates; ++gate) {
        const int64_t column = gate * model_.units;
        PackPanels<T, T>(model_.kernels, {InputWeights(d, column), 1, input_size_}, input_size_,
                         model_.units, PanelOf(layer_.panels.input_weights[d], input_size_, column),
                         member);
      }
    }
    model_.PackStepWeights(layer_.index, /*for_gradients=*/false, tensors_.params,
                           layer_.panels.recurrent, layer_.panels.projection, member);
  }

  // Returns the panel of W or R that begins at a column of [G * H], a multiple of the lanes within
  // its gate; null if `panels` is.
  T* PanelOf(T* panels, int64_t depth, int64_t column) const {
    if (panels == nullptr) return nullptr;
    const int64_t gate = column / model_.units, unit = column % model_.units;
    const int64_t index =
        gate * NumPanels(model_.kernels, model_.units) + unit / model_.kernels.lanes;
    return panels + index * PanelSize(model_.kernels, depth);
  }

  // Computes gates = W x + R h' + biases for a range of columns of [G * H]. GRU's R_n h' is stored
  // separately and its bias excluded: the cell adds it before the product with r.
  void ComputeGates(int64_t direction, const Range& columns) const {
    const int64_t shared = model_.shared_gates() * model_.units;
    const int64_t end = columns.first + columns.count;
    SumBiases(model_, tensors_, layer_, direction, columns.first, end);
    AddInput(direction, columns);
    T* const gates = layer_.gates[direction];
    if (columns.first < shared) {
      MultiplyPreviousOutput(direction, {columns.first, std::min(end, shared) - columns.first},
                             gates + columns.first, model_.gate_row_stride, /*accumulate=*/true);
    }
    if (end > shared) {
      const int64_t first = std::max(columns.first, shared);
      MultiplyPreviousOutput(direction, {first, end - first},
                             layer_.candidate_products[direction] + first - shared, model_.units,
                             /*accumulate=*/false);
    }
  }

  // Computes gates = W x + biases; without W (skip input), x + biases for every gate.
  void AddInput(int64_t direction, const Range& columns) const {
    const T* bias = layer_.bias[direction];
    T* const gates = layer_.gates[direction];
    if (input_size_ > 0) {
      Multiply({rows_, columns.count, input_size_, layer_.input, input_size_,
                InputWeights(direction, columns.first), input_size_, gates + columns.first,
                model_.gate_row_stride, /*accumulate=*/false, bias + columns.first,
                NextRecurrentWeights(direction, columns.first),
                PanelOf(layer_.panels.input_weights[direction], input_size_, columns.first)});
      return;
    }
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t j = columns.first; j < columns.first + columns.count; ++j) {
        gates[row * model_.gate_row_stride + j] =
            bias[j] + layer_.input[row * model_.units + j % model_.units];
      }
    }
  }

  // Computes target (+)= R h'. The next product is probably that of the next gate's units.
  void MultiplyPreviousOutput(int64_t direction, const Range& columns, T* target,
                              int64_t target_row_stride, bool accumulate) const {
    const int64_t depth = model_.output_size;
    const T* previous_h = tensors_.input_h + model_.FirstState(layer_.index, direction) * depth;
    Multiply({rows_, columns.count, depth, previous_h, depth,
              RecurrentWeights(direction, columns.first), depth, target, target_row_stride,
              accumulate, /*bias=*/nullptr, NextInputWeights(direction, columns),
              PanelOf(layer_.panels.recurrent[direction], depth, columns.first)});
  }

  // Return what the next product reads, to be prefetched.
  const T* NextRecurrentWeights(int64_t direction, int64_t column) const {
    return HasPanels() ? PanelOf(layer_.panels.recurrent[direction], model_.output_size, column)
                       : RecurrentWeights(direction, column);
  }
  // Of the next gate's units or, with panels, from the last gate to the next units of the first.
  const T* NextInputWeights(int64_t direction, const Range& columns) const {
    if (!HasPanels()) return InputWeights(direction, columns.first + model_.units);
    const int64_t next = columns.first + model_.units;
    const int64_t column =
        next < model_.gate_width ? next : columns.first % model_.units + columns.count;
    return PanelOf(layer_.panels.input_weights[direction], input_size_, column);
  }

  // Return the weights of a gate's unit, which is a column of the gates.
  const T* InputWeights(int64_t direction, int64_t column) const {
    return tensors_.params.weights + model_.layout.InputWeights(layer_.index, direction) +
           column * input_size_;
  }
  const T* RecurrentWeights(int64_t direction, int64_t column) const {
    return tensors_.params.weights + model_.layout.RecurrentWeights(layer_.index, direction) +
           column * model_.output_size;
  }

  // Dot products sum in a different order than the other kernels. They are used for single steps
  // only, and the choice does not depend on the lengths, so the results do not either.
  void Multiply(const RowMajorProduct<T>& product) const {
    if (model_.schedule.recurrent_weights.value == Packing::kNone) {
      model_.kernels.dot_products(product);
    } else {
      TeamMember alone;
      MultiplyPackingTiles(model_.kernels, product, &alone);
    }
  }

  // Computes h and c of a range of units from their gates.
  void ComputeStates(int64_t direction, const Range& units) const {
    const int64_t tile_units = model_.cell.forward_vectors * model_.kernels.lanes;
    DirectionStep step = DirectionStep();
    step.rows = rows_;
    for (int64_t i = 0; i < units.count; i += tile_units) {
      const int64_t count = std::min(tile_units, units.count - i);
      const StepTile tile = {&step, direction, 0, rows_, 0, units.first + i, count, 0};
      ForwardTile<T> cell = ForwardTile<T>();
      cell.rows = rows_;
      PointCell(model_, tensors_, layer_, tile, 0, keeps_steps_, &cell);
      model_.cell.forward(cell);
    }
  }

  // Computes h = W (o * tanh(c)) with the projection W [P, H], for a range of h.
  void ProjectStates(int64_t direction, const Range& units) const {
    const T* weights = tensors_.params.weights +
                       model_.layout.ProjectionWeights(layer_.index, direction) +
                       units.first * model_.units;
    RowMajorProduct<T> product = {rows_,
                                  units.count,
                                  model_.units,
                                  layer_.unprojected[direction],
                                  model_.units,
                                  weights,
                                  model_.units,
                                  layer_.output + direction * model_.output_size + units.first,
                                  model_.output_width};
    const T* panels = layer_.panels.projection[direction];
    if (panels != nullptr) {
      product.panels =
          panels + units.first / model_.kernels.lanes * PanelSize(model_.kernels, model_.units);
    }
    Multiply(product);
  }

  const EngineModel<T>& model_;
  const ForwardTensors<T>& tensors_;
  const int64_t rows_;  // sequences that have the step
  const ForwardLayer<T>& layer_;
  const bool keeps_steps_;
  const int64_t input_size_;  // 0 without W (skip input)
};

}  // namespace

template <typename T>
void RunDecodeStep(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
                   const PackedSequences& sequences, const ForwardLayer<T>& layer, bool keeps_steps,
                   TeamMember* member) {
  DecodeStep<T>(model, tensors, sequences, layer, keeps_steps).Run(member);
}

template void RunDecodeStep(const EngineModel<float>&, const ForwardTensors<float>&,
                            const PackedSequences&, const ForwardLayer<float>&, bool, TeamMember*);
template void RunDecodeStep(const EngineModel<double>&, const ForwardTensors<double>&,
                            const PackedSequences&, const ForwardLayer<double>&, bool, TeamMember*);

}  // namespace cudnn_rnn
