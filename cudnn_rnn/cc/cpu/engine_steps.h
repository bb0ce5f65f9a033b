// Divides the engine's steps among the team's members and into tiles for the kernels.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_STEPS_H_
#define CUDNN_RNN_CC_CPU_ENGINE_STEPS_H_

#include <algorithm>

#include "cudnn_rnn/cc/cpu/cycles.h"
#include "cudnn_rnn/cc/cpu/engine.h"

namespace cudnn_rnn {

// Enough items per member that one more or less is negligible, but each with enough rows for an
// efficient tile.
constexpr int64_t kItemsPerMember = 24;
constexpr int64_t kMinRowsOfAGroup = 4;

// Returns the cost of one direction's step in processor cycles, at two vectors of multiply-adds per
// cycle and about 40 multiply-adds per unit for the activations. Fewer than four rows cost as much
// as four: then reading the weights from the L2 cache takes that long.
template <typename T>
int64_t Engine<T>::StepCost(int64_t rows, int64_t columns, int64_t depth) const {
  const double cycles_per_column =
      static_cast<double>(std::max<int64_t>(rows, 4)) * static_cast<double>(depth) +
      40.0 * static_cast<double>(rows);
  return Cycles(static_cast<double>(columns) * cycles_per_column /
                static_cast<double>(2 * kernels_.lanes)) +
         1;
}

template <typename T>
template <typename RunStep>
void Engine<T>::RunSteps(int64_t num_steps, int64_t depth, const RunStep& run_step,
                         TeamMember* member) const {
  const int64_t cost = StepCost(batch_size_, units_, depth);
  if (member->Shares(cost * directions_) && member->team_size() > directions_) {
    for (int64_t i = 0; i < num_steps && !member->has_left(); ++i) {
      run_step(i, 0, directions_, member);
    }
    return;
  }
  // One direction per member needs no barrier.
  const auto run_directions = [&](int64_t begin, int64_t end) {
    TeamMember alone;
    for (int64_t d = begin; d < end; ++d) {
      for (int64_t i = 0; i < num_steps; ++i) run_step(i, d, d + 1, &alone);
    }
  };
  member->ForEach(directions_, Cycles(static_cast<double>(cost) * static_cast<double>(num_steps)),
                  run_directions, /*slices_per_member=*/1);
}

template <typename T>
template <typename Advance>
void Engine<T>::ForWavefronts(const PackedSequences& sequences, const Advance& advance,
                              TeamMember* member) const {
  const int64_t num_blocks = NumStepBlocks(sequences);
  // The input products cost about as much as the steps.
  const int64_t cost = Cycles(2.0 * static_cast<double>(StepCost()) *
                              static_cast<double>(sequences.num_steps() / num_blocks));
  for (int64_t diagonal = 0; diagonal < num_blocks + config_.num_layers - 1; ++diagonal) {
    const int64_t first = std::max<int64_t>(0, diagonal - num_blocks + 1);
    const int64_t last = std::min(config_.num_layers - 1, diagonal);
    member->ForEach(last - first + 1, cost, [&](int64_t begin, int64_t end) {
      TeamMember alone;
      for (int64_t position = first + begin; position < first + end; ++position) {
        advance(position, diagonal - position, &alone);
      }
    });
  }
}

template <typename T>
template <typename Compute>
void Engine<T>::ForTiles(const PackedSequences& sequences, const StepPhase& phase, int64_t layer,
                         int64_t first_direction, int64_t end_direction, const Compute& compute,
                         TeamMember* member) const {
  DirectionStep steps[2];
  int64_t rows[2], most_rows = 0;
  for (int64_t d = first_direction; d < end_direction; ++d) {
    steps[d] = DirectionStepOf(sequences, d, phase.step);
    rows[d] = phase.with_next ? std::max(steps[d].rows, steps[d].next_rows) : steps[d].rows;
    most_rows = std::max(most_rows, rows[d]);
  }
  // An item is one group of rows of one vector of columns; adjacent items are groups of the same
  // vector. There are enough groups that the members get nearly equal shares. An integer division
  // costs as much as several products, so tiles of whole vectors are computed without one.
  const int64_t num_panels = NumPanels(kernels_, phase.columns);
  const int64_t num_vectors = num_panels * (end_direction - first_direction);
  int64_t row_groups = 1;
  if (member->team_size() > 1) {
    const int64_t wanted_groups = (kItemsPerMember * member->team_size() - 1) / num_vectors + 1;
    row_groups = std::max<int64_t>(1, std::min(wanted_groups, most_rows / kMinRowsOfAGroup));
  }
  const auto compute_tile = [&](int64_t vector, int64_t vectors, int64_t first_group,
                                int64_t end_group) {
    const bool is_second = vector >= num_panels;
    StepTile tile;
    tile.direction = first_direction + (is_second ? 1 : 0);
    tile.step = &steps[tile.direction];
    tile.pseudo_layer = layer * directions_ + tile.direction;
    tile.first_row = first_group == 0 ? 0 : rows[tile.direction] * first_group / row_groups;
    tile.end_row = end_group == row_groups ? rows[tile.direction]
                                           : rows[tile.direction] * end_group / row_groups;
    tile.panel = vector - (is_second ? num_panels : 0);
    tile.column = tile.panel * kernels_.lanes;
    tile.columns = std::min(vectors * kernels_.lanes, phase.columns - tile.column);
    compute(tile);
  };
  const auto compute_items = [&](int64_t begin, int64_t end) {
    // The items are those of vectors first..last, except perhaps some groups of these two.
    const int64_t first = row_groups == 1 ? begin : begin / row_groups;
    const int64_t last = row_groups == 1 ? end - 1 : (end - 1) / row_groups;
    const int64_t first_group = begin - first * row_groups, end_group = end - last * row_groups;
    const int64_t end_whole = end_group < row_groups ? last : last + 1;
    const int64_t first_whole = first_group > 0 ? first + 1 : first;
    const auto compute_first = [&] {
      if (first_group > 0) {
        compute_tile(first, 1, first_group, first < last ? row_groups : end_group);
      }
    };
    const auto compute_last = [&] {
      if (end_group < row_groups && (first < last || first_group == 0)) {
        compute_tile(last, 1, 0, end_group);
      }
    };
    // Odd steps go from the last vector to the first: the last vectors are still in the cache.
    if (phase.step % 2 != 0) {
      compute_last();
      for (int64_t end_vector = end_whole; end_vector > first_whole;) {
        const int64_t first_panel = end_vector > num_panels ? num_panels : 0;
        const int64_t vectors =
            std::min(phase.tile_vectors, end_vector - std::max(first_whole, first_panel));
        end_vector -= vectors;
        compute_tile(end_vector, vectors, 0, row_groups);
      }
      compute_first();
    } else {
      compute_first();
      for (int64_t vector = first_whole; vector < end_whole;) {
        const int64_t end_panel = vector < num_panels ? num_panels : num_vectors;
        const int64_t vectors =
            std::min(phase.tile_vectors, std::min(end_whole, end_panel) - vector);
        compute_tile(vector, vectors, 0, row_groups);
        vector += vectors;
      }
      compute_last();
    }
  };
  member->ForEach(num_vectors * row_groups,
                  StepCost(most_rows / row_groups + 1, kernels_.lanes, phase.depth), compute_items,
                  /*slices_per_member=*/1);
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_STEPS_H_
