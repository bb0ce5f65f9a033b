// What fuzzers call, with any bytes. A target returns, or it ends the process with a message of its
// own or of a sanitizer.
#ifndef CUDNN_RNN_TESTS_FUZZ_FUZZ_TARGETS_H_
#define CUDNN_RNN_TESTS_FUZZ_FUZZ_TARGETS_H_

#include <cstddef>
#include <cstdint>

namespace cudnn_rnn {

struct FuzzTarget {
  const char* name;
  void (*run)(const uint8_t* data, size_t size);
};

// sizes: models and shapes of any size are checked, and laid out if they are valid, but not run.
// plan: small models run forward and backward, with threads, packed weights, damaged reserve
// spaces. c_api: the C API with any numbers, and buffers of the sizes that it names.
extern const FuzzTarget kFuzzTargets[3];

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_FUZZ_FUZZ_TARGETS_H_
