#include "tests/core/emulated/bfloat16_instructions.h"

// After the emulation, which redefines intrinsics.
#include "cudnn_rnn/cc/cpu/kernels_avx512_bf16.cc"
