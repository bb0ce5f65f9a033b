// The tensor host_reserved of the V2 and V3 ops: a training forward pass writes into it, in host
// memory, what its reserve space was made for, and the gradient checks that. (TensorFlow's own
// kernels keep there which algorithm was chosen.)
#ifndef CUDNN_RNN_CC_TF_HOST_RESERVED_H_
#define CUDNN_RNN_CC_TF_HOST_RESERVED_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

constexpr int64_t kHostReservedBytes = 64;

// `sequence_lengths` are those of CallOptions.
void WriteHostReserved(const RnnConfig& config, const SequenceShape& shape,
                       const std::vector<int32_t>& sequence_lengths, void* host_reserved);

// Fails unless the bytes are what WriteHostReserved wrote for the same arguments.
Status CheckHostReserved(const RnnConfig& config, const SequenceShape& shape,
                         const std::vector<int32_t>& sequence_lengths, const void* host_reserved,
                         int64_t num_bytes);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_HOST_RESERVED_H_
