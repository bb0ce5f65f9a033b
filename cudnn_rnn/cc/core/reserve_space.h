// The header that a training forward pass leaves for its gradient: at the start of a CPU's reserve
// space, and in the host_reserved tensor of TensorFlow's ops. The gradient refuses the header of
// another model, shape or call.
//
// The reserve space is a tensor of floating-point numbers, in which tools look for NaN and
// infinity. A header therefore has one byte of information in every two bytes, the lower ones: read
// as half, bfloat16, float or double, each of its elements is a finite number.
//
// A GPU's reserve space has no header, because the host could not read it without waiting for the
// device. The number of its elements carries the ForwardChoice instead. Unlike host_reserved, it is
// available to all versions of the ops, and it survives copies of the tensor.
#ifndef CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_
#define CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {

// A multiple of the alignment of what follows the header.
constexpr int64_t kReserveHeaderBytes = 192;

// The settings that a gradient reads from the header of the forward call: the attributes that a
// dropout pattern depends on, and the precision.
struct ForwardSettings {
  float dropout = 0;
  int64_t seed = 0;
  int64_t seed2 = 0;
  Precision precision = Precision::kDefault;
};

// Identifies the plan and the forward call that a header belongs to.
struct ReserveSpaceIdentity {
  uint64_t plan = 0;      // PlanFingerprint of the config and the shape
  uint64_t output_h = 0;  // Fingerprint of the call's final hidden states; 0 in host_reserved
  uint64_t lengths = 0;   // Fingerprint of the call's sequence lengths; 0 if all are full
  // For TakeSettingsFromHeader. The checks do not compare them: `plan` covers the dropout, and
  // gradients may have another precision.
  ForwardSettings settings;
};

// Returns a 64-bit hash of the bytes, seeded with `start`.
uint64_t Fingerprint(const void* data, int64_t num_bytes, uint64_t start = 0);

// Returns a hash of every field that affects the contents of the reserve space.
uint64_t PlanFingerprint(RnnConfig config, const SequenceShape& shape);

// Returns the identity of a call, without output_h. `sequence_lengths` are those of CallOptions.
ReserveSpaceIdentity IdentityOf(const RnnConfig& config, const SequenceShape& shape,
                                const std::vector<int32_t>& sequence_lengths);

// Writes kReserveHeaderBytes bytes.
void WriteReserveHeader(const ReserveSpaceIdentity& identity, int64_t dropout_call_index,
                        void* reserve_space, const ForwardChoice& choice = ForwardChoice());

// Sets the config's precision to that of the forward call that wrote the header. If the config's
// dropout and seeds are all 0, replaces them as well. (The gradient that TensorFlow 1.0 registered
// leaves these attributes out, so they have their defaults in its graphs.) Does nothing if the
// memory has no valid header.
void TakeSettingsFromHeader(const void* reserve_space, int64_t num_bytes, RnnConfig* config);

// `name` is that of the tensor, for the message.
Status CheckReserveSpaceSize(int64_t num_bytes, int64_t expected_bytes,
                             const char* name = "reserve_space");

// Fails unless the reserve space has the expected size and identity. Returns the call number of the
// forward pass's dropout pattern in `dropout_call_index`, and its choice in `choice` unless null.
Status ReadReserveHeader(const ReserveSpaceIdentity& identity, int64_t expected_bytes,
                         const void* reserve_space, int64_t num_bytes, int64_t* dropout_call_index,
                         const char* name = "reserve_space", ForwardChoice* choice = nullptr);

// Returns the number of elements of a reserve space of `bytes` bytes: as few as possible without a
// choice, otherwise a multiple of 32 plus the choice's code. Nothing reads the additional elements.
int64_t ReserveSpaceElements(int64_t bytes, int64_t element_size, const ForwardChoice& choice);
// Returns the choice that the number of elements carries. Meaningless if there was no choice.
ForwardChoice ChoiceOfReserveSpace(int64_t num_elements);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_RESERVE_SPACE_H_
