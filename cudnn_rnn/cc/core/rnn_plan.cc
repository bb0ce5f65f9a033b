#include "cudnn_rnn/cc/core/rnn_plan.h"

namespace cudnn_rnn {

Status CheckSequenceLengths(const int32_t* lengths, const SequenceShape& shape) {
  if (lengths == nullptr) return Status();
  for (int64_t b = 0; b < shape.batch_size; ++b) {
    if (lengths[b] < 0 || lengths[b] > shape.num_steps) {
      return InvalidArgument("sequence_lengths must be between 0 and the number of steps, ",
                             shape.num_steps, ", but sequence_lengths[", b, "] is ", lengths[b],
                             ".");
    }
  }
  return Status();
}

}  // namespace cudnn_rnn
