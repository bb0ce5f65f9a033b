// A batch of sequences without their padding, so that work is proportional to the sum of lengths.
//
// The packed rows of N = sum of lengths steps are time-major: those of step 0, then those of step
// 1, and so on. Within a step they are in one order for all steps, longest sequence first (equal
// lengths as they stand in the batch), so the sequences that have a step are always the first ones
// and what belongs to the sequence at place b is row FirstRow(step) + b. With full lengths this is
// the plain time-major order [T, B] itself.
#ifndef CUDNN_RNN_CC_CPU_PACKED_SEQUENCES_H_
#define CUDNN_RNN_CC_CPU_PACKED_SEQUENCES_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"

namespace cudnn_rnn {

class PackedSequences {
 public:
  // All sequences have all steps; takes no memory.
  explicit PackedSequences(const SequenceShape& shape);
  // With valid lengths [B] of a batch that is not empty. What it keeps is in `memory`,
  // NumElements(shape) of them.
  PackedSequences(const SequenceShape& shape, const int32_t* lengths, int64_t* memory);
  // 0 for an empty batch, however many steps the shape has.
  static CheckedSize NumElements(const SequenceShape& shape);

  int64_t batch_size() const { return batch_size_; }
  // Steps of the longest sequence.
  int64_t num_steps() const { return num_steps_; }
  // N.
  int64_t num_rows() const { return num_rows_; }

  // How many sequences have this step: 0 for those before the first (-1) and after the last.
  int64_t RowsAt(int64_t step) const {
    if (rows_at_ != nullptr) return rows_at_[step + 1];
    return step >= 0 && step < num_steps_ ? batch_size_ : 0;
  }
  // Where the step's rows begin; of no meaning for step -1.
  int64_t FirstRow(int64_t step) const {
    return first_row_ != nullptr ? first_row_[step + 1] : step * batch_size_;
  }

  // [B] the sequence in the batch that is at each place, or null where it is the same.
  const int64_t* order() const { return order_; }
  // [T * B] row step * B + sequence of the batch for each packed row, and after those N rows for
  // all padding, or null where it is the same.
  const int64_t* positions() const { return positions_; }

 private:
  int64_t batch_size_;
  int64_t num_steps_;
  int64_t num_rows_;
  // [T + 2] for steps -1..T; null with full lengths.
  int64_t* rows_at_ = nullptr;
  int64_t* first_row_ = nullptr;
  int64_t* order_ = nullptr;
  int64_t* positions_ = nullptr;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_PACKED_SEQUENCES_H_
