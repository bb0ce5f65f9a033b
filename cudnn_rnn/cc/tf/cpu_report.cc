#include "cudnn_rnn/cc/tf/cpu_report.h"

#include <string>

#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/cpu/instruction_set.h"
#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

std::string ReportOn(DataType data_type) {
  InstructionSetChoice choice;
  const Status status = ChooseInstructionSet(ReadEnvironment(kInstructionSetVariable), data_type,
                                             ThisProcessor(), &choice);
  if (!status.ok()) return status.message();
  return Concatenate(Name(choice.instruction_set), ", ", choice.reason);
}

}  // namespace
}  // namespace cudnn_rnn

const char* cudnn_rnn_cpu_report(void) {
  using namespace cudnn_rnn;  // NOLINT: C functions are outside the namespace
  static thread_local std::string text;
  const Status status = CatchExceptions([] {
    text.clear();
    for (DataType data_type : {DataType::kFloat, DataType::kHalf, DataType::kBfloat16}) {
      text += Concatenate(Name(data_type), ": ", ReportOn(data_type), "\n");
    }
    return Status();
  });
  return status.ok() ? text.c_str() : kOutOfHostMemoryText;
}
