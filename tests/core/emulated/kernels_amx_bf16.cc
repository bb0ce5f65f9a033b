#include "tests/core/emulated/bfloat16_instructions.h"

// Behind it.
#include "cudnn_rnn/cc/cpu/kernels_amx_bf16.cc"
