#include "cudnn_rnn/cc/cpu/packed_sequences.h"

#include <algorithm>
#include <numeric>

namespace cudnn_rnn {

PackedSequences::PackedSequences(const SequenceShape& shape)
    : batch_size_(shape.batch_size),
      num_steps_(shape.num_steps),
      num_rows_(shape.num_steps * shape.batch_size) {}

PackedSequences::PackedSequences(const SequenceShape& shape, const int32_t* lengths,
                                 int64_t* memory)
    : batch_size_(shape.batch_size), num_steps_(0), num_rows_(0) {
  const int64_t all_steps = shape.num_steps;
  rows_at_ = memory;
  first_row_ = rows_at_ + all_steps + 2;
  order_ = first_row_ + all_steps + 2;
  positions_ = order_ + batch_size_;

  // rows_at_[step + 1] first counts the sequences whose last step is `step`. Summing from the last
  // step back turns that into the number of sequences that have `step`.
  std::fill_n(rows_at_, all_steps + 2, 0);
  for (int64_t b = 0; b < batch_size_; ++b) {
    ++rows_at_[lengths[b]];
    num_steps_ = std::max<int64_t>(num_steps_, lengths[b]);
    num_rows_ += lengths[b];
  }
  for (int64_t step = all_steps - 1; step >= 0; --step) rows_at_[step + 1] += rows_at_[step + 2];
  rows_at_[0] = 0;
  first_row_[0] = 0;
  for (int64_t step = 0; step <= all_steps; ++step) {
    first_row_[step + 1] = first_row_[step] + rows_at_[step];
  }

  std::iota(order_, order_ + batch_size_, 0);
  std::sort(order_, order_ + batch_size_, [lengths](int64_t a, int64_t b) {
    return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a < b;
  });
  int64_t padding = num_rows_;
  for (int64_t step = 0; step < all_steps; ++step) {
    const int64_t rows = RowsAt(step);
    for (int64_t b = 0; b < batch_size_; ++b) {
      const int64_t row = b < rows ? FirstRow(step) + b : padding++;
      positions_[row] = step * batch_size_ + order_[b];
    }
  }
}

CheckedSize PackedSequences::NumElements(const SequenceShape& shape) {
  if (shape.batch_size == 0) return 0;
  const CheckedSize steps(shape.num_steps), batch_size(shape.batch_size);
  return (steps + 2) * 2 + batch_size + steps * batch_size;
}

}  // namespace cudnn_rnn
