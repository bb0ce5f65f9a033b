// Time steps: the rows of a step, and how steps are divided among the team's members and into tiles
// for the kernels.
#ifndef CUDNN_RNN_CC_CPU_STEPS_H_
#define CUDNN_RNN_CC_CPU_STEPS_H_

#include <algorithm>
#include <cstdint>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"
#include "cudnn_rnn/cc/cpu/schedule.h"

namespace cudnn_rnn {

// One step of one direction, numbered in the direction's own order; -1 precedes the first step.
struct DirectionStep {
  int64_t rows;           // sequences that have this step
  int64_t previous_rows;  // of these, sequences that have the previous step as well
  int64_t next_rows;      // sequences that have the next step
  // First rows of this, the previous and the next step in buffers of N rows.
  int64_t first;
  int64_t previous_first;
  int64_t next_first;
  int64_t index;  // of this step
};

// The backward direction starts at the last step of the longest sequence; shorter sequences join at
// their own last step.
inline DirectionStep DirectionStepOf(const PackedSequences& sequences, int64_t direction,
                                     int64_t step) {
  const int64_t time = direction == 0 ? step : sequences.num_steps() - 1 - step;
  const int64_t previous_time = direction == 0 ? time - 1 : time + 1;
  const int64_t next_time = direction == 0 ? time + 1 : time - 1;
  DirectionStep result = DirectionStep();
  result.rows = sequences.RowsAt(time);
  result.first = sequences.FirstRow(time);
  result.next_rows = sequences.RowsAt(next_time);
  result.next_first = sequences.FirstRow(next_time);
  result.index = step;
  if (step <= 0) return result;
  result.previous_rows = std::min(result.rows, sequences.RowsAt(previous_time));
  result.previous_first = sequences.FirstRow(previous_time);
  return result;
}

// Steps [first, end) of a layer, numbered in a direction's own order.
struct StepRange {
  int64_t first;
  int64_t end;
};

// Packed rows [first, end).
struct RowRange {
  int64_t first;
  int64_t end;
};

// Directions and rows of the batch whose steps are computed together.
struct StepPart {
  int64_t first_direction;
  int64_t end_direction;
  int64_t first_row;
  int64_t end_row;
};

// One phase of a step: all vectors of `columns` columns, in each direction.
struct StepPhase {
  int64_t columns;
  int64_t lanes;         // columns per vector
  int64_t tile_vectors;  // adjacent vectors of columns per tile
  int64_t depth;         // multiply-adds per column and row
  int64_t step;
  bool with_next;  // whether rows that have only the next step are included
};

// A range of columns and a range of the batch's rows, in one direction.
struct StepTile {
  const DirectionStep* step;
  int64_t direction;
  int64_t first_row;
  int64_t end_row;
  int64_t panel;    // first vector of columns
  int64_t column;   // first column
  int64_t columns;  // number of columns
  // Distance, in vectors of columns, to the tile whose panels this tile prefetches; or 0.
  int64_t prefetch_distance;
};

// Minimum rows of a step for prefetching the next tile's panels. With fewer rows a step is limited
// by the bandwidth of reading the weights, and prefetching slows it down.
constexpr int64_t kMinRowsToPrefetch = 16;

// Returns how many rows from `row` on to compute at a time: up to `end`, and not across any
// boundary, beyond which operands are in other buffers.
inline int64_t RowsUpTo(int64_t row, int64_t end) { return end - row; }
template <typename... Boundaries>
int64_t RowsUpTo(int64_t row, int64_t end, int64_t boundary, Boundaries... others) {
  return RowsUpTo(row, row < boundary ? std::min(boundary, end) : end, others...);
}

// A phase is divided into items: groups of rows of one vector of columns. There are enough items
// per member that one more or less is negligible, but each has enough rows for an efficient tile.
// Adjacent items are groups of the same vector.
struct PhaseItems {
  PhaseItems(const StepPhase& phase, int64_t num_directions, int64_t rows, int64_t num_members)
      : num_panels((phase.columns + phase.lanes - 1) / phase.lanes),
        num_vectors(num_panels * num_directions),
        row_groups(1) {
    constexpr int64_t kItemsPerMember = 24;
    constexpr int64_t kMinRowsPerGroup = 4;
    if (num_members == 1) return;
    const int64_t wanted_groups = (kItemsPerMember * num_members - 1) / num_vectors + 1;
    row_groups = std::max<int64_t>(1, std::min(wanted_groups, rows / kMinRowsPerGroup));
  }
  int64_t count() const { return num_vectors * row_groups; }

