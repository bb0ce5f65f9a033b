// The header that a training forward pass leaves for its gradient: at the start of a CPU's reserve
// space, and in the host_reserved tensor of TensorFlow's ops. The gradient refuses the header of
// another model, shape or call.
#ifndef CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_
#define CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

constexpr int64_t kReserveHeaderBytes = 64;

// Identifies the plan and the forward call that a header belongs to.
struct ReserveSpaceIdentity {
  uint64_t plan = 0;      // PlanFingerprint of the config and the shape
  uint64_t output_h = 0;  // Fingerprint of the call's final hidden states; 0 in host_reserved
  uint64_t lengths = 0;   // Fingerprint of the call's sequence lengths; 0 if all are full
};

// Returns a 64-bit hash of the bytes, seeded with `start`.
uint64_t Fingerprint(const void* data, int64_t num_bytes, uint64_t start = 0);

// Returns a hash of every field that affects the contents of the reserve space.
uint64_t PlanFingerprint(const RnnConfig& config, const SequenceShape& shape);

// Returns the identity of a call, without output_h. `sequence_lengths` are those of CallOptions.
ReserveSpaceIdentity IdentityOf(const RnnConfig& config, const SequenceShape& shape,
                                const std::vector<int32_t>& sequence_lengths);

// Writes kReserveHeaderBytes bytes.
void WriteReserveHeader(const ReserveSpaceIdentity& identity, int64_t dropout_call_index,
                        void* reserve_space);

// `name` is that of the tensor, for the message.
Status CheckReserveSpaceSize(int64_t num_bytes, int64_t expected_bytes,
                             const char* name = "reserve_space");

// Fails unless the reserve space has the expected size and identity. Returns the call number of the
// forward pass's dropout pattern in `dropout_call_index`.
Status ReadReserveHeader(const ReserveSpaceIdentity& identity, int64_t expected_bytes,
                         const void* reserve_space, int64_t num_bytes, int64_t* dropout_call_index,
                         const char* name = "reserve_space");

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_
