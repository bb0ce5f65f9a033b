// The choice of the instruction set that computes a model on this processor.
#ifndef CUDNN_RNN_CC_CPU_INSTRUCTION_SET_H_
#define CUDNN_RNN_CC_CPU_INSTRUCTION_SET_H_

#include <cstdint>
#include <string>

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

namespace cudnn_rnn {

// Each includes those before it. kAmxBf16x3 is kAmxBf16 with three bfloat16 products for each
// product of floats; see kernels.h.
enum class InstructionSet { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16, kAmxBf16x3 };

// Returns portable, avx2, avx512, avx512_bf16, amx_bf16 or amx_bf16x3.
const char* Name(InstructionSet instruction_set);

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
  int64_t core_cache_bytes = 0;  // the L2 cache of a core; 0 if the system does not tell
  // Requests the system's permission to use AMX; returns 0, or the error as in errno. Without the
  // permission, AMX instructions end the process. It holds for all threads of the process, older
  // ones as well, and for processes that it forks.
  int (*request_amx)() = nullptr;
};

const Processor& ThisProcessor();

// Half models of fewer sequences are computed as float models are.
constexpr int64_t kMinSplitRows = 16;

struct InstructionSetChoice {
  InstructionSet instruction_set;
  std::string reason;  // for the user, after "avx512: "
};

// Returns the fastest instruction set for models of `data_type`. The choice depends on the
// processor and on request_amx alone, so that results are the same in each run. Requests AMX only
// for the 16-bit types.
InstructionSetChoice FastestInstructionSet(DataType data_type, const Processor& processor);

// Chooses the instruction set named `wanted`; for an empty name, the fastest one. If that has no
// kernels for `data_type`, the next lower one that has is chosen: amx_bf16x3 has them for half and
// float, amx_bf16 and avx512_bf16 for bfloat16. Fails if the name is unknown, if the processor
// lacks the instruction set, or if the system refuses AMX that the model would use.
Status ChooseInstructionSet(const std::string& wanted, DataType data_type,
                            const Processor& processor, InstructionSetChoice* choice);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_INSTRUCTION_SET_H_
