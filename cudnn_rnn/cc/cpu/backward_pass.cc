#include "cudnn_rnn/cc/cpu/backward_pass.h"

#include <algorithm>
#include <vector>

#include "cudnn_rnn/cc/cpu/backward_layer.h"
#include "cudnn_rnn/cc/cpu/dropout.h"
#include "cudnn_rnn/cc/cpu/gemm.h"
#include "cudnn_rnn/cc/cpu/parameter_gradients.h"
#include "cudnn_rnn/cc/cpu/steps.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {
namespace {

// Maximum rows per product; its result stays in the L1 cache for the cell's arithmetic.
constexpr int64_t kProductRows = 32;
constexpr int64_t kProductColumns = kMaxTileVectors * kMaxLanes;

// Computes target += product.
template <typename T>
void AddProduct(const BackwardTile<T>& cell, T* target, int64_t row_stride) {
  for (int64_t m = 0; m < cell.rows; ++m) {
    const T* product = cell.product + m * cell.product_row_stride;
    for (int64_t j = 0; j < cell.units; ++j) target[m * row_stride + j] += product[j];
  }
}

// Stores the gradient of h in `target`, adding in the order of the cells' kernels, and sets
// h_gradient to 0.
template <typename T>
void SumGradients(const BackwardTile<T>& cell, T* target, int64_t row_stride) {
  for (int64_t m = 0; m < cell.rows; ++m) {
    const T* output_gradient = cell.output_gradient + m * cell.output_gradient_row_stride;
    const T* product = cell.product + m * cell.product_row_stride;
    T* h_gradient = cell.h_gradient + m * cell.h_gradient_row_stride;
    for (int64_t j = 0; j < cell.units; ++j) {
      target[m * row_stride + j] = output_gradient[j] + product[j] + h_gradient[j];
      h_gradient[j] = T(0);
    }
  }
}

template <typename T>
class BackwardPass {
 public:
  BackwardPass(const EngineModel<T>& model, const BackwardTensors<T>& tensors,
               const PackedSequences& sequences, int64_t dropout_call_index, TeamMember* member)
      : model_(model),
        tensors_(tensors),
        sequences_(sequences),
        dropout_call_index_(dropout_call_index),
        member_(member),
        pass_(tensors.keeps_reserve_space ? Pass::kBackward : Pass::kBackwardInPlace),
        schedule_(model.ScheduleOf(pass_, sequences, *member)) {}

  void Run() {
    // The steps turn these in place from the final states' gradients to the initial states'.
    member_->Single([&] {
      model_.CopyStates(tensors_.output_h_backprop, tensors_.output_c_backprop,
                        tensors_.input_h_backprop, tensors_.input_c_backprop);
    });
    if (sequences_.num_rows() == 0) {
      member_->Single([&] { std::fill_n(tensors_.params_backprop, model_.layout.size(), T(0)); });
      return;
    }
    Arena arena(tensors_.workspace);
    const BackwardWorkspace<T> workspace(model_, pass_, &arena);
    const std::vector<Layer> layers = MakeLayers(workspace);
    if (schedule_.division.value == Division::kLayers) {
      RunWavefront(layers, workspace);
    } else {
      for (const Layer& layer : layers) RunLayer(layer, workspace);
    }
  }

 private:
  using Layer = BackwardLayer<T>;

