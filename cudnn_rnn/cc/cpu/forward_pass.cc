#include "cudnn_rnn/cc/cpu/forward_pass.h"

#include <algorithm>
#include <vector>

#include "cudnn_rnn/cc/cpu/decode_step.h"
#include "cudnn_rnn/cc/cpu/forward_layer.h"
#include "cudnn_rnn/cc/cpu/gemm.h"
#include "cudnn_rnn/cc/cpu/steps.h"
#include "cudnn_rnn/cc/cpu/workspace.h"

namespace cudnn_rnn {
namespace {

template <typename T>
class ForwardPass {
 public:
  ForwardPass(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
              const PackedSequences& sequences, bool is_training, int64_t dropout_call_index,
              TeamMember* member)
      : model_(model),
        tensors_(tensors),
        sequences_(sequences),
        is_training_(is_training),
        pass_(is_training ? Pass::kTraining : Pass::kInference),
        dropout_call_index_(dropout_call_index),
        member_(member),
        schedule_(model.ScheduleOf(pass_, sequences, *member)),
        keeps_steps_(schedule_.gates.value == Storage::kReserveSpace),
        packs_step_weights_(model.schedule.recurrent_weights.value == Packing::kWhole),
        has_products_in_steps_(model.schedule.HasProductsInSteps(pass_)) {}

  void Run() {
    if (sequences_.num_rows() == 0) {  // No steps: the states pass through unchanged.
      member_->Single([&] {
        model_.CopyStates(tensors_.input_h, tensors_.input_c, tensors_.output_h, tensors_.output_c);
      });
      return;
    }
    const std::vector<Layer> layers = MakeLayers();
    if (schedule_.division.value == Division::kLayers) {
      RunWavefront(layers);
    } else {
      for (const Layer& layer : layers) RunLayer(layer);
    }
  }

 private:
  using Layer = ForwardLayer<T>;

  std::vector<Layer> MakeLayers() const {
    const RnnConfig& config = model_.config;
    Arena arena(tensors_.workspace);
    const ForwardWorkspace<T> workspace(model_, pass_, &arena);
    Arena packed_weights_arena(tensors_.packed_weights);
    const PackedWeights<T> packed_weights(model_, Pass::kInference, &packed_weights_arena);
    const bool packs_input_weights = model_.schedule.input_weights.value == Packing::kWhole;
    std::vector<Layer> layers(static_cast<size_t>(config.num_layers));
    const T* input = tensors_.input;
    for (int64_t l = 0; l < config.num_layers; ++l) {
      const bool is_last = l + 1 == config.num_layers;
      const ReserveSpace<T> reserve =
          is_training_ ? ReserveSpaceOf(model_, l, tensors_.reserve_space) : ReserveSpace<T>();
      const int64_t place = l % model_.schedule.concurrent_layers.value;
      Layer& layer = layers[static_cast<size_t>(l)];
      layer.index = l;
      layer.panels = packed_weights.layers[static_cast<size_t>(l)];
      layer.input = input;
      layer.output = is_last        ? tensors_.output
                     : is_training_ ? reserve.output
                                    : workspace.outputs[l % 2];
      layer.dropped = is_last ? nullptr : workspace.dropped;
      layer.dropout = {config.dropout, config.seed, config.seed2, dropout_call_index_, l + 1};
      for (int64_t d = 0; d < model_.directions; ++d) {
        const int64_t part = place * model_.directions + d;
        layer.bias[d] = workspace.bias[part];
        if (tensors_.packed_weights == nullptr) {
          layer.panels.input_weights[d] =
              packs_input_weights ? workspace.input_weight_panels[part] : nullptr;
          layer.panels.recurrent[d] = workspace.recurrent_panels[part];
          layer.panels.projection[d] = workspace.projection_panels[part];
        }
        layer.unprojected[d] = keeps_steps_ ? reserve.unprojected[d] : workspace.unprojected[part];
        for (int64_t i = 0; i < 2; ++i) {
          layer.rounded_outputs[d][i] = workspace.rounded_outputs[2 * part + i];
        }
        layer.rounded_unprojected[d] = workspace.rounded_unprojected[part];
        layer.rounded_input = workspace.rounded_input[0];
        layer.gates[d] = keeps_steps_ ? reserve.gates[d] : workspace.gates[d];
        layer.cell_states[d] = reserve.cell_states[d];
        layer.candidate_products[d] =
            keeps_steps_ ? reserve.candidate_products[d] : workspace.candidate_products[d];
      }
      input = layer.dropped != nullptr ? layer.dropped : layer.output;
    }
    return layers;
  }

