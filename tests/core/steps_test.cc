// Tests of the division of a step into runs of items and into tiles.

#include "cudnn_rnn/cc/cpu/steps.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

// Returns the items of the runs, in order.
std::vector<int64_t> ItemsOf(const PhaseItems& items, const VectorRun* runs, int num_runs) {
  std::vector<int64_t> found;
  for (const VectorRun* run = runs; run != runs + num_runs; ++run) {
    for (int64_t vector = run->first_vector; vector < run->end_vector; ++vector) {
      EXPECT(vector < items.num_panels, vector);
      for (int64_t group = run->first_group; group < run->end_group; ++group) {
        found.push_back((run->direction * items.num_panels + vector) * items.row_groups + group);
      }
    }
  }
  return found;
}

TEST(RunsHaveEveryItemOnceAndInOrder) {
  for (int64_t num_directions : {1, 2}) {
    for (int64_t num_panels : {1, 2, 3, 5}) {
      for (int64_t row_groups : {1, 2, 3, 7}) {
        PhaseItems items({num_panels * 4, 4, 1, 1, 0, false}, num_directions, 1, 1);
        items.row_groups = row_groups;
        for (int64_t end = 0; end <= items.count(); ++end) {
          for (int64_t begin = 0; begin < end; ++begin) {
            std::vector<int64_t> expected;
            for (int64_t item = begin; item < end; ++item) expected.push_back(item);
            VectorRun runs[4];
            const int num_runs = SplitIntoRuns(items, begin, end, runs);
            EXPECT(ItemsOf(items, runs, num_runs) == expected, num_directions, " directions, ",
                   num_panels, " panels, ", row_groups, " groups, ", begin, " to ", end);
          }
        }
      }
    }
  }
}

// The computed elements [direction, row, column] of a phase, and how often each was computed.
class Computed {
 public:
  Computed(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), counts_(static_cast<size_t>(2 * rows * columns)) {}

  void Add(const StepTile& tile) {
    for (int64_t row = tile.first_row; row < tile.end_row; ++row) {
      for (int64_t column = tile.column; column < tile.column + tile.columns; ++column) {
        ++counts_[Index(tile.direction, row, column)];
      }
    }
  }
  int64_t Count(int64_t direction, int64_t row, int64_t column) const {
    return counts_[Index(direction, row, column)].load();
  }

 private:
  size_t Index(int64_t direction, int64_t row, int64_t column) const {
    return static_cast<size_t>((direction * rows_ + row) * columns_ + column);
  }

  const int64_t rows_;
  const int64_t columns_;
  std::vector<std::atomic<int64_t>> counts_;
};

// Runs a phase on a team and expects that it computes every element of the part's rows once.
void CheckTiles(const PackedSequences& sequences, const StepPhase& phase, const StepPart& part,
                int64_t num_threads) {
  Computed computed(sequences.batch_size(), phase.columns);
  ThreadRunner runner(num_threads);
  RunTeam(&runner, int64_t(1) << 40, [&](TeamMember* member) {
    bool expects_next = false;
    int64_t next_panel = 0;
    ForTiles(sequences, phase, part, member, [&](const StepTile& tile) {
      // The last tile may be narrower.
      EXPECT(!expects_next ||
                 (next_panel <= tile.panel && tile.panel < next_panel + phase.tile_vectors),
             "panels from ", next_panel, " on are prefetched, but panel ", tile.panel, " follows");
      expects_next = tile.prefetch_distance != 0;
      next_panel = tile.panel + tile.prefetch_distance;
      EXPECT(tile.column == tile.panel * phase.lanes && tile.step->index == phase.step);
      EXPECT(tile.columns <= phase.tile_vectors * phase.lanes, tile.columns);
      computed.Add(tile);
    });
  });
  for (int64_t direction : {0, 1}) {
    const DirectionStep step = DirectionStepOf(sequences, direction, phase.step);
    const int64_t rows = phase.with_next ? std::max(step.rows, step.next_rows) : step.rows;
    const bool has_direction = part.first_direction <= direction && direction < part.end_direction;
    for (int64_t row = 0; row < sequences.batch_size(); ++row) {
      const bool has_row = has_direction && part.first_row <= row && row < part.end_row;
      for (int64_t column = 0; column < phase.columns; ++column) {
        const int64_t expected = has_row && row < rows ? 1 : 0;
        const int64_t found = computed.Count(direction, row, column);
        EXPECT(found == expected, found, " instead of ", expected, " of step ", phase.step,
               ", direction ", direction, ", row ", row, ", column ", column, " on ", num_threads,
               " threads");
      }
    }
  }
}

TEST(TilesPrefetchTheOneThatFollows) {
  const PackedSequences sequences(SequenceShape{/*num_steps=*/2, kMinRowsToPrefetch});
  for (int64_t step : {0, 1}) {
    std::vector<int64_t> distances;
    TeamMember alone;
    ForTiles(sequences, {/*columns=*/56, /*lanes=*/8, 2, /*depth=*/20, step, /*with_next=*/false},
             {0, 1, 0, kMinRowsToPrefetch}, &alone,
             [&](const StepTile& tile) { distances.push_back(tile.prefetch_distance); });
    const int64_t ahead = step == 0 ? 2 : -2;
    EXPECT(distances == std::vector<int64_t>({ahead, ahead, ahead, 0}), "step ", step);
  }
}

TEST(TilesCoverEveryElementOnce) {
  constexpr int64_t kBatch = 21, kSteps = 3;
  std::vector<int32_t> lengths(kBatch, 2);
  lengths[3] = 3;
  lengths[4] = lengths[20] = 1;
  const SequenceShape shape = {kSteps, kBatch};
  std::vector<int64_t> memory(static_cast<size_t>(PackedSequences::NumElements(shape).value()));
  const PackedSequences full(shape), ragged(shape, lengths.data(), memory.data());
  const StepPart parts[] = {
      {0, 2, 0, kBatch}, {0, 1, 0, kBatch}, {1, 2, 0, kBatch}, {0, 2, 5, 18}, {1, 2, 20, kBatch}};
  for (const PackedSequences* sequences : {&full, &ragged}) {
    for (const StepPart& part : parts) {
      for (int64_t step = 0; step < kSteps; ++step) {
        for (bool with_next : {false, true}) {
          for (int64_t num_threads : {1, 2, 7}) {
            CheckTiles(*sequences, {/*columns=*/20, /*lanes=*/8, 2, /*depth=*/20, step, with_next},
                       part, num_threads);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cudnn_rnn