  // Returns the layers in the order of the pass: from the last to the first.
  std::vector<Layer> MakeLayers(const BackwardWorkspace<T>& workspace) const {
    const RnnConfig& config = model_.config;
    std::vector<Layer> layers(static_cast<size_t>(config.num_layers));
    const T* output_gradient = tensors_.output_backprop;
    for (int64_t l = config.num_layers - 1; l >= 0; --l) {
      const int64_t position = config.num_layers - 1 - l;
      const int64_t place = l % model_.schedule.concurrent_layers.value;
      Layer& layer = layers[static_cast<size_t>(position)];
      layer.index = l;
      layer.reserve = ReserveSpaceOf(model_, l, tensors_.reserve_space);
      layer.input_weight_panels = workspace.input_weight_panels[place];
      // In place is safe: a tile reads all values of its rows before it writes their gradients.
      const bool in_place = schedule_.gates.value == Storage::kReserveSpace;
      for (int64_t d = 0; d < model_.directions; ++d) {
        const int64_t part = place * model_.directions + d;
        layer.recurrent_panels[d] = workspace.recurrent_panels[part];
        layer.projection_panels[d] = workspace.projection_panels[part];
        layer.projected_gradients[d] = workspace.projected_gradients[part];
        for (int64_t i = 0; i < 2; ++i) {
          layer.rounded_gate_gradients[d][i] = workspace.rounded_gate_gradients[2 * part + i];
        }
        layer.rounded_projected_gradients[d] = workspace.rounded_projected_gradients[part];
        layer.gate_gradients[d] =
            in_place ? layer.reserve.gates[d] : workspace.gate_gradients[part];
        layer.candidate_gradients[d] =
            in_place ? layer.reserve.candidate_products[d] : workspace.candidate_gradients[part];
      }
      layer.input =
          l == 0 ? tensors_.input : ReserveSpaceOf(model_, l - 1, tensors_.reserve_space).output;
      layer.output = layer.reserve.output == nullptr ? tensors_.output : layer.reserve.output;
      layer.output_gradient = output_gradient;
      layer.input_gradient =
          l == 0 ? tensors_.input_backprop : workspace.output_gradients[position % 2];
      layer.drops_input = l > 0 && workspace.dropped != nullptr;
      layer.dropout = {config.dropout, config.seed, config.seed2, dropout_call_index_, l};
      output_gradient = layer.input_gradient;
    }
    return layers;
  }

  void RunLayer(const Layer& layer, const BackwardWorkspace<T>& workspace) {
    const StepRange steps = {0, sequences_.num_steps()};
    PackStepWeights(layer);
    RunLayerSteps(layer, steps, member_);
    ComputeParameterGradients(model_, tensors_, sequences_, layer, workspace, member_);
    for (int64_t d = 0; d < model_.directions; ++d) {
      PackInputWeights(layer, d);
      ComputeInputGradient(layer, d, steps, member_);
    }
    DropInputGradient(layer, steps, member_);
  }

  // Goes from the last block to the first; the parameters' gradients follow.
  void RunWavefront(const std::vector<Layer>& layers, const BackwardWorkspace<T>& workspace) {
    for (const Layer& layer : layers) {
      PackStepWeights(layer);
      PackInputWeights(layer, /*direction=*/0);
    }
    const int64_t num_steps = sequences_.num_steps(), num_blocks = schedule_.num_blocks;
    const auto advance = [&](int64_t position, int64_t block, TeamMember* worker) {
      const Layer& layer = layers[static_cast<size_t>(position)];
      const StepRange steps = BlockOfSteps(num_steps, num_blocks - 1 - block, num_blocks);
      RunLayerSteps(layer, steps, worker);
      ComputeInputGradient(layer, /*direction=*/0, steps, worker);
      DropInputGradient(layer, steps, worker);
    };
    ForWavefronts(model_.config.num_layers, num_blocks, model_.BlockCost(num_steps, num_blocks),
                  advance, member_);
    for (const Layer& layer : layers) {
      ComputeParameterGradients(model_, tensors_, sequences_, layer, workspace, member_);
    }
  }

  int64_t FirstRow(int64_t step) const { return sequences_.FirstRow(step); }

  void PackStepWeights(const Layer& layer) {
    model_.PackStepWeights(layer.index, /*for_gradients=*/true, tensors_.params,
                           layer.recurrent_panels, layer.projection_panels, member_);
    if (!model_.kernels.rounds()) return;
    const auto clear = [&](int64_t begin, int64_t end) {
      for (int64_t d = 0; d < model_.directions; ++d) {
        for (const RoundedMatrix& half : layer.rounded_gate_gradients[d]) {
          half.ClearRows(begin, end);
        }
        layer.rounded_projected_gradients[d].ClearRows(begin, end);
      }
    };
    member_->ForEach(model_.shape.batch_size, model_.gate_width + 1, clear);
  }

  // Backward, each sequence has one more step after its first one: a step without a cell, which
  // propagates the gradient to the initial states. It is step -1 if the sequence starts at step 0.
  void RunLayerSteps(const Layer& layer, const StepRange& steps, TeamMember* member) const {
    const Kernels<T>& kernels = model_.kernels;
    const auto run_step = [&](int64_t step, const StepPart& part, TeamMember* worker) {
      const StepPhase states = {model_.output_size, kernels.lanes, kernels.tile_vectors,
                                model_.gate_width,  step,
                                /*with_next=*/true};
      ForTiles(sequences_, states, part, worker,
               [&](const StepTile& tile) { RunTile(layer, tile); });
      if (!model_.config.has_projection()) return;
      const StepPhase projections = {model_.units,       kernels.lanes, kernels.tile_vectors,
                                     model_.output_size, step,
                                     /*with_next=*/false};
      ForTiles(sequences_, projections, part, worker,
               [&](const StepTile& tile) { RunProjectionTile(layer, tile); });
    };
    const StepRange extended = {steps.first == 0 ? -1 : steps.first, steps.end};
    RunSteps(extended, /*is_reversed=*/true, {0, model_.directions, 0, sequences_.RowsAt(0)},
             schedule_, model_.StepCost(model_.gate_width), run_step, member);
  }

