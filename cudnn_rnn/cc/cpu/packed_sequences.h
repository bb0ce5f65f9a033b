// A batch of variable-length sequences without padding: work is proportional to the sum of lengths.
//
// The N = sum of lengths packed rows are time-major: the rows of step 0, then those of step 1, and
// so on. Every step has the sequences in the same order, longest first (equal lengths in batch
// order). The sequences that have a step are therefore always the first ones, and the sequence at
// place b has row FirstRow(step) + b. With full lengths this is the plain time-major order [T, B].
//
// Example: B = 4, T = 5, lengths {2, 0, 4, 2}. The numbers are packed rows, `.` is padding.
//
//                step:  0   1   2   3   4      order()
//   place 0, length 4:  0   3   6   7   .      2   (this place has the sequence of batch index 2)
//   place 1, length 2:  1   4   .   .   .      0
//   place 2, length 2:  2   5   .   .   .      3
//   place 3, length 0:  .   .   .   .   .      1
//        RowsAt(step):  3   3   1   1   0
//      FirstRow(step):  0   3   6   7   8
//
//   num_steps() = 4, the longest length; num_rows() = N = 8.
//   packed row:   0   1   2   3   4   5   6   7     8 to 19: the padding
//   positions():  2   0   3   6   4   7  10  14     1   5   8  11   9  12  15  13  18  16  19  17
//
// A position is a row of the caller's padded buffer [T, B]. Packed row 7 is step 3 of the sequence
// of batch index 2: its position is 3 * B + 2 = 14.
#ifndef CUDNN_RNN_CC_CPU_PACKED_SEQUENCES_H_
#define CUDNN_RNN_CC_CPU_PACKED_SEQUENCES_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"

namespace cudnn_rnn {

class PackedSequences {
 public:
  // All sequences have all steps; needs no memory.
  explicit PackedSequences(const SequenceShape& shape);
  // `lengths` [B] must be valid, and the batch not empty. Keeps its arrays in `memory`, which must
  // have NumElements(shape) elements and outlive this object.
  PackedSequences(const SequenceShape& shape, const int32_t* lengths, int64_t* memory);
  // Returns 0 for an empty batch, whatever the number of steps.
  static CheckedSize NumElements(const SequenceShape& shape);

  int64_t batch_size() const { return batch_size_; }
  // Length of the longest sequence.
  int64_t num_steps() const { return num_steps_; }
  // N.
  int64_t num_rows() const { return num_rows_; }

  // Returns the number of sequences that have `step`, in -1..T; 0 before the first step and after
  // the last.
  int64_t RowsAt(int64_t step) const {
    if (rows_at_ != nullptr) return rows_at_[step + 1];
    return step >= 0 && step < num_steps_ ? batch_size_ : 0;
  }
  // Returns the first row of `step`; meaningless for step -1.
  int64_t FirstRow(int64_t step) const {
    return first_row_ != nullptr ? first_row_[step + 1] : step * batch_size_;
  }

  // [B]: the batch index of the sequence at each place; null if they are equal.
  const int64_t* order() const { return order_; }
  // [T * B]: the padded row, step * B + batch index, of each of the N packed rows, followed by the
  // rows of all padding; null if packed and padded rows are equal.
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
