// The choice of the instruction set that computes a model on this processor.
#ifndef CUDNN_RNN_CC_CPU_INSTRUCTION_SET_H_
#define CUDNN_RNN_CC_CPU_INSTRUCTION_SET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"

// Defined if the compiler supports the bfloat16 products of AVX-512 and of AMX, respectively.
#if defined(__x86_64__) && \
    ((defined(__clang__) && __clang_major__ >= 10) || (!defined(__clang__) && __GNUC__ >= 11))
#define CUDNN_RNN_HAS_AVX512_BF16
#endif
#if defined(CUDNN_RNN_HAS_AVX512_BF16) && (!defined(__clang__) || __clang_major__ >= 12)
#define CUDNN_RNN_HAS_AMX_BF16
#endif
// Defined if the compiler supports the bfloat16 products of NEON in functions of their own.
#if defined(__aarch64__) && \
    ((defined(__clang__) && __clang_major__ >= 16) || (!defined(__clang__) && __GNUC__ >= 10))
#define CUDNN_RNN_HAS_NEON_BF16
#endif

namespace cudnn_rnn {

enum class Architecture { kX86, kArm, kOther };  // the first two of 64 bits

// Each includes those before it of the same architecture; all architectures have kPortable.
enum class InstructionSet { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16, kNeon, kNeonBf16 };

// Returns the name that selects an instruction set, such as portable, avx2 or neon_bf16.
const char* Name(InstructionSet instruction_set);

// Returns the instruction sets of an architecture, whether or not a processor has them.
const std::vector<InstructionSet>& InstructionSetsOf(Architecture architecture);

// What the choice of kernels and of the schedule depends on; instruction sets are those that the
// processor and this build support.
struct Processor {
  bool has_avx2 = false;    // and FMA
  bool has_avx512 = false;  // F, DQ, BW and VL
  bool has_avx512_bf16 = false;
  bool has_amx_bf16 = false;
  // AMD's processors compute bfloat16 dot products of vectors (AVX512-BF16) at the rate of float
  // multiply-adds, Intel's at half that rate or less.
  bool is_amd = false;
  bool has_neon_bf16 = false;  // FEAT_BF16: BFDOT and BFCVTN. Every 64-bit ARM processor has NEON.
  int64_t core_cache_bytes = 0;  // the L2 cache of a core; 0 if the system does not tell
  // Requests the system's permission to use AMX; returns 0, or the error as in errno. Without the
  // permission, AMX instructions end the process. It holds for all threads of the process, older
  // ones as well, and for processes that it forks.
  int (*request_amx)() = nullptr;
  Architecture architecture = Architecture::kOther;
};

const Processor& ThisProcessor();

// The formats that products may convert their factors to. A plan converts only where it is faster.
enum class FactorFormat {
  kExact,
  kSplit,    // represent each by the sum of two bfloat16 numbers
  kRounded,  // round each to bfloat16
};

// Two bfloat16 numbers hold the 11 significant bits of a half exactly.
FactorFormat FactorFormatOf(DataType data_type, Precision precision);

// With fewer sequences, splitting the weights takes longer than computing with exact factors. A
// call with fewer units or steps than below is small and needs more sequences.
constexpr int64_t kMinSplitRows = 8, kMinSplitRowsIfSmall = 16;
constexpr int64_t kMinUnitsToSplit = 96, kMinStepsToSplit = 8;

struct InstructionSetChoice {
  InstructionSet instruction_set;
  std::string reason;  // for the user, after "avx512: "
};

// Returns the fastest instruction set for such factors. The choice depends on the processor and on
// request_amx alone, so that results are the same in each run. Requests AMX only for factors that
// are not exact.
InstructionSetChoice FastestInstructionSet(FactorFormat factors, const Processor& processor);

// Chooses the instruction set named `wanted`; for an empty name, the fastest one. If that has no
// kernels for such factors, the next lower one that has kernels for exact factors is chosen. Fails
// if the processor's architecture has no instruction set of that name, if the processor lacks it,
// or if the system refuses AMX that the model would use.
Status ChooseInstructionSet(const std::string& wanted, FactorFormat factors,
                            const Processor& processor, InstructionSetChoice* choice);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_INSTRUCTION_SET_H_