  void RunLayer(const Layer& layer) {
    const StepRange steps = {0, sequences_.num_steps()};
    if (!packs_step_weights_) {
      RunDecodeStep(model_, tensors_, sequences_, layer, keeps_steps_, member_);
      FinishSteps(layer, steps, member_);
      return;
    }
    PrepareInputProducts(layer);
    PackStepWeights(layer);
    RoundInput(model_, sequences_.num_rows(), layer, member_);
    if (has_products_in_steps_) {
      RunLayerSteps(layer, steps, member_);
    } else {
      const int64_t steps_per_block = model_.StepsPerBlock(pass_);
      const int64_t num_blocks = (steps.end + steps_per_block - 1) / steps_per_block;
      Layer part = layer;
      for (int64_t block = 0; block < num_blocks; ++block) {
        const StepRange range = BlockOfSteps(steps.end, block, num_blocks);
        for (int64_t d = 0; d < 2; ++d) part.first_gate_row[d] = RowsOf(d, range).first;
        RunBlock(part, range, member_);
      }
    }
    FinishSteps(layer, steps, member_);
  }

  // Computes the input products of a block of steps right before these steps.
  void RunBlock(const Layer& layer, const StepRange& steps, TeamMember* member) const {
    for (int64_t d = 0; d < model_.directions; ++d) {
      ComputeInputProducts(layer, d, RowsOf(d, steps), member);
    }
    RunLayerSteps(layer, steps, member);
  }

  // Returns the packed rows of a direction's steps.
  RowRange RowsOf(int64_t direction, const StepRange& steps) const {
    const int64_t num_steps = sequences_.num_steps();
    return direction == 0
               ? RowRange{FirstRow(steps.first), FirstRow(steps.end)}
               : RowRange{FirstRow(num_steps - steps.end), FirstRow(num_steps - steps.first)};
  }

  // The layers share the workspace's buffers of N rows; each uses the rows of its own block.
  void RunWavefront(const std::vector<Layer>& layers) {
    for (const Layer& layer : layers) {
      PrepareInputProducts(layer);
      PackStepWeights(layer);
    }
    const int64_t num_steps = sequences_.num_steps(), num_blocks = schedule_.num_blocks;
    const auto advance = [&](int64_t position, int64_t block, TeamMember* worker) {
      const Layer& layer = layers[static_cast<size_t>(position)];
      const StepRange steps = BlockOfSteps(num_steps, block, num_blocks);
      RunBlock(layer, steps, worker);
      FinishSteps(layer, steps, worker);
    };
    ForWavefronts(model_.config.num_layers, num_blocks, model_.BlockCost(num_steps, num_blocks),
                  advance, member_);
  }

  int64_t FirstRow(int64_t step) const { return sequences_.FirstRow(step); }

  // Sums the biases and, if W is to be packed as a whole, packs it.
  void PrepareInputProducts(const Layer& layer) {
    const int64_t columns = model_.layout.InputWeightColumns(layer.index);
    for (int64_t d = 0; d < model_.directions; ++d) {
      member_->Single([&] { SumBiases(model_, tensors_, layer, d, 0, model_.gate_width); });
      T* const panels = layer.panels.input_weights[d];
      if (columns == 0 || panels == nullptr || tensors_.packed_weights_are_ready) continue;
      model_.PackWeights(tensors_.params, model_.layout.InputWeights(layer.index, d), 1, columns,
                         columns, model_.gate_width, panels, member_);
    }
  }

  // Computes gates [rows, G * H] = x [rows, I] * W^T + biases.
  void ComputeInputProducts(const Layer& layer, int64_t direction, const RowRange& rows,
                            TeamMember* member) const {
    const int64_t columns = model_.layout.InputWeightColumns(layer.index);
    if (columns == 0) {
      AddSkippedInput(layer, direction, rows, member);
      return;
    }
    const int64_t gate_width = model_.gate_width;
    const int64_t num_rows = rows.end - rows.first;
    const T* input = layer.input + rows.first * columns;
    T* gates = layer.gates[direction] +
               (rows.first - layer.first_gate_row[direction]) * model_.gate_row_stride;
    if (layer.panels.input_weights[direction] == nullptr) {
      const T* weights =
          tensors_.params.weights + model_.layout.InputWeights(layer.index, direction);
      MultiplyPackingTiles(model_.kernels,
                           {num_rows, gate_width, columns, input, columns, weights, columns, gates,
                            model_.gate_row_stride, /*accumulate=*/false, layer.bias[direction]},
                           member);
      return;
    }
    MatrixProduct<T> product;
    product.rounded_a = layer.rounded_input.At(rows.first, 0);
    product.rows = num_rows;
    product.columns = gate_width;
    product.depth = columns;
    product.a = {input, columns, 1};
    product.b = layer.panels.input_weights[direction];
    product.c = gates;
    product.c_row_stride = model_.gate_row_stride;
    product.bias = layer.bias[direction];
    Multiply(model_.kernels, product, member);
  }

