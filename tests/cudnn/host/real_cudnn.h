// The real cuDNN beside the mock, on a machine without a GPU: only the functions that take no
// handle. They work on the host and need no driver.
#ifndef CUDNN_RNN_TESTS_CUDNN_HOST_REAL_CUDNN_H_
#define CUDNN_RNN_TESTS_CUDNN_HOST_REAL_CUDNN_H_

#include <cstdint>
#include <string>

#include "cudnn_rnn/cc/cudnn/gpu_libraries.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {

// Returns the path in the environment variable CUDNN_RNN_REAL_CUDNN.
std::string RealCudnnPath();

// Returns the functions of the library at that path; those of the driver are null. Ends the process
// if it cannot be opened.
const GpuLibraries& RealCudnn();

bool RealCudnnHasBfloat16();

// Gives the mock the real library's version. mock_reset undoes that.
void MockRealVersion();

// The mock, in the real library's version. Its runtime repeats each call without a handle in the
// real library, on descriptors of its own, and expects the same status.
class ComparedGpu {
 public:
  ComparedGpu();
  ~ComparedGpu();

  GpuRuntime* runtime() { return gpu_.runtime(); }
  // The number of calls that were repeated, and of those that the real library refused.
  int64_t num_calls() const;
  int64_t num_refusals() const;

 private:
  MockGpu gpu_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_HOST_REAL_CUDNN_H_
