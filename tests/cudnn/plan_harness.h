// Runs the CPU plan and the cuDNN plan (on the mock of cuDNN) on the same data.
#ifndef CUDNN_RNN_TESTS_CUDNN_PLAN_HARNESS_H_
#define CUDNN_RNN_TESTS_CUDNN_PLAN_HARNESS_H_

#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cudnn/driver_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"
#include "cudnn_rnn/cc/cudnn/plan_cache.h"

namespace cudnn_rnn {

// A stream of the mock's device 0.
void* const kStream = reinterpret_cast<void*>(uintptr_t{0x50});

struct Problem {
  RnnConfig config;
  SequenceShape shape;
  std::vector<int32_t> lengths;  // empty: all full

  CallOptions Options(bool is_training, int64_t dropout_call_index = 0) const;
  std::string Text() const;
};

// Returns models of all modes and directions: with a linear input, a skipped one, and a projection.
std::vector<RnnConfig> SmallModels(const std::vector<DataType>& data_types);

// Memory of exactly `bytes` bytes, registered with the mock as device memory. Every bit is set,
// which is NaN in every floating-point type. It starts `offset` bytes after an aligned address.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(int64_t bytes, int64_t offset = 0);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  const int64_t bytes_;
  char* block_;
  char* data_;
};

// All buffers of a call except reserve space and workspaces. Inputs are random, with NaN in the
// padding.
struct CallBuffers {
  CallBuffers(const Problem& problem, unsigned int seed, int64_t buffer_offset = 0);

  ForwardBuffers Forward(const DeviceBuffer& reserve_space, const DeviceBuffer& workspace) const;
  BackwardBuffers Backward(const DeviceBuffer& reserve_space, const DeviceBuffer& workspace) const;

  // The three results of a forward pass, then the four gradients.
  std::vector<const DeviceBuffer*> results() const {
    return {output,           output_h,         output_c,       input_backprop,
            input_h_backprop, input_c_backprop, params_backprop};
  }

  const int64_t offset;  // of each buffer
  std::vector<std::unique_ptr<DeviceBuffer>> all;
  DeviceBuffer* New(int64_t elements, int64_t element_size);
  DeviceBuffer *input, *input_h, *input_c, *params;
  DeviceBuffer *output, *output_h, *output_c;
  DeviceBuffer *output_backprop, *output_h_backprop, *output_c_backprop;
  DeviceBuffer *input_backprop, *input_h_backprop, *input_c_backprop, *params_backprop;
};

// The results of a call, converted to double, in the order of CallBuffers::results().
using Results = std::vector<std::vector<double>>;

// Simulates one process that uses the mock. The destructor checks for leaks and violations.
class MockGpu {
 public:
  MockGpu();
  ~MockGpu();

  GpuRuntime* runtime() { return runtime_.get(); }
  // The runtime's table of functions, which tests may change.
  GpuLibraries* libraries() { return libraries_; }
  // Replaces the runtime by one with cuDNN's current version.
  void Reopen();
  // Allows leaked objects: if a context cannot be entered, its objects cannot be released.
  void AllowObjectsLeft(int64_t count) { allowed_objects_ = count; }

 private:
  GpuLibraries* libraries_ = nullptr;
  std::unique_ptr<GpuRuntime> runtime_;
  int64_t allowed_objects_ = 0;
};

// Mimics an op kernel's use of plans: looks each call up in the cache.
class GpuModel {
 public:
  explicit GpuModel(GpuRuntime* runtime, Algorithm algorithm = Algorithm::kStandard)
      : runtime_(runtime), cache_(runtime, CreateCpuPlan) {
    options.algorithm = algorithm;
  }

  CudnnOptions options;
  void* stream = kStream;
  int64_t offset = 0;  // of workspaces and reserve spaces

  Status Find(const Problem& problem, const CallOptions& call, CudnnPlanCache::Found* found);
  // Runs forward and, in training, backward, with workspaces of exactly the required sizes.
  Status Run(const Problem& problem, const CallOptions& call, const CallBuffers& buffers);
  Status Forward(const Problem& problem, const CallOptions& call, const CallBuffers& buffers,
                 std::unique_ptr<DeviceBuffer>* reserve_space);
  Status Backward(const Problem& problem, const CallOptions& call, const CallBuffers& buffers,
                  const DeviceBuffer& reserve_space);

 private:
  GpuRuntime* const runtime_;
  CudnnPlanCache cache_;
};

// Returns the algorithm that the model's cache chooses; kAuto if it finds no plan.
Algorithm AlgorithmOf(GpuModel* model, const Problem& problem, bool is_training = true);

// Runs the same as GpuModel::Run with the CPU plan.
Status RunOnCpu(const Problem& problem, const CallOptions& call, const CallBuffers& buffers);

Results ReadResults(const Problem& problem, bool is_training, const CallBuffers& buffers);
// Returns the largest difference, relative to the largest magnitude in the array or to 1 if that is
// larger. Infinite if only one of two numbers is NaN.
double LargestDifference(const Results& a, const Results& b);

// Reports the mock's violations, if any, for the test case `text`.
void ExpectNoViolations(const std::string& text);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_PLAN_HARNESS_H_