  // Without W (skip input), adds x to the pre-activation of every gate.
  void AddSkippedInput(const Layer& layer, int64_t direction, const RowRange& rows,
                       TeamMember* member) const {
    const int64_t units = model_.units;
    const T* bias = layer.bias[direction];
    const auto add = [&](int64_t begin, int64_t end) {
      for (int64_t row = rows.first + begin; row < rows.first + end; ++row) {
        T* target = layer.gates[direction] +
                    (row - layer.first_gate_row[direction]) * model_.gate_row_stride;
        const T* x = layer.input + row * units;
        for (int64_t g = 0; g < model_.gates; ++g) {
          for (int64_t j = 0; j < units; ++j) {
            target[g * units + j] = bias[g * units + j] + x[j];
          }
        }
      }
    };
    member->ForEach(rows.end - rows.first, model_.gate_width / 2 + 1, add);
  }

  void PackStepWeights(const Layer& layer) {
    if (!tensors_.packed_weights_are_ready) {
      model_.PackStepWeights(layer.index, /*for_gradients=*/false, tensors_.params,
                             layer.panels.recurrent, layer.panels.projection, member_);
    }
    if (model_.kernels.rounds()) PrepareRoundedSteps(layer);
  }

  // The halves for even and for odd steps both begin with the initial states, which a sequence that
  // starts later, in the backward direction, still finds there.
  void PrepareRoundedSteps(const Layer& layer) {
    const Kernels<T>& kernels = model_.kernels;
    const int64_t width = model_.output_size;
    const auto prepare = [&](int64_t begin, int64_t end) {
      for (int64_t d = 0; d < model_.directions; ++d) {
        const T* states = tensors_.input_h + (model_.FirstState(layer.index, d) + begin) * width;
        for (const RoundedMatrix& half : layer.rounded_outputs[d]) {
          kernels.round_rows({states, width, 1}, end - begin, width, PaddedDepth(kernels, width),
                             half.At(begin, 0));
        }
        layer.rounded_unprojected[d].ClearRows(begin, end);
      }
    };
    member_->ForEach(model_.shape.batch_size, width * model_.directions + 1, prepare);
  }

  void RunLayerSteps(const Layer& layer, const StepRange& steps, TeamMember* member) const {
    const Kernels<T>& kernels = model_.kernels;
    const int64_t depth = model_.gates * model_.output_size;
    const auto run_step = [&](int64_t step, const StepPart& part, TeamMember* worker) {
      const StepPhase cells = {model_.units, kernels.lanes, model_.cell.forward_vectors,
                               depth,        step,          false};
      ForTiles(sequences_, cells, part, worker,
               [&](const StepTile& tile) { RunTile(layer, tile); });
      if (!model_.config.has_projection()) return;
      const StepPhase projections = {model_.output_size, kernels.lanes, kernels.tile_vectors,
                                     model_.units,       step,          false};
      ForTiles(sequences_, projections, part, worker,
               [&](const StepTile& tile) { RunProjectionTile(layer, tile); });
    };
    RunSteps(steps, /*is_reversed=*/false, {0, model_.directions, 0, sequences_.RowsAt(0)},
             schedule_, model_.StepCost(depth), run_step, member);
  }

  void RunTile(const Layer& layer, const StepTile& tile) const {
    ForwardTile<T> cell = ForwardTile<T>();
    const int64_t panel_size = PanelSize(model_.kernels, model_.output_size);
    const int64_t gate_size = NumPanels(model_.kernels, model_.units) * panel_size;
    cell.recurrent.b = layer.panels.recurrent[tile.direction] + tile.panel * panel_size;
    cell.recurrent.b_panel_stride = model_.gates == 1 ? panel_size : gate_size;
    cell.recurrent.depth = model_.output_size;
    if (tile.prefetch_distance != 0) {
      cell.recurrent.next_b = cell.recurrent.b + tile.prefetch_distance * panel_size;
    }
    cell.recurrent.a_depth_stride = 1;
    for (int64_t row = tile.first_row; row < tile.end_row; row += cell.rows) {
      cell.rows = RowsUpTo(row, tile.end_row, tile.step->previous_rows);
      PointCell(model_, tensors_, layer, tile, row, keeps_steps_, &cell);
      if (has_products_in_steps_) {
        cell.rows = std::min(cell.rows, kMaxRowsInStep);
        RunCellWithInput(layer, tile, row, &cell);
      } else {
        model_.cell.forward(cell);
      }
    }
  }

  // Not inlined, so that steps without input products do not reserve the buffer.
  __attribute__((noinline)) void RunCellWithInput(const Layer& layer, const StepTile& tile,
                                                  int64_t row, ForwardTile<T>* cell) const {
    alignas(64) T products[kMaxRowsInStep * kInputProductStride];
    MultiplyInput(model_, layer, tile, row, products, cell);
    model_.cell.forward(*cell);
  }