  // The gradient of h is the sum of the output's gradient and of what the next step's gates
  // propagate. With a projection it is kept for RunProjectionTile.
  void RunTile(const Layer& layer, const StepTile& tile) const {
    alignas(64) T values[kProductRows * kProductColumns];
    const int64_t output_size = model_.output_size;
    const DirectionStep& step = *tile.step;
    const int64_t d = tile.direction;
    BackwardTile<T> cell = BackwardTile<T>();
    cell.units = tile.columns;
    cell.product = values;
    cell.product_row_stride = kProductColumns;
    cell.output_gradient_row_stride = model_.output_width;
    cell.h_gradient_row_stride = output_size;
    ProductTile<T> product = ProductTile<T>();
    product.columns = tile.columns;
    product.c = values;
    product.c_row_stride = kProductColumns;
    for (int64_t row = tile.first_row; row < tile.end_row; row += cell.rows) {
      cell.rows = std::min(
          kProductRows, RowsUpTo(row, tile.end_row, step.previous_rows, step.rows, step.next_rows));
      product.rows = cell.rows;
      if (row < step.rows) {
        cell.output_gradient = layer.output_gradient + (step.first + row) * model_.output_width +
                               d * output_size + tile.column;
        if (!model_.config.has_projection()) {
          PointCell(layer, tile, row, &cell);
          PrefetchCell(cell);
        }
      }
      if (row < step.next_rows) {
        MultiplyGateGradients(layer, tile, row, &product);
      } else {
        std::fill_n(values, cell.rows * kProductColumns, T(0));
      }
      const int64_t state = model_.FirstState(layer.index, d) + row;
      cell.h_gradient = tensors_.input_h_backprop + state * output_size + tile.column;
      if (row >= step.rows) {
        AddProduct(cell, cell.h_gradient, output_size);
        continue;
      }
      if (model_.config.has_projection()) {
        T* gradients = layer.projected_gradients[d] + (step.first + row) * output_size;
        SumGradients(cell, gradients + tile.column, output_size);
        model_.RoundPart({gradients + tile.column, output_size, 1}, cell.rows, cell.units,
                         layer.rounded_projected_gradients[d], row, tile.column);
      } else {
        RunCell(layer, tile, row, cell);
      }
    }
  }

  // Computes the cell's gradients from the gradient of the projected h.
  void RunProjectionTile(const Layer& layer, const StepTile& tile) const {
    alignas(64) T values[kProductRows * kProductColumns];
    // The unprojected h has no gradient other than through the projection.
    const T output_gradient[kProductColumns] = {};
    T h_gradient[kProductColumns] = {};
    BackwardTile<T> cell = BackwardTile<T>();
    cell.units = tile.columns;
    cell.product = values;
    cell.product_row_stride = kProductColumns;
    cell.output_gradient = output_gradient;
    cell.h_gradient = h_gradient;
    ProductTile<T> product = ProductTile<T>();
    product.columns = tile.columns;
    product.c = values;
    product.c_row_stride = kProductColumns;
    product.factors.depth = model_.output_size;
    product.factors.a_row_stride = model_.output_size;
    product.factors.a_depth_stride = 1;
    product.factors.b_panel_stride = PanelSize(model_.kernels, model_.output_size);
    product.factors.b =
        layer.projection_panels[tile.direction] + tile.panel * product.factors.b_panel_stride;
    for (int64_t row = tile.first_row; row < tile.end_row; row += cell.rows) {
      cell.rows = std::min(kProductRows, RowsUpTo(row, tile.end_row, tile.step->previous_rows));
      product.rows = cell.rows;
      PointCell(layer, tile, row, &cell);
      PrefetchCell(cell);
      product.factors.a =
          layer.projected_gradients[tile.direction] + (tile.step->first + row) * model_.output_size;
      product.factors.rounded_a = layer.rounded_projected_gradients[tile.direction].At(row, 0);
      model_.kernels.product(product);
      RunCell(layer, tile, row, cell);
    }
  }

