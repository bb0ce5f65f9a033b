#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {
namespace {

// Chosen once in a process.
template <FactorFormat factors>
InstructionSet Fastest() {
  static const InstructionSet fastest =
      FastestInstructionSet(factors, ThisProcessor()).instruction_set;
  return fastest;
}

InstructionSet DefaultFor(FactorFormat factors) {
  switch (factors) {
    case FactorFormat::kSplit:
      return Fastest<FactorFormat::kSplit>();
    case FactorFormat::kRounded:
      return Fastest<FactorFormat::kRounded>();
    case FactorFormat::kExact:
      break;
  }
  return Fastest<FactorFormat::kExact>();
}

// Only models computed in float have kernels with bfloat16 products.
const Kernels<float>* Bfloat16Kernels(InstructionSet instruction_set, FactorFormat factors, float) {
  switch (instruction_set) {
    case InstructionSet::kAmxBf16:
      return factors == FactorFormat::kSplit ? AmxSplitKernels() : AmxBf16Kernels();
    case InstructionSet::kNeonBf16:
      return NeonBf16Kernels();
    default:
      return Avx512Bf16Kernels();
  }
}
const Kernels<double>* Bfloat16Kernels(InstructionSet, FactorFormat, double) { return nullptr; }

template <typename T>
const Kernels<T>* KernelsOf(InstructionSet instruction_set, FactorFormat factors) {
  switch (instruction_set) {
    case InstructionSet::kPortable:
      return PortableKernels<T>();
    case InstructionSet::kAvx2:
      return Avx2Kernels<T>();
    case InstructionSet::kAvx512:
      return Avx512Kernels<T>();
    case InstructionSet::kNeon:
      return NeonKernels<T>();
    case InstructionSet::kAvx512Bf16:
    case InstructionSet::kAmxBf16:
    case InstructionSet::kNeonBf16:
      break;
  }
  return Bfloat16Kernels(instruction_set, factors, T());
}

}  // namespace

template <typename T>
Status ChooseKernels(const std::string& wanted, FactorFormat factors, const Kernels<T>** kernels) {
  if (wanted.empty()) {
    *kernels = KernelsOf<T>(DefaultFor(factors), factors);
    return Status();
  }
  InstructionSetChoice choice;
  CUDNN_RNN_RETURN_IF_ERROR(ChooseInstructionSet(wanted, factors, ThisProcessor(), &choice));
  *kernels = KernelsOf<T>(choice.instruction_set, factors);
  return Status();
}

template <>
const Kernels<float>* KernelsForFewRows(const Kernels<float>& exact) {
  return &exact == Avx2Kernels<float>() ? Avx2RoundedKernels() : nullptr;
}
template <>
const Kernels<double>* KernelsForFewRows(const Kernels<double>&) {
  return nullptr;
}

template Status ChooseKernels<float>(const std::string&, FactorFormat,
                                     const Kernels<float>** kernels);
template Status ChooseKernels<double>(const std::string&, FactorFormat,
                                      const Kernels<double>** kernels);

}  // namespace cudnn_rnn
