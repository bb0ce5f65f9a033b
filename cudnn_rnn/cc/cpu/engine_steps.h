// How the engine's steps are divided: over the team's members, and into tiles for the kernels.
#ifndef CUDNN_RNN_CC_CPU_ENGINE_STEPS_H_
#define CUDNN_RNN_CC_CPU_ENGINE_STEPS_H_

#include <algorithm>

#include "cudnn_rnn/cc/cpu/engine.h"

namespace cudnn_rnn {

// So many that one more or less does not matter; but of no fewer rows than make a good tile.
constexpr int64_t kItemsPerMember = 24;
constexpr int64_t kLeastRowsOfAGroup = 4;

// Of one direction's step, in processor cycles: two vectors of multiply-adds each, and some 40 of
// them for a unit's activations.
template <typename T>
int64_t Engine<T>::StepCost(int64_t rows, int64_t columns, int64_t depth) const {
  return rows * columns * (depth + 40) / (2 * kernels_.lanes) + 1;
}

template <typename T>
template <typename RunStep>
void Engine<T>::RunSteps(int64_t num_steps, int64_t depth, const RunStep& run_step,
                         TeamMember* member) const {
  const int64_t cost = StepCost(batch_size_, units_, depth);
  if (member->Shares(cost * directions_) && member->team_size() > directions_) {
    for (int64_t i = 0; i < num_steps; ++i) run_step(i, 0, directions_, member);
    return;
  }
  // A direction for each member needs no barrier at all.
  const auto run_directions = [&](int64_t begin, int64_t end) {
    TeamMember alone;
    for (int64_t d = begin; d < end; ++d) {
      for (int64_t i = 0; i < num_steps; ++i) run_step(i, d, d + 1, &alone);
    }
  };
  member->ForEach(directions_, cost * num_steps, run_directions, /*slices_per_member=*/1);
}

template <typename T>
template <typename Advance>
void Engine<T>::ForDiagonals(const PackedSequences& sequences, const Advance& advance,
                             TeamMember* member) const {
  const int64_t num_blocks = NumStepBlocks(sequences);
  // About as much for the products of the inputs as for the steps.
  const int64_t cost = 2 * StepCost() * (sequences.num_steps() / num_blocks);
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
  // Items are vectors of columns, and of each so many groups of rows that the members get nearly
  // the same; neighbouring items are groups of one vector.
  const int64_t num_panels = NumPanels(kernels_, phase.columns);
  const int64_t num_vectors = num_panels * (end_direction - first_direction);
  const int64_t wanted_groups = (kItemsPerMember * member->team_size() - 1) / num_vectors + 1;
  const int64_t row_groups =
      member->team_size() == 1
          ? 1
          : std::max<int64_t>(1, std::min(wanted_groups, most_rows / kLeastRowsOfAGroup));
  const auto compute_tile = [&](int64_t vector, int64_t vectors, int64_t first_group,
                                int64_t end_group) {
    StepTile tile;
    tile.direction = first_direction + vector / num_panels;
    tile.step = &steps[tile.direction];
    tile.stack = layer * directions_ + tile.direction;
    tile.first_row = rows[tile.direction] * first_group / row_groups;
    tile.end_row = rows[tile.direction] * end_group / row_groups;
    tile.panel = vector % num_panels;
    tile.column = tile.panel * kernels_.lanes;
    tile.columns = std::min(vectors * kernels_.lanes, phase.columns - tile.column);
    compute(tile);
  };
  // Every other step from the last item to the first, which are the ones still in the cache.
  const bool backwards = phase.step % 2 != 0;
  const auto compute_items = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t item = backwards ? end - 1 : begin;
      const int64_t vector = item / row_groups, group = item % row_groups;
      const bool whole = backwards ? group == row_groups - 1 && end - begin >= row_groups
                                   : group == 0 && end - begin >= row_groups;
      if (!whole) {
        const int64_t first = backwards ? std::max<int64_t>(0, group + 1 - (end - begin)) : group;
        const int64_t last = backwards ? group + 1 : std::min(row_groups, group + (end - begin));
        compute_tile(vector, 1, first, last);
        (backwards ? end : begin) += backwards ? first - last : last - first;
        continue;
      }
      const int64_t panel = vector % num_panels;
      const int64_t vectors = std::min(std::min(phase.tile_vectors, (end - begin) / row_groups),
                                       backwards ? panel + 1 : num_panels - panel);
      compute_tile(backwards ? vector + 1 - vectors : vector, vectors, 0, row_groups);
      (backwards ? end : begin) += backwards ? -vectors * row_groups : vectors * row_groups;
    }
  };
  member->ForEach(num_vectors * row_groups,
                  StepCost(most_rows / row_groups + 1, kernels_.lanes, phase.depth), compute_items,
                  /*slices_per_member=*/1);
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_ENGINE_STEPS_H_
