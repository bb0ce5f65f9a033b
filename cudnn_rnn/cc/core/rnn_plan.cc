#include "cudnn_rnn/cc/core/rnn_plan.h"

#include <algorithm>

namespace cudnn_rnn {

Status CopySequenceLengths(const int32_t* source, const SequenceShape& shape,
                           std::vector<int32_t>* lengths) {
  lengths->clear();
  if (source == nullptr) return Status();
  lengths->resize(static_cast<size_t>(shape.batch_size));
  // Volatile, so that the compiler cannot read `source` again where the copy is used.
  const volatile int32_t* const elements = source;
  for (size_t b = 0; b < lengths->size(); ++b) (*lengths)[b] = elements[b];
  return CheckSequenceLengths(*lengths, shape);
}

Status CheckSequenceLengths(const std::vector<int32_t>& lengths, const SequenceShape& shape) {
  if (lengths.empty()) return Status();
  const int64_t num_lengths = static_cast<int64_t>(lengths.size());
  if (num_lengths != shape.batch_size) {
    return InvalidArgument("sequence_lengths has ", num_lengths,
                           " elements; expected one for each of the ", shape.batch_size,
                           " sequences of the batch.");
  }
  for (int64_t b = 0; b < num_lengths; ++b) {
    const int32_t length = lengths[static_cast<size_t>(b)];
    if (length < 0 || length > shape.num_steps) {
      return InvalidArgument("sequence_lengths must be between 0 and the number of steps, ",
                             shape.num_steps, ", but sequence_lengths[", b, "] is ", length, ".");
    }
  }
  return Status();
}

bool HasPadding(const std::vector<int32_t>& lengths, const SequenceShape& shape) {
  return std::any_of(lengths.begin(), lengths.end(),
                     [&shape](int32_t length) { return length != shape.num_steps; });
}

}  // namespace cudnn_rnn
