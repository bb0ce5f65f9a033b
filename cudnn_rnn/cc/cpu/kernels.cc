#include "cudnn_rnn/cc/cpu/kernels.h"

#include <algorithm>
#include <iterator>

namespace cudnn_rnn {
namespace {

bool ProcessorHasAvx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool ProcessorHasAvx512() {
#if defined(__x86_64__)
  return ProcessorHasAvx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

bool ProcessorHasAvx512Bf16() {
#if defined(CUDNN_RNN_HAS_AVX512_BF16)
  return ProcessorHasAvx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

const Kernels<float>* Avx512Bf16KernelsFor(DataType data_type, float) {
  return data_type == DataType::kBfloat16 ? Avx512Bf16Kernels() : Avx512Kernels(float());
}
const Kernels<double>* Avx512Bf16KernelsFor(DataType, double) { return Avx512Kernels(double()); }

}  // namespace

template <typename T>
Status ChooseKernels(const std::string& wanted, DataType data_type, const Kernels<T>** kernels) {
  struct Candidate {
    const char* instruction_set;
    const Kernels<T>* kernels;  // null where this processor does not run them
  };
  const Candidate candidates[] = {
      {"avx512_bf16", ProcessorHasAvx512Bf16() ? Avx512Bf16KernelsFor(data_type, T()) : nullptr},
      {"avx512", ProcessorHasAvx512() ? Avx512Kernels(T()) : nullptr},
      {"avx2", ProcessorHasAvx2() ? Avx2Kernels(T()) : nullptr},
      {"portable", PortableKernels(T())}};
  const Candidate* chosen =
      std::find_if(std::begin(candidates), std::end(candidates), [&](const Candidate& candidate) {
        return wanted.empty() ? candidate.kernels != nullptr : wanted == candidate.instruction_set;
      });
  if (chosen == std::end(candidates)) {
    return InvalidArgument("The environment variable ", kInstructionSetVariable,
                           " must be portable, avx2, avx512 or avx512_bf16, but is '", wanted,
                           "'.");
  }
  *kernels = chosen->kernels;
  if (*kernels != nullptr) return Status();
  return InvalidArgument("The environment variable ", kInstructionSetVariable, " is ", wanted,
                         ", which this processor does not run; unset it, or use ",
                         ProcessorHasAvx2() ? "avx2 or portable." : "portable.");
}

template Status ChooseKernels<float>(const std::string&, DataType, const Kernels<float>** kernels);
template Status ChooseKernels<double>(const std::string&, DataType,
                                      const Kernels<double>** kernels);

}  // namespace cudnn_rnn