  int64_t num_panels;   // vectors of columns in one direction
  int64_t num_vectors;  // of all directions: those of the first direction, then of the second
  int64_t row_groups;   // per vector
};

// Adjacent vectors of one direction, each with the same groups of rows.
struct VectorRun {
  int64_t direction;  // 0 for the phase's first direction
  int64_t first_vector;
  int64_t end_vector;
  int64_t first_group;
  int64_t end_group;
};

// Splits items [begin, end) into at most four runs: the last groups of the first vector, whole
// vectors of either direction, and the first groups of the last vector. Returns their number.
// An integer division costs as much as several products, so whole vectors are split without one.
inline int SplitIntoRuns(const PhaseItems& items, int64_t begin, int64_t end, VectorRun* runs) {
  const int64_t groups = items.row_groups;
  int num_runs = 0;
  const auto add = [&](int64_t first, int64_t last, int64_t first_group, int64_t end_group) {
    if (first >= last || first_group >= end_group) return;
    const int64_t direction = first < items.num_panels ? 0 : 1;
    const int64_t skipped = direction * items.num_panels;
    runs[num_runs++] = {direction, first - skipped, last - skipped, first_group, end_group};
  };
  int64_t first = groups == 1 ? begin : begin / groups;
  const int64_t last = groups == 1 ? end : end / groups;
  const int64_t first_group = begin - first * groups, end_group = end - last * groups;
  if (first == last) {
    add(first, first + 1, first_group, end_group);
    return num_runs;
  }
  if (first_group > 0) {
    add(first, first + 1, first_group, groups);
    ++first;
  }
  add(first, std::min(last, items.num_panels), 0, groups);
  add(std::max(first, items.num_panels), last, 0, groups);
  add(last, last + 1, 0, end_group);
  return num_runs;
}

// Calls `compute` for tiles that together cover `part` of the phase, shared by the team of
// `member`. Odd steps go from the last tile to the first: the last vectors are still in the cache.
template <typename Compute>
void ForTiles(const PackedSequences& sequences, const StepPhase& phase, const StepPart& part,
              TeamMember* member, const Compute& compute) {
  DirectionStep steps[2];
  int64_t rows[2], most_rows = 0;  // rows of `part` that have the step
  for (int64_t d = part.first_direction; d < part.end_direction; ++d) {
    steps[d] = DirectionStepOf(sequences, d, phase.step);
    const int64_t all_rows =
        phase.with_next ? std::max(steps[d].rows, steps[d].next_rows) : steps[d].rows;
    rows[d] = std::max<int64_t>(0, std::min(all_rows, part.end_row) - part.first_row);
    most_rows = std::max(most_rows, rows[d]);
  }
  const bool is_reversed = phase.step % 2 != 0;
  const PhaseItems items(phase, part.end_direction - part.first_direction, most_rows,
                         member->team_size());
  const auto first_row_of = [&](int64_t group, int64_t part_rows) {
    if (group == 0) return part.first_row;
    return part.first_row +
           (group == items.row_groups ? part_rows : part_rows * group / items.row_groups);
  };
  const auto compute_run = [&](VectorRun run) {
    StepTile tile;
    tile.direction = part.first_direction + run.direction;
    tile.step = &steps[tile.direction];
    tile.first_row = first_row_of(run.first_group, rows[tile.direction]);
    tile.end_row = first_row_of(run.end_group, rows[tile.direction]);
    while (run.first_vector < run.end_vector) {
      const int64_t vectors = std::min(phase.tile_vectors, run.end_vector - run.first_vector);
      if (is_reversed) {
        run.end_vector -= vectors;
        tile.panel = run.end_vector;
      } else {
        tile.panel = run.first_vector;
        run.first_vector += vectors;
      }
      const bool prefetches =
          run.first_vector < run.end_vector && tile.end_row - tile.first_row >= kMinRowsToPrefetch;
      tile.prefetch_distance = prefetches ? (is_reversed ? -vectors : vectors) : 0;
      tile.column = tile.panel * phase.lanes;
      tile.columns = std::min(vectors * phase.lanes, phase.columns - tile.column);
      compute(tile);
    }
  };
  const auto compute_items = [&](int64_t begin, int64_t end) {
    VectorRun runs[4];
    const int num_runs = SplitIntoRuns(items, begin, end, runs);
    for (int i = 0; i < num_runs; ++i) compute_run(runs[is_reversed ? num_runs - 1 - i : i]);
  };
  const int64_t item_cost =
      StepCycles(phase.lanes, most_rows / items.row_groups + 1, phase.lanes, phase.depth);
  member->ForEach(items.count(), item_cost, compute_items, /*max_slices_per_member=*/1);
}

// Calls run_step(step, part, member) for the steps in order, or in reverse order if `is_reversed`:
// either all directions and rows on the whole team, or each direction, or a direction's share of
// the rows, on one member. `step_cost` is that of one direction.
template <typename RunStep>
void RunSteps(const StepRange& steps, bool is_reversed, const StepPart& whole,
              const PassSchedule& schedule, int64_t step_cost, const RunStep& run_step,
              TeamMember* member) {
  const int64_t num_steps = steps.end - steps.first;
  const auto step_at = [&](int64_t i) { return is_reversed ? steps.end - 1 - i : steps.first + i; };
  if (schedule.division.value == Division::kTiles) {
    for (int64_t i = 0; i < num_steps && !member->has_left(); ++i) {
      run_step(step_at(i), whole, member);
    }
    return;
  }
  const int64_t num_directions = whole.end_direction - whole.first_direction;
  const int64_t row_groups = schedule.row_groups;
  const int64_t rows = whole.end_row - whole.first_row;
  const auto run_parts = [&](int64_t begin, int64_t end) {
    TeamMember alone;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t direction = whole.first_direction + i / row_groups, group = i % row_groups;
      const StepPart part = {direction, direction + 1, whole.first_row + rows * group / row_groups,
                             whole.first_row + rows * (group + 1) / row_groups};
      for (int64_t s = 0; s < num_steps; ++s) run_step(step_at(s), part, &alone);
    }
  };
  const double cost = static_cast<double>(step_cost) * static_cast<double>(num_steps) /
                      static_cast<double>(row_groups);
  member->ForEach(num_directions * row_groups, Cycles(cost), run_parts,
                  /*max_slices_per_member=*/1);
}

// Returns the steps of a wavefront's block.
inline StepRange BlockOfSteps(int64_t num_steps, int64_t block, int64_t num_blocks) {
  return {num_steps * block / num_blocks, num_steps * (block + 1) / num_blocks};
}

// Runs the layers of a unidirectional model as a wavefront: while one layer works on a block of
// steps, the layer that reads its results works on the previous block. Calls
// advance(position, block, member) for each layer and block. `position` is the layer's place in the
// order of the pass. A call runs after those for (position, block - 1) and (position - 1, block).
template <typename Advance>
void ForWavefronts(int64_t num_layers, int64_t num_blocks, int64_t block_cost,
                   const Advance& advance, TeamMember* member) {
  for (int64_t diagonal = 0; diagonal < num_blocks + num_layers - 1; ++diagonal) {
    const int64_t first = std::max<int64_t>(0, diagonal - num_blocks + 1);
    const int64_t last = std::min(num_layers - 1, diagonal);
    member->ForEach(last - first + 1, block_cost, [&](int64_t begin, int64_t end) {
      TeamMember alone;
      for (int64_t position = first + begin; position < first + end; ++position) {
        advance(position, diagonal - position, &alone);
      }
    });
  }
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_STEPS_H_