  // Computes the gradients of a cell whose pointers PointCell has set, and rounds them.
  void RunCell(const Layer& layer, const StepTile& tile, int64_t row,
               const BackwardTile<T>& cell) const {
    model_.cell.backward(cell);
    if (!model_.kernels.rounds()) return;
    const int64_t d = tile.direction, units = model_.units;
    const RoundedMatrix& rounded = layer.rounded_gate_gradients[d][tile.step->index & 1];
    for (int64_t gate = 0; gate < model_.gates; ++gate) {
      StridedMatrix<T> gradients = layer.RecurrentGateGradients(model_, d, gate);
      gradients.data += (tile.step->first + row) * gradients.row_stride + tile.column;
      model_.RoundPart(gradients, cell.rows, cell.units, rounded, row, gate * units + tile.column);
    }
  }

  // Multiplies the gates' gradients of the next step by R, for a range of the tile's rows.
  void MultiplyGateGradients(const Layer& layer, const StepTile& tile, int64_t row,
                             ProductTile<T>* product) const {
    const Kernels<T>& kernels = model_.kernels;
    Factors<T>& factors = product->factors;
    factors.a_depth_stride = 1;
    factors.b_panel_stride = PanelSize(kernels, model_.gate_width);
    const T* panels = layer.recurrent_panels[tile.direction] + tile.panel * factors.b_panel_stride;
    const bool prefetches = row == tile.first_row && tile.prefetch_distance != 0;
    factors.rounded_a =
        layer.rounded_gate_gradients[tile.direction][(tile.step->index + 1) & 1].At(row, 0);
    // Rounded, the gradients of all gates are in one matrix.
    const int64_t gates = model_.gates, shared = kernels.rounds() ? gates : model_.shared_gates();
    for (int64_t first = 0, end = shared; first < gates; first = end, end = gates) {
      const StridedMatrix<T> gradients =
          layer.RecurrentGateGradients(model_, tile.direction, first);
      factors.a = gradients.data + (tile.step->next_first + row) * gradients.row_stride;
      factors.a_row_stride = gradients.row_stride;
      factors.b = panels + PanelSize(kernels, first * model_.units);
      factors.depth = (end - first) * model_.units;
      factors.next_b =
          prefetches ? factors.b + tile.prefetch_distance * factors.b_panel_stride : nullptr;
      product->accumulate = first > 0;
      kernels.product(*product);
    }
  }

  // Sets the pointers to the forward pass's results and to the gradients of gates and cell state.
  void PointCell(const Layer& layer, const StepTile& tile, int64_t row,
                 BackwardTile<T>* cell) const {
    const int64_t units = model_.units;
    const DirectionStep& step = *tile.step;
    const int64_t d = tile.direction;
    const int64_t gates = (step.first + row) * model_.gate_row_stride + tile.column;
    const int64_t unit = (step.first + row) * units + tile.column;
    cell->gate_stride = units;
    cell->gate_row_stride = model_.gate_row_stride;
    cell->unit_row_stride = units;
    cell->gate_gradients = layer.gate_gradients[d] + gates;
    if (model_.gates == 1) {
      cell->h = layer.output + (step.first + row) * model_.output_width + d * units + tile.column;
      cell->h_row_stride = model_.output_width;
      return;
    }
    cell->gates = layer.reserve.gates[d] + gates;
    if (model_.config.mode == RnnMode::kGru) {
      const StridedMatrix<T> previous =
          model_.PreviousOutput(tensors_.input_h, layer.output, layer.index, tile, row);
      cell->previous_h = previous.data + tile.column;
      cell->previous_h_row_stride = previous.row_stride;
      cell->candidate_product = layer.reserve.candidate_products[d] + unit;
      cell->candidate_gradient = layer.candidate_gradients[d] + unit;
    } else {
      const int64_t state = (model_.FirstState(layer.index, d) + row) * units + tile.column;
      const int64_t previous_unit = (step.previous_first + row) * units + tile.column;
      const T* cells = layer.reserve.cell_states[d];
      cell->c = cells + unit;
      cell->previous_c =
          row >= step.previous_rows ? tensors_.input_c + state : cells + previous_unit;
      cell->c_gradient = tensors_.input_c_backprop + state;
    }
  }

