// The host_reserved tensor of the V2 and V3 ops, in host memory. A training forward pass records in
// it which model, shape and lengths its reserve space belongs to, and the gradient checks them.
// (TensorFlow's own kernels store the chosen algorithm there.)
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

// Fails unless WriteHostReserved wrote these bytes for the same arguments.
Status CheckHostReserved(const RnnConfig& config, const SequenceShape& shape,
                         const std::vector<int32_t>& sequence_lengths, const void* host_reserved,
                         int64_t num_bytes);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_HOST_RESERVED_H_
