#include "cudnn_rnn/cc/cpu/kernels.h"

#include <algorithm>
#include <iterator>

#if defined(CUDNN_RNN_HAS_AMX_BF16) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace cudnn_rnn {
namespace {

// Used only when requested by name, even on processors that support it.
constexpr char kAmx[] = "amx_bf16";

#if defined(__x86_64__)
bool ProcessorHasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool ProcessorHasAvx512() {
  return ProcessorHasAvx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}
#else
bool ProcessorHasAvx2() { return false; }
bool ProcessorHasAvx512() { return false; }
#endif

bool ProcessorHasAvx512Bf16() {
#if defined(CUDNN_RNN_EMULATES_AVX512_BF16)  // tests/core/emulated
  return ProcessorHasAvx512();
#elif defined(CUDNN_RNN_HAS_AVX512_BF16)
  return ProcessorHasAvx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// AMX registers are so large that a process must request permission to use them, once. Threads that
// it creates later have the permission too.
bool ProcessorHasAmxBf16() {
#if defined(CUDNN_RNN_EMULATES_AMX_BF16)  // tests/core/emulated
  return ProcessorHasAvx512Bf16();
#elif defined(CUDNN_RNN_HAS_AMX_BF16) && defined(__linux__)
  static const bool has_amx = [] {
    constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl's, since Linux 5.16
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kBf16) != 0 &&
           (edx & kTiles) != 0 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return ProcessorHasAvx512Bf16() && has_amx;
#else
  return false;
#endif
}

// Returns Get() for bfloat16 models, the AVX-512 kernels for others.
template <const Kernels<float>* (*Get)()>
const Kernels<float>* Bfloat16Kernels(DataType data_type, float) {
  return data_type == DataType::kBfloat16 ? Get() : Avx512Kernels<float>();
}
template <const Kernels<float>* (*Get)()>
const Kernels<double>* Bfloat16Kernels(DataType, double) {
  return Avx512Kernels<double>();
}

}  // namespace

template <typename T>
Status ChooseKernels(const std::string& wanted, DataType data_type, const Kernels<T>** kernels) {
  struct Candidate {
    const char* instruction_set;
    const Kernels<T>* kernels;  // null if this processor does not support them
  };
  const bool wants_amx = wanted == kAmx;
  const Candidate candidates[] = {
      {kAmx, wants_amx && ProcessorHasAmxBf16() ? Bfloat16Kernels<AmxBf16Kernels>(data_type, T())
                                                : nullptr},
      {"avx512_bf16",
       ProcessorHasAvx512Bf16() ? Bfloat16Kernels<Avx512Bf16Kernels>(data_type, T()) : nullptr},
      {"avx512", ProcessorHasAvx512() ? Avx512Kernels<T>() : nullptr},
      {"avx2", ProcessorHasAvx2() ? Avx2Kernels<T>() : nullptr},
      {"portable", PortableKernels<T>()}};
  const Candidate* chosen =
      std::find_if(std::begin(candidates), std::end(candidates), [&](const Candidate& candidate) {
        return wanted.empty() ? candidate.kernels != nullptr : wanted == candidate.instruction_set;
      });
  if (chosen == std::end(candidates)) {
    return InvalidArgument(
        "The instruction set must be portable, avx2, avx512, avx512_bf16 or amx_bf16, but is '",
        wanted, "'.");
  }
  *kernels = chosen->kernels;
  if (*kernels != nullptr) return Status();
  return InvalidArgument("This processor does not support the instruction set ", wanted,
                         "; use the default, or ",
                         ProcessorHasAvx2() ? "avx2 or portable." : "portable.");
}

template Status ChooseKernels<float>(const std::string&, DataType, const Kernels<float>** kernels);
template Status ChooseKernels<double>(const std::string&, DataType,
                                      const Kernels<double>** kernels);

}  // namespace cudnn_rnn