  // Computes h = W (o * tanh(c)) with the projection W [P, H].
  void RunProjectionTile(const Layer& layer, const StepTile& tile) const {
    const int64_t row = tile.step->first + tile.first_row;
    ProductTile<T> product = ProductTile<T>();
    product.rows = tile.end_row - tile.first_row;
    product.columns = tile.columns;
    product.factors.depth = model_.units;
    product.factors.a =
        layer.unprojected[tile.direction] + (keeps_steps_ ? row : tile.first_row) * model_.units;
    product.factors.a_row_stride = model_.units;
    product.factors.a_depth_stride = 1;
    product.factors.b_panel_stride = PanelSize(model_.kernels, model_.units);
    product.factors.b =
        layer.panels.projection[tile.direction] + tile.panel * product.factors.b_panel_stride;
    product.c = layer.output + row * model_.output_width + tile.direction * model_.output_size +
                tile.column;
    product.c_row_stride = model_.output_width;
    product.factors.rounded_a = layer.rounded_unprojected[tile.direction].At(tile.first_row, 0);
    model_.kernels.product(product);
    model_.RoundPart({product.c, product.c_row_stride, 1}, product.rows, product.columns,
                     layer.RoundedOutputs(tile, tile.step->index), tile.first_row, tile.column);
  }

  // Stores the final states of each sequence whose last step is in `steps`. A sequence of length 0
  // keeps its initial states.
  void StoreFinalStates(const Layer& layer, int64_t direction, const StepRange& steps) const {
    const int64_t units = model_.units, output_size = model_.output_size;
    const bool has_cell_state = model_.config.has_cell_state();
    const int64_t first_state = model_.FirstState(layer.index, direction);
    for (int64_t i = steps.first; i < steps.end; ++i) {
      const DirectionStep step = DirectionStepOf(sequences_, direction, i);
      for (int64_t row = step.next_rows; row < step.rows; ++row) {
        const int64_t state = first_state + row;
        std::copy_n(
            layer.output + (step.first + row) * model_.output_width + direction * output_size,
            output_size, tensors_.output_h + state * output_size);
        if (has_cell_state && keeps_steps_) {
          std::copy_n(layer.cell_states[direction] + (step.first + row) * units, units,
                      tensors_.output_c + state * units);
        }
      }
    }
    if (steps.first > 0) return;
    for (int64_t row = sequences_.RowsAt(0); row < model_.shape.batch_size; ++row) {
      const int64_t state = first_state + row;
      std::copy_n(tensors_.input_h + state * output_size, output_size,
                  tensors_.output_h + state * output_size);
      if (has_cell_state) {
        std::copy_n(tensors_.input_c + state * units, units, tensors_.output_c + state * units);
      }
    }
  }

  // Runs what follows a block of steps: the final states and dropout.
  void FinishSteps(const Layer& layer, const StepRange& steps, TeamMember* member) const {
    member->Single([&] {
      for (int64_t d = 0; d < model_.directions; ++d) StoreFinalStates(layer, d, steps);
    });
    ApplyDropout(layer, steps, member);
  }

  void ApplyDropout(const Layer& layer, const StepRange& steps, TeamMember* member) const {
    if (layer.dropped == nullptr) return;
    ApplyDropoutToRows(layer.dropout, sequences_.positions(), FirstRow(steps.first),
                       FirstRow(steps.end), model_.output_width, layer.output, layer.dropped,
                       member);
  }

  const EngineModel<T>& model_;
  const ForwardTensors<T>& tensors_;
  const PackedSequences& sequences_;
  const bool is_training_;
  const Pass pass_;
  const int64_t dropout_call_index_;
  TeamMember* const member_;
  const PassSchedule schedule_;
  const bool keeps_steps_;         // whether gates, c and R_n h' of all steps are kept
  const bool packs_step_weights_;  // whether R and the projection are packed as a whole
  const bool has_products_in_steps_;
};

}  // namespace

template <typename T>
void RunForward(const EngineModel<T>& model, const ForwardTensors<T>& tensors,
                const PackedSequences& sequences, bool is_training, int64_t dropout_call_index,
                TeamMember* member) {
  ForwardPass<T>(model, tensors, sequences, is_training, dropout_call_index, member).Run();
}

template void RunForward(const EngineModel<float>&, const ForwardTensors<float>&,
                         const PackedSequences&, bool, int64_t, TeamMember*);
template void RunForward(const EngineModel<double>&, const ForwardTensors<double>&,
                         const PackedSequences&, bool, int64_t, TeamMember*);

}  // namespace cudnn_rnn
