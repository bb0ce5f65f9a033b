#include "tests/core/emulated/bfloat16_instructions.h"

// After the emulation, which redefines intrinsics.
#include "cudnn_rnn/cc/cpu/instruction_set.cc"
