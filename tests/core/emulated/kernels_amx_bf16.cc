#include "tests/core/emulated/bfloat16_instructions.h"

// After the emulation, which redefines intrinsics.
#include "cudnn_rnn/cc/cpu/kernels_amx_bf16.cc"
