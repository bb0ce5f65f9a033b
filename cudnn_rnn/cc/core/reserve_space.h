// What a training forward pass leaves for its gradient starts with a header, so that a reserve
// space of another model, another shape or another call is refused and never read as data.
#ifndef CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_
#define CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

constexpr int64_t kReserveHeaderBytes = 64;

// Identifies what a reserve space was made for.
struct ReserveSpaceIdentity {
  uint64_t plan = 0;      // of the config and the shape: PlanFingerprint
  uint64_t output_h = 0;  // of the call: Fingerprint of its final hidden states
  uint64_t lengths = 0;   // of the call: Fingerprint of its sequence lengths, 0 where all are full
};

// A 64-bit hash of the bytes.
uint64_t Fingerprint(const void* data, int64_t num_bytes, uint64_t start = 0);

// A hash of everything that shapes the reserve space.
uint64_t PlanFingerprint(const RnnConfig& config, const SequenceShape& shape);

void WriteReserveHeader(const ReserveSpaceIdentity& identity, int64_t dropout_call,
                        void* reserve_space);

Status CheckReserveSpaceSize(int64_t num_bytes, int64_t expected_bytes);

// Fails unless the reserve space has the expected length and identity; gives the number under
// which the forward pass drew its dropout pattern.
Status ReadReserveHeader(const ReserveSpaceIdentity& identity, int64_t expected_bytes,
                         const void* reserve_space, int64_t num_bytes, int64_t* dropout_call);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_
