// Environment variables.
#ifndef CUDNN_RNN_CC_CORE_ENVIRONMENT_H_
#define CUDNN_RNN_CC_CORE_ENVIRONMENT_H_

#include <cstdlib>
#include <string>

namespace cudnn_rnn {

// Names the instruction set of the CPU kernels (cpu/instruction_set.h).
constexpr char kInstructionSetVariable[] = "CUDNN_RNN_CPU_INSTRUCTION_SET";

// Returns the value of a variable, or an empty string if it is unset. Only for what happens once,
// such as creating a kernel: a program may change its environment while kernels run.
inline std::string ReadEnvironment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_ENVIRONMENT_H_
