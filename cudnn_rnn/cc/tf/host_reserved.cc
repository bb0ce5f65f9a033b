#include "cudnn_rnn/cc/tf/host_reserved.h"

#include <cstring>

#include "cudnn_rnn/cc/core/reserve_space.h"

namespace cudnn_rnn {
namespace {

constexpr uint64_t kMagic = 0x43524e4e484f5331ull;

struct Contents {
  uint64_t magic;
  uint64_t plan;     // PlanFingerprint
  uint64_t lengths;  // Fingerprint of the sequence lengths
};
static_assert(sizeof(Contents) <= kHostReservedBytes, "the contents must fit their place");

Contents ContentsFor(const RnnConfig& config, const SequenceShape& shape,
                     const std::vector<int32_t>& sequence_lengths) {
  const int64_t lengths_bytes = static_cast<int64_t>(sequence_lengths.size() * sizeof(int32_t));
  return {kMagic, PlanFingerprint(config, shape),
          Fingerprint(sequence_lengths.data(), lengths_bytes)};
}

}  // namespace

void WriteHostReserved(const RnnConfig& config, const SequenceShape& shape,
                       const std::vector<int32_t>& sequence_lengths, void* host_reserved) {
  const Contents contents = ContentsFor(config, shape, sequence_lengths);
  std::memset(host_reserved, 0, kHostReservedBytes);
  std::memcpy(host_reserved, &contents, sizeof(contents));
}

Status CheckHostReserved(const RnnConfig& config, const SequenceShape& shape,
                         const std::vector<int32_t>& sequence_lengths, const void* host_reserved,
                         int64_t num_bytes) {
  if (num_bytes != kHostReservedBytes) {
    return InvalidArgument(
        "host_reserved must have ", kHostReservedBytes, " bytes, but has ", num_bytes,
        "; pass the host_reserved that the forward call with is_training=True returned (it is "
        "empty with is_training=False).");
  }
  const Contents expected = ContentsFor(config, shape, sequence_lengths);
  Contents found;
  std::memcpy(&found, host_reserved, sizeof(found));
  if (found.magic != expected.magic || found.plan != expected.plan) {
    return InvalidArgument(
        "host_reserved was not made for this model and input: the forward call that returned it "
        "had another rnn_mode, input_mode, direction, dropout, seed, dtype or shape. Pass the "
        "host_reserved and reserve_space of the forward call that this gradient belongs to.");
  }
  if (found.lengths != expected.lengths) {
    return InvalidArgument(
        "host_reserved was made with other sequence_lengths. Pass the sequence_lengths of the "
        "forward call that this gradient belongs to.");
  }
  return Status();
}

}  // namespace cudnn_rnn
