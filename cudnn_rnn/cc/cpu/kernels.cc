#include "cudnn_rnn/cc/cpu/kernels.h"

namespace cudnn_rnn {
namespace {

// Chosen once in a process.
template <DataType data_type>
InstructionSet Fastest() {
  static const InstructionSet fastest =
      FastestInstructionSet(data_type, ThisProcessor()).instruction_set;
  return fastest;
}

InstructionSet DefaultFor(DataType data_type) {
  switch (data_type) {
    case DataType::kHalf:
      return Fastest<DataType::kHalf>();
    case DataType::kBfloat16:
      return Fastest<DataType::kBfloat16>();
    case DataType::kFloat:
      return Fastest<DataType::kFloat>();
    case DataType::kDouble:
      break;
  }
  return Fastest<DataType::kDouble>();
}

// Only models computed in float have kernels with bfloat16 products.
const Kernels<float>* Bfloat16Kernels(InstructionSet instruction_set, float) {
  switch (instruction_set) {
    case InstructionSet::kAmxBf16x3:
      return AmxBf16x3Kernels();
    case InstructionSet::kAmxBf16:
      return AmxBf16Kernels();
    case InstructionSet::kNeonBf16:
      return NeonBf16Kernels();
    default:
      return Avx512Bf16Kernels();
  }
}
const Kernels<double>* Bfloat16Kernels(InstructionSet, double) { return nullptr; }

template <typename T>
const Kernels<T>* KernelsOf(InstructionSet instruction_set) {
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
    case InstructionSet::kAmxBf16x3:
    case InstructionSet::kNeonBf16:
      break;
  }
  return Bfloat16Kernels(instruction_set, T());
}

}  // namespace

template <typename T>
Status ChooseKernels(const std::string& wanted, DataType data_type, const Kernels<T>** kernels) {
  if (wanted.empty()) {
    *kernels = KernelsOf<T>(DefaultFor(data_type));
    return Status();
  }
  InstructionSetChoice choice;
  CUDNN_RNN_RETURN_IF_ERROR(ChooseInstructionSet(wanted, data_type, ThisProcessor(), &choice));
  *kernels = KernelsOf<T>(choice.instruction_set);
  return Status();
}

template Status ChooseKernels<float>(const std::string&, DataType, const Kernels<float>** kernels);
template Status ChooseKernels<double>(const std::string&, DataType,
                                      const Kernels<double>** kernels);

}  // namespace cudnn_rnn
