// Runs plans of the CPU and of cuDNN (on the stand-in) on the same data.
#ifndef CUDNN_RNN_TESTS_CUDNN_PLAN_HARNESS_H_
#define CUDNN_RNN_TESTS_CUDNN_PLAN_HARNESS_H_

#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cudnn/driver_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"
#include "cudnn_rnn/cc/cudnn/plan_cache.h"

namespace cudnn_rnn {

// The stand-in's device 0.
void* const kStream = reinterpret_cast<void*>(uintptr_t{0x50});

struct Problem {
  RnnConfig config;
  SequenceShape shape;
  std::vector<int32_t> lengths;  // none: all full

  CallOptions Options(bool is_training, int64_t dropout_call = 0) const;
  std::string Text() const;
};

// Memory of exactly so many bytes, known to the stand-in as the device's, full of ones: as
// floating-point numbers they are NaN.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(int64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  const int64_t bytes_;
  char* data_;
};

// All buffers of a call but the workspaces; inputs are random, or NaN in the padding.
struct CallBuffers {
  CallBuffers(const Problem& problem, unsigned int seed);

  ForwardBuffers Forward(const DeviceBuffer& reserve_space, const DeviceBuffer& workspace) const;
  BackwardBuffers Backward(const DeviceBuffer& reserve_space, const DeviceBuffer& workspace) const;

  std::vector<std::unique_ptr<DeviceBuffer>> all;
  DeviceBuffer* New(int64_t elements, int64_t element_size);
  DeviceBuffer *input, *input_h, *input_c, *params;
  DeviceBuffer *output, *output_h, *output_c;
  DeviceBuffer *output_backprop, *output_h_backprop, *output_c_backprop;
  DeviceBuffer *input_backprop, *input_h_backprop, *input_c_backprop, *params_backprop;
};

// What a training step gives, in double: output, output_h, output_c and the four gradients.
struct Results {
  std::vector<double> output, output_h, output_c;
  std::vector<double> input_backprop, input_h_backprop, input_c_backprop, params_backprop;
};

// One process's use of the stand-in. At its end nothing may be left, and no rule was violated.
class StandInGpu {
 public:
  StandInGpu();
  ~StandInGpu();

  GpuRuntime* runtime() { return runtime_.get(); }
  // Reads the version anew.
  void Reopen();
  // What belongs to a context that cannot be entered to release it stays.
  void AllowOneObjectLeft() { allowed_objects_ = 1; }

 private:
  std::unique_ptr<GpuRuntime> runtime_;
  int64_t allowed_objects_ = 0;
};

// An op kernel, as far as plans go: asks the cache for each call.
class GpuModel {
 public:
  explicit GpuModel(GpuRuntime* runtime) : runtime_(runtime), cache_(runtime) {}

  CudnnOptions options;

  Status Find(const Problem& problem, const CallOptions& call, CudnnPlanCache::Found* found);
  // Forward and, in training, backward; workspaces of exactly the sizes asked for.
  Status Run(const Problem& problem, const CallOptions& call, const CallBuffers& buffers);
  Status Forward(const Problem& problem, const CallOptions& call, const CallBuffers& buffers,
                 std::unique_ptr<DeviceBuffer>* reserve_space);
  Status Backward(const Problem& problem, const CallOptions& call, const CallBuffers& buffers,
                  const DeviceBuffer& reserve_space);

 private:
  GpuRuntime* const runtime_;
  CudnnPlanCache cache_;
};

// The same on the CPU plan.
Status RunOnCpu(const Problem& problem, const CallOptions& call, const CallBuffers& buffers);

Results ReadResults(const Problem& problem, bool is_training, const CallBuffers& buffers);
// Of all results, each relative to the largest magnitude of its kind; infinite where one is NaN and
// the other is not.
double LargestDifference(const Results& a, const Results& b);

// Reports the stand-in's violations, if any, for the case.
void ExpectNoViolations(const std::string& text);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_PLAN_HARNESS_H_
