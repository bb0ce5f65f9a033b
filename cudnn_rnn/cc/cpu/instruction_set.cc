#include "cudnn_rnn/cc/cpu/instruction_set.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#if defined(CUDNN_RNN_HAS_AMX_BF16) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif
#if defined(CUDNN_RNN_HAS_NEON_BF16) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__linux__)
#include <unistd.h>
#endif

namespace cudnn_rnn {
namespace {

// In the order of InstructionSet.
const char* const kNames[] = {"portable", "avx2", "avx512",   "avx512_bf16",
                              "amx_bf16", "neon", "neon_bf16"};

#if defined(CUDNN_RNN_EMULATES_AMX_BF16)  // tests/core/emulated
bool HasAmxBf16() { return true; }
int RequestAmx() { return 0; }
#elif defined(CUDNN_RNN_HAS_AMX_BF16) && defined(__linux__)
bool HasAmxBf16() {
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kBf16) != 0 &&
         (edx & kTiles) != 0;
}
int RequestAmx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl's, since Linux 5.16
  static const int error = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
  return error;
}
#else
bool HasAmxBf16() { return false; }
int RequestAmx() { return ENOSYS; }
#endif

bool HasNeonBf16() {
#if defined(CUDNN_RNN_HAS_NEON_BF16) && defined(__linux__)
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16, which headers before Linux 5.6 lack
  return (getauxval(AT_HWCAP2) & kBf16) != 0;
#else
  return false;
#endif
}

int64_t CoreCacheBytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  return std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
#else
  return 0;
#endif
}

Processor DetectProcessor() {
  Processor processor;
  processor.core_cache_bytes = CoreCacheBytes();
#if defined(__x86_64__)
  processor.architecture = Architecture::kX86;
  processor.has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  processor.has_avx512 = processor.has_avx2 && __builtin_cpu_supports("avx512f") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl");
  processor.is_amd = __builtin_cpu_is("amd");
#elif defined(__aarch64__)
  processor.architecture = Architecture::kArm;
#endif
#if defined(CUDNN_RNN_EMULATES_AVX512_BF16)  // tests/core/emulated
  processor.has_avx512_bf16 = processor.has_avx512;
#elif defined(CUDNN_RNN_HAS_AVX512_BF16)
  processor.has_avx512_bf16 = processor.has_avx512 && __builtin_cpu_supports("avx512bf16");
#endif
  // The kernels for AMX round with AVX512-BF16.
  processor.has_amx_bf16 = processor.has_avx512_bf16 && HasAmxBf16();
  processor.request_amx = RequestAmx;
  processor.has_neon_bf16 = HasNeonBf16();
  return processor;
}

bool Supports(const Processor& processor, InstructionSet instruction_set) {
  switch (instruction_set) {
    case InstructionSet::kPortable:
      return true;
    case InstructionSet::kAvx2:
      return processor.has_avx2;
    case InstructionSet::kAvx512:
      return processor.has_avx512;
    case InstructionSet::kAvx512Bf16:
      return processor.has_avx512_bf16;
    case InstructionSet::kAmxBf16:
      return processor.has_amx_bf16;
    case InstructionSet::kNeon:
      return processor.architecture == Architecture::kArm;
    case InstructionSet::kNeonBf16:
      return processor.has_neon_bf16;
  }
  return false;
}

// Returns the highest instruction set, up to `limit`, that has kernels of its own for factors.
InstructionSet HighestWithKernels(InstructionSet limit, FactorFormat factors) {
  switch (limit) {
    case InstructionSet::kAmxBf16:
      return factors == FactorFormat::kExact ? InstructionSet::kAvx512 : limit;
    case InstructionSet::kAvx512Bf16:
      return factors == FactorFormat::kRounded ? limit : InstructionSet::kAvx512;
    case InstructionSet::kNeonBf16:
      return factors == FactorFormat::kRounded ? limit : InstructionSet::kNeon;
    default:
      return limit;
  }
}

std::string RefusalOfAmx(int error) {
  const char* const cause =
      error == ENOSPC ? "a thread's alternate signal stack is too small for the AMX registers"
                      : std::strerror(error);
  return Concatenate("the system refuses AMX to this process (arch_prctl: ", cause, ")");
}

InstructionSetChoice FastestForExact(const Processor& processor) {
  if (processor.architecture == Architecture::kArm) {
    return {InstructionSet::kNeon, "all 64-bit ARM processors have NEON"};
  }
  if (processor.architecture == Architecture::kOther) {
    return {InstructionSet::kPortable, "the only kernels for this kind of processor"};
  }
  if (processor.has_avx512) return {InstructionSet::kAvx512, "the processor has AVX-512"};
  if (processor.has_avx2) {
    return {InstructionSet::kAvx2, "the processor has AVX2 and FMA, but not AVX-512 F, DQ, BW, VL"};
  }
  return {InstructionSet::kPortable, "the processor lacks AVX2 or FMA"};
}

// Returns why AMX cannot be used, or an empty text if it can.
std::string ReasonAgainstAmx(const Processor& processor) {
  if (!processor.has_amx_bf16) return "the processor or this build lacks AMX";
  const int error = processor.request_amx();
  return error == 0 ? "" : RefusalOfAmx(error);
}

// Returns the choice for exact factors, with the reason why others would not be faster.
InstructionSetChoice AsFloat(const Processor& processor, const std::string& reason) {
  return {FastestForExact(processor).instruction_set, "computed in float; " + reason};
}

