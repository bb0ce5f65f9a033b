#include "cudnn_rnn/cc/core/reserve_space.h"

#include <cstring>

namespace cudnn_rnn {
namespace {

constexpr uint64_t kMagic = 0x43524e4e52535632ull;

struct Header {
  uint64_t magic;
  uint64_t plan;
  uint64_t output_h;
  uint64_t lengths;
  int64_t seed;
  int64_t seed2;
  int64_t dropout_call_index;
  float dropout;
  int32_t choice;  // CodeOf, and the precision * kNumChoiceCodes
};
static_assert(2 * sizeof(Header) <= kReserveHeaderBytes, "the header must fit its place");

// Codes of choices are below this number; the code of no choice is 0.
constexpr int64_t kNumChoiceCodes = 32;

int64_t CodeOf(const ForwardChoice& choice) {
  return choice.algorithm * 4 + (choice.allow_tf32 ? 2 : 0) + (choice.uses_dropout ? 1 : 0);
}

ForwardChoice ChoiceOf(int64_t code) {
  ForwardChoice choice;
  choice.algorithm = static_cast<int32_t>(code / 4);
  choice.allow_tf32 = code % 4 >= 2;
  choice.uses_dropout = code % 2 == 1;
  return choice;
}

Header LoadHeader(const void* reserve_space) {
  const unsigned char* const encoded = static_cast<const unsigned char*>(reserve_space);
  unsigned char bytes[sizeof(Header)];
  for (size_t i = 0; i < sizeof(bytes); ++i) bytes[i] = encoded[2 * i];
  Header header;
  std::memcpy(&header, bytes, sizeof(header));
  return header;
}

// The upper byte of each pair, which contains the sign and most or all of a 16-bit number's
// exponent, is 0. A wider number has a part of such a pair at its upper end.
void StoreHeader(const Header& header, void* reserve_space) {
  unsigned char bytes[sizeof(Header)];
  std::memcpy(bytes, &header, sizeof(header));
  unsigned char* const encoded = static_cast<unsigned char*>(reserve_space);
  std::memset(encoded, 0, kReserveHeaderBytes);
  for (size_t i = 0; i < sizeof(bytes); ++i) encoded[2 * i] = bytes[i];
}

// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

}  // namespace

uint64_t Fingerprint(const void* data, int64_t num_bytes, uint64_t start) {
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  uint64_t hash = Mix(start + static_cast<uint64_t>(num_bytes) + 1);
  while (num_bytes > 0) {
    uint64_t word = 0;
    const int64_t count = num_bytes < 8 ? num_bytes : 8;
    std::memcpy(&word, bytes, static_cast<size_t>(count));
    hash = Mix(hash ^ word) + 0x9e3779b97f4a7c15ull;
    bytes += count;
    num_bytes -= count;
  }
  return hash;
}

uint64_t PlanFingerprint(RnnConfig config, const SequenceShape& shape) {
  config.precision = Precision::kDefault;
  const ConfigKey model = KeyOf(config);
  const int64_t fields[] = {shape.num_steps, shape.batch_size, shape.time_major ? 1 : 0};
  return Fingerprint(fields, sizeof(fields), Fingerprint(model.data(), sizeof(model)));
}

ReserveSpaceIdentity IdentityOf(const RnnConfig& config, const SequenceShape& shape,
                                const std::vector<int32_t>& sequence_lengths) {
  ReserveSpaceIdentity identity;
  identity.plan = PlanFingerprint(config, shape);
  identity.settings = {config.dropout, config.seed, config.seed2, config.precision};
  if (HasPadding(sequence_lengths, shape)) {
    identity.lengths = Fingerprint(sequence_lengths.data(),
                                   shape.batch_size * static_cast<int64_t>(sizeof(int32_t)));
  }
  return identity;
}

void WriteReserveHeader(const ReserveSpaceIdentity& identity, int64_t dropout_call_index,
                        void* reserve_space, const ForwardChoice& choice) {
  const ForwardSettings& settings = identity.settings;
  const int64_t precision = static_cast<int64_t>(settings.precision);
  StoreHeader({kMagic, identity.plan, identity.output_h, identity.lengths, settings.seed,
               settings.seed2, dropout_call_index, settings.dropout,
               static_cast<int32_t>(CodeOf(choice) + precision * kNumChoiceCodes)},
              reserve_space);
}

void TakeSettingsFromHeader(const void* reserve_space, int64_t num_bytes, RnnConfig* config) {
  if (num_bytes < kReserveHeaderBytes) return;
  const Header header = LoadHeader(reserve_space);
  if (header.magic != kMagic) return;
  const int64_t precision = header.choice / kNumChoiceCodes;
  if (precision < 0 || precision > static_cast<int64_t>(Precision::kMedium)) return;
  config->precision = static_cast<Precision>(precision);
  if (config->dropout != 0 || config->seed != 0 || config->seed2 != 0) return;
  config->dropout = header.dropout;
  config->seed = header.seed;
  config->seed2 = header.seed2;
}

Status CheckReserveSpaceSize(int64_t num_bytes, int64_t expected_bytes, const char* name) {
  if (num_bytes == expected_bytes) return Status();
  return InvalidArgument(name, " must have ", expected_bytes,
                         " bytes for this model and input, but has ", num_bytes, "; pass the ",
                         name,
                         " that the forward call with is_training=True returned on the same "
                         "device (it is empty with is_training=False).");
}

Status ReadReserveHeader(const ReserveSpaceIdentity& identity, int64_t expected_bytes,
                         const void* reserve_space, int64_t num_bytes, int64_t* dropout_call_index,
                         const char* name, ForwardChoice* choice) {
  CUDNN_RNN_RETURN_IF_ERROR(CheckReserveSpaceSize(num_bytes, expected_bytes, name));
  const Header header = LoadHeader(reserve_space);
  if (header.magic != kMagic) {
    return InvalidArgument(
        name,
        " has no header of a forward call: it was not made for this model and input, or was "
        "changed on the way to the gradient. Casts that a graph optimizer puts between the two "
        "change it: switch off auto_mixed_precision_cpu and auto_mixed_precision in the session's "
        "rewrite_options.");
  }
  if (header.plan != identity.plan) {
    return InvalidArgument(
        name,
        " was not made for this model and input: its header differs in rnn_mode, input_mode, "
        "direction, dropout, seeds, dtype or shapes. Pass the ",
        name,
        " of the forward call that "
        "this gradient belongs to.");
  }
  if (header.output_h != identity.output_h) {
    return InvalidArgument(
        name,
        " is that of another forward call: output_h is not the one that was "
        "returned together with it. Pass output, output_h, output_c and reserve_space of one "
        "forward call.");
  }
  if (header.lengths != identity.lengths) {
    return InvalidArgument(name,
                           " is that of a forward call with other sequence_lengths. Pass the "
                           "sequence_lengths of the forward call that this gradient belongs to.");
  }
  *dropout_call_index = header.dropout_call_index;
  if (choice != nullptr) *choice = ChoiceOf(header.choice % kNumChoiceCodes);
  return Status();
}

int64_t ReserveSpaceElements(int64_t bytes, int64_t element_size, const ForwardChoice& choice) {
  const int64_t elements = (bytes + element_size - 1) / element_size;
  const int64_t code = CodeOf(choice);
  if (code == 0) return elements;
  return (elements + kNumChoiceCodes - 1) / kNumChoiceCodes * kNumChoiceCodes + code;
}

ForwardChoice ChoiceOfReserveSpace(int64_t num_elements) {
  return ChoiceOf(num_elements % kNumChoiceCodes);
}

}  // namespace cudnn_rnn
