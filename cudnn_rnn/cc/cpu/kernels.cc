#include "cudnn_rnn/cc/cpu/kernels.h"

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

}  // namespace

template <typename T>
Status ChooseKernels(const std::string& wanted, const Kernels<T>** kernels) {
  const Kernels<T>* avx512 = ProcessorHasAvx512() ? Avx512Kernels(T()) : nullptr;
  const Kernels<T>* avx2 = ProcessorHasAvx2() ? Avx2Kernels(T()) : nullptr;
  const Kernels<T>* portable = PortableKernels(T());
  if (wanted.empty()) {
    *kernels = avx512 != nullptr ? avx512 : avx2 != nullptr ? avx2 : portable;
    return Status();
  }
  if (wanted != "avx512" && wanted != "avx2" && wanted != "portable") {
    return InvalidArgument("The environment variable ", kInstructionSetVariable,
                           " must be portable, avx2 or avx512, but is '", wanted, "'.");
  }
  *kernels = wanted == "avx512" ? avx512 : wanted == "avx2" ? avx2 : portable;
  if (*kernels != nullptr) return Status();
  return InvalidArgument("The environment variable ", kInstructionSetVariable, " is ", wanted,
                         ", which this processor does not run; unset it, or use ",
                         avx2 != nullptr ? "avx2 or portable." : "portable.");
}

template Status ChooseKernels<float>(const std::string&, const Kernels<float>** kernels);
template Status ChooseKernels<double>(const std::string&, const Kernels<double>** kernels);

}  // namespace cudnn_rnn