InstructionSetChoice FastestForSplit(const Processor& processor) {
  const std::string without_amx = ReasonAgainstAmx(processor);
  if (!without_amx.empty()) return AsFloat(processor, without_amx);
  return {InstructionSet::kAmxBf16,
          Concatenate("for ", kMinSplitRows, " sequences or more (", kMinSplitRowsIfSmall,
                      " with fewer than ", kMinUnitsToSplit, " units or ", kMinStepsToSplit,
                      " steps), with two bfloat16 numbers for each factor: the processor has AMX; "
                      "fewer are computed in float")};
}

InstructionSetChoice FastestForRounded(const Processor& processor) {
  if (processor.has_neon_bf16) {
    return {InstructionSet::kNeonBf16, "the processor has bfloat16 dot products"};
  }
  if (processor.architecture != Architecture::kX86) {
    return AsFloat(processor, "the processor or this build lacks bfloat16 dot products");
  }
  const std::string without_amx = ReasonAgainstAmx(processor);
  if (without_amx.empty()) {
    return {InstructionSet::kAmxBf16, "the processor has AMX, and the system permits it"};
  }
  if (processor.has_avx512_bf16 && processor.is_amd) {
    return {InstructionSet::kAvx512Bf16,
            "AMD's bfloat16 dot products have the full rate; " + without_amx};
  }
  const char* const without_bf16 = processor.has_avx512_bf16
                                       ? "this processor's AVX512-BF16 is slower than float"
                                       : "the processor or this build lacks AVX512-BF16";
  std::string reason = Concatenate(without_amx, ", and ", without_bf16);
  if (FastestForExact(processor).instruction_set == InstructionSet::kAvx2) {
    reason +=
        "; recurrent weights too large for the caches are read as bfloat16, by up to 4 sequences";
  }
  return AsFloat(processor, reason);
}

// Returns the instruction sets to suggest if another one cannot be used.
std::vector<InstructionSet> SafeChoices(const Processor& processor) {
  for (InstructionSet one : {InstructionSet::kAvx2, InstructionSet::kNeon}) {
    if (Supports(processor, one)) return {one, InstructionSet::kPortable};
  }
  return {InstructionSet::kPortable};
}

// Returns the names as in "avx512, avx2 or portable".
std::string Alternatives(const std::vector<InstructionSet>& all) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    text += Concatenate(i == 0 ? "" : i + 1 == all.size() ? " or " : ", ", Name(all[i]));
  }
  return text;
}

}  // namespace

const char* Name(InstructionSet instruction_set) {
  return kNames[static_cast<size_t>(instruction_set)];
}

const std::vector<InstructionSet>& InstructionSetsOf(Architecture architecture) {
  static const std::vector<InstructionSet> x86 = {
      InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512,
      InstructionSet::kAvx512Bf16, InstructionSet::kAmxBf16};
  static const std::vector<InstructionSet> arm = {InstructionSet::kPortable, InstructionSet::kNeon,
                                                  InstructionSet::kNeonBf16};
  static const std::vector<InstructionSet> other = {InstructionSet::kPortable};
  return architecture == Architecture::kX86   ? x86
         : architecture == Architecture::kArm ? arm
                                              : other;
}

const Processor& ThisProcessor() {
  static const Processor processor = DetectProcessor();
  return processor;
}

FactorFormat FactorFormatOf(DataType data_type, Precision precision) {
  switch (data_type) {
    case DataType::kBfloat16:
      return FactorFormat::kRounded;
    case DataType::kHalf:
      return FactorFormat::kSplit;
    case DataType::kDouble:
      return FactorFormat::kExact;
    case DataType::kFloat:
      break;
  }
  if (precision == Precision::kMedium) return FactorFormat::kRounded;
  return precision == Precision::kHigh ? FactorFormat::kSplit : FactorFormat::kExact;
}

InstructionSetChoice FastestInstructionSet(FactorFormat factors, const Processor& processor) {
  switch (factors) {
    case FactorFormat::kRounded:
      return FastestForRounded(processor);
    case FactorFormat::kSplit:
      return FastestForSplit(processor);
    case FactorFormat::kExact:
      break;
  }
  return FastestForExact(processor);
}

Status ChooseInstructionSet(const std::string& wanted, FactorFormat factors,
                            const Processor& processor, InstructionSetChoice* choice) {
  if (wanted.empty()) {
    *choice = FastestInstructionSet(factors, processor);
    return Status();
  }
  const std::vector<InstructionSet>& all = InstructionSetsOf(processor.architecture);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](InstructionSet one) { return Name(one) == wanted; });
  if (found == all.end()) {
    return InvalidArgument("The instruction set must be ", Alternatives(all), ", but is '", wanted,
                           "'.");
  }
  const InstructionSet named = *found;
  const std::string instead = "; use the default, or " + Alternatives(SafeChoices(processor)) + ".";
  if (!Supports(processor, named)) {
    return InvalidArgument("This processor does not support the instruction set ", wanted, instead);
  }
  const InstructionSet chosen = HighestWithKernels(named, factors);
  const int error = chosen == InstructionSet::kAmxBf16 ? processor.request_amx() : 0;
  if (error != 0) {
    return InvalidArgument("The instruction set ", wanted, " cannot be used: ", RefusalOfAmx(error),
                           instead);
  }
  *choice = {chosen, chosen == named ? "requested by name"
                                     : Concatenate("requested as ", wanted,
                                                   ", which adds no kernels for such models")};
  return Status();
}

}  // namespace cudnn_rnn
