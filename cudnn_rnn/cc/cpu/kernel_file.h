// What each file of kernels (kernels_*.cc) needs: the headers that kernels.inc requires, and macros
// that compile a part of a file for processors with more features than the rest of the library.
//
// Functions shared with other files, such as those of headers, must stay outside of these parts.
#ifndef CUDNN_RNN_CC_CPU_KERNEL_FILE_H_
#define CUDNN_RNN_CC_CPU_KERNEL_FILE_H_

#include <cstddef>
#include <utility>

#include "cudnn_rnn/cc/core/float16.h"
#include "cudnn_rnn/cc/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define CUDNN_RNN_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define CUDNN_RNN_BEGIN_TARGET(features) \
  CUDNN_RNN_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define CUDNN_RNN_END_TARGET CUDNN_RNN_PRAGMA(clang attribute pop)
#define CUDNN_RNN_AVX512_FEATURES "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"
#else
#define CUDNN_RNN_BEGIN_TARGET(features) \
  CUDNN_RNN_PRAGMA(GCC push_options) CUDNN_RNN_PRAGMA(GCC target(features))
#define CUDNN_RNN_END_TARGET CUDNN_RNN_PRAGMA(GCC pop_options)
#define CUDNN_RNN_AVX512_FEATURES \
  "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512"
#endif

#endif  // CUDNN_RNN_CC_CPU_KERNEL_FILE_H_
