#include "cudnn_rnn/cc/cpu/steps.h"

namespace cudnn_rnn {

// The backward direction starts at the last step of the longest sequence; shorter sequences join at
// their own last step.
DirectionStep DirectionStepOf(const PackedSequences& sequences, int64_t direction, int64_t step) {
  const int64_t time = direction == 0 ? step : sequences.num_steps() - 1 - step;
  const int64_t previous_time = direction == 0 ? time - 1 : time + 1;
  const int64_t next_time = direction == 0 ? time + 1 : time - 1;
  DirectionStep result = DirectionStep();
  result.rows = sequences.RowsAt(time);
  result.first = sequences.FirstRow(time);
  result.next_rows = sequences.RowsAt(next_time);
  result.next_first = sequences.FirstRow(next_time);
  if (step <= 0) return result;
  result.previous_rows = std::min(result.rows, sequences.RowsAt(previous_time));
  result.previous_first = sequences.FirstRow(previous_time);
  return result;
}

}  // namespace cudnn_rnn