  // Prefetches what the cell reads and writes after the product, into the L2 cache. Inlined,
  // because GCC 12 removes calls of functions that only prefetch.
  __attribute__((always_inline)) void PrefetchCell(const BackwardTile<T>& cell) const {
    for (int64_t row = 0; row < cell.rows; ++row) {
      PrefetchRow(cell.output_gradient + row * cell.output_gradient_row_stride, cell.units);
      for (int64_t gate = 0; gate < model_.gates; ++gate) {
        const int64_t offset = row * cell.gate_row_stride + gate * cell.gate_stride;
        if (cell.gates != nullptr) PrefetchRow(cell.gates + offset, cell.units);
        PrefetchRow(cell.gate_gradients + offset, cell.units);
      }
      for (const T* states : {cell.c, cell.previous_c, cell.candidate_product}) {
        if (states != nullptr) PrefetchRow(states + row * cell.unit_row_stride, cell.units);
      }
    }
  }

  // A row of a tile may straddle two cache lines.
  __attribute__((always_inline)) static void PrefetchRow(const T* row, int64_t units) {
    __builtin_prefetch(row, /*rw=*/0, /*locality=*/2);
    __builtin_prefetch(row + units - 1, /*rw=*/0, /*locality=*/2);
  }

  void PackInputWeights(const Layer& layer, int64_t direction) {
    const int64_t columns = model_.layout.InputWeightColumns(layer.index);
    if (columns == 0) return;
    model_.PackWeights(tensors_.params, model_.layout.InputWeights(layer.index, direction), columns,
                       1, model_.gate_width, columns, layer.input_weight_panels, member_);
  }

  // Computes dx [N, I] = sum over directions of dgates W.
  void ComputeInputGradient(const Layer& layer, int64_t direction, const StepRange& steps,
                            TeamMember* member) const {
    const int64_t columns = model_.layout.InputWeightColumns(layer.index);
    if (columns == 0) {
      AddSkippedInputGradient(layer, direction, steps, member);
      return;
    }
    const int64_t first_row = FirstRow(steps.first);
    MatrixProduct<T> product;
    product.rows = FirstRow(steps.end) - first_row;
    product.columns = columns;
    product.depth = model_.gate_width;
    product.a = {layer.gate_gradients[direction] + first_row * model_.gate_row_stride,
                 model_.gate_row_stride, 1};
    product.b = layer.input_weight_panels;
    product.c = layer.input_gradient + first_row * columns;
    product.c_row_stride = columns;
    product.accumulate = direction > 0;
    Multiply(model_.kernels, product, member);
  }

  // Without W (skip input), x is added to the pre-activation of every gate.
  void AddSkippedInputGradient(const Layer& layer, int64_t direction, const StepRange& steps,
                               TeamMember* member) const {
    const int64_t units = model_.units, first_row = FirstRow(steps.first);
    const auto add = [&](int64_t begin, int64_t end) {
      for (int64_t row = first_row + begin; row < first_row + end; ++row) {
        T* target = layer.input_gradient + row * units;
        if (direction == 0) std::fill_n(target, units, T(0));
        for (int64_t g = 0; g < model_.gates; ++g) {
          const T* source =
              layer.gate_gradients[direction] + row * model_.gate_row_stride + g * units;
          for (int64_t j = 0; j < units; ++j) target[j] += source[j];
        }
      }
    };
    member->ForEach(FirstRow(steps.end) - first_row, model_.gate_width + 1, add);
  }

  void DropInputGradient(const Layer& layer, const StepRange& steps, TeamMember* member) const {
    if (!layer.drops_input) return;
    ApplyDropoutToRows(layer.dropout, sequences_.positions(), FirstRow(steps.first),
                       FirstRow(steps.end), model_.output_width, layer.input_gradient,
                       layer.input_gradient, member);
  }

  const EngineModel<T>& model_;
  const BackwardTensors<T>& tensors_;
  const PackedSequences& sequences_;
  const int64_t dropout_call_index_;
  TeamMember* const member_;
  const Pass pass_;
  const PassSchedule schedule_;
};

}  // namespace

template <typename T>
void RunBackward(const EngineModel<T>& model, const BackwardTensors<T>& tensors,
                 const PackedSequences& sequences, int64_t dropout_call_index, TeamMember* member) {
  BackwardPass<T>(model, tensors, sequences, dropout_call_index, member).Run();
}

template void RunBackward(const EngineModel<float>&, const BackwardTensors<float>&,
                          const PackedSequences&, int64_t, TeamMember*);
template void RunBackward(const EngineModel<double>&, const BackwardTensors<double>&,
                          const PackedSequences&, int64_t, TeamMember*);

}  // namespace cudnn_rnn
