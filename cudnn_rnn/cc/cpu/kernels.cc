#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {
namespace {

template <typename T>
const Kernels<T>* ExactKernels(InstructionSet instruction_set) {
  switch (instruction_set) {
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return Avx2Kernels<T>();
    case InstructionSet::kAvx512:
      return Avx512Kernels<T>();
#elif defined(__aarch64__)
    case InstructionSet::kNeon:
      return NeonKernels<T>();
#endif
    default:
      return PortableKernels<T>();
  }
}

const Kernels<float>* KernelsOf(InstructionSet instruction_set, FactorFormat factors, float) {
  if (factors == FactorFormat::kExact) return ExactKernels<float>(instruction_set);
  switch (instruction_set) {
#if defined(CUDNN_RNN_HAS_AVX512_BF16)
    case InstructionSet::kAvx512Bf16:
      return Avx512Bf16Kernels();
#endif
#if defined(CUDNN_RNN_HAS_AMX_BF16)
    case InstructionSet::kAmxBf16:
      return factors == FactorFormat::kSplit ? AmxSplitKernels() : AmxBf16Kernels();
#endif
#if defined(CUDNN_RNN_HAS_NEON_BF16)
    case InstructionSet::kNeonBf16:
      return NeonBf16Kernels();
#endif
    default:
      return ExactKernels<float>(instruction_set);
  }
}
const Kernels<double>* KernelsOf(InstructionSet instruction_set, FactorFormat, double) {
  return ExactKernels<double>(instruction_set);
}

}  // namespace

template <typename T>
Status ChooseKernels(const std::string& wanted, FactorFormat factors, const Kernels<T>** kernels) {
  InstructionSetChoice choice;
  CUDNN_RNN_RETURN_IF_ERROR(ChooseInstructionSet(wanted, factors, ThisProcessor(), &choice));
  *kernels = KernelsOf(choice.instruction_set, factors, T());
  return Status();
}

#if defined(__x86_64__)
const Kernels<float>* KernelsForFewRows(const Kernels<float>& exact) {
  return &exact == Avx2Kernels<float>() ? Avx2RoundedKernels() : nullptr;
}
#else
const Kernels<float>* KernelsForFewRows(const Kernels<float>&) { return nullptr; }
#endif

template Status ChooseKernels<float>(const std::string&, FactorFormat,
                                     const Kernels<float>** kernels);
template Status ChooseKernels<double>(const std::string&, FactorFormat,
                                      const Kernels<double>** kernels);

}  // namespace cudnn_rnn
