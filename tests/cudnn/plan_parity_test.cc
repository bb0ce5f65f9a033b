// Compares the cuDNN plan, on the mock of cuDNN, with the CPU plan. This covers everything except
// cuDNN's own arithmetic.

#include <algorithm>

#include "tests/core/testing.h"
#include "tests/cudnn/mock/mock_cudnn.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

// The mock computes with the CPU plan, so its results are equal bit for bit. But with sequences of
// length 0 it sums weight gradients over a different number of rows, and batch-major sums are in
// another order; then also values may differ that are rounded to 16 bits.
double Tolerance(const Problem& problem) {
  const std::vector<int32_t>& lengths = problem.lengths;
  if (problem.shape.time_major && std::count(lengths.begin(), lengths.end(), 0) == 0) return 0;
  switch (problem.config.data_type) {
    case DataType::kDouble:
      return 1e-13;
    case DataType::kFloat:
      return 1e-5;
    case DataType::kHalf:
      return 2e-3;
    case DataType::kBfloat16:
      break;
  }
  return 1.6e-2;
}

void ExpectParity(const Problem& problem, bool is_training, GpuRuntime* runtime) {
  const CallOptions call = problem.Options(is_training);
  const CallBuffers cpu(problem, 7), gpu(problem, 7);
  const Status cpu_status = RunOnCpu(problem, call, cpu);
  EXPECT(cpu_status.ok(), problem.Text(), ": ", cpu_status.message());
  GpuModel model(runtime);
  const Status gpu_status = model.Run(problem, call, gpu);
  EXPECT(gpu_status.ok(), problem.Text(), ": ", gpu_status.message());
  const double difference = LargestDifference(ReadResults(problem, is_training, cpu),
                                              ReadResults(problem, is_training, gpu));
  EXPECT(difference <= Tolerance(problem), problem.Text(), " differ by ", difference);
  ExpectNoViolations(problem.Text());
}

const std::vector<int32_t> kLengthsOfFive[] = {
    {}, {4, 4, 4, 4, 4}, {4, 1, 3, 2, 4}, {0, 4, 0, 0, 2}, {0, 0, 0, 0, 0}, {3, 0, 1, 4, 0}};

void RunTable(GpuRuntime* runtime, const std::vector<DataType>& data_types) {
  for (const RnnConfig& config : SmallModels(data_types)) {
    for (const std::vector<int32_t>& lengths : kLengthsOfFive) {
      for (const bool time_major : {true, false}) {
        for (const bool is_training : {false, true}) {
          ExpectParity({config, {4, 5, time_major}, lengths}, is_training, runtime);
        }
      }
    }
  }
}

TEST(ParityOfAllModels) {
  MockGpu gpu;
  RunTable(gpu.runtime(),
           {DataType::kHalf, DataType::kBfloat16, DataType::kFloat, DataType::kDouble});
}

TEST(ParityWithPaddedWeights) {
  MockGpu gpu;
  mock_set_padded_weights(1);
  RunTable(gpu.runtime(), {DataType::kHalf, DataType::kDouble});
}

TEST(ParityWithAnOldCudnn) {  // requires lengths in device memory; has other status codes
  MockGpu gpu;
  mock_set_version(8100);
  gpu.Reopen();
  RunTable(gpu.runtime(), {DataType::kFloat});
}

TEST(WeightSpacesThatDoNotFitAreRefused) {
  Problem problem;
  problem.config.num_units = problem.config.input_size = 6;
  problem.config.input_mode = InputMode::kSkip;
  problem.shape = {4, 5, true};
  CudnnPlanCache::Found found;
  {
    MockGpu gpu;
    mock_set_skip_input_biases(0);
    const Status status = GpuModel(gpu.runtime()).Find(problem, problem.Options(false), &found);
    EXPECT(status.code() == StatusCode::kUnimplemented, static_cast<int>(status.code()));
    EXPECT_ERROR(status, "no bias 0 of pseudo-layer 0", "skip_input", "linear_input");
  }
  MockGpu gpu;
  mock_set_loose_matrices(1);
  const Status status = GpuModel(gpu.runtime()).Find(problem, problem.Options(false), &found);
  EXPECT(status.code() == StatusCode::kUnimplemented, static_cast<int>(status.code()));
  EXPECT_ERROR(status, "has 36 elements spread over 41", "another version of cuDNN");
}

TEST(ParityWithDropout) {
  for (const float dropout : {0.3f, 1.0f}) {
    for (const bool time_major : {true, false}) {
      MockGpu gpu;
      Problem problem;
      problem.config.num_layers = 3;
      problem.config.num_units = 7;
      problem.config.input_size = 4;
      problem.config.dropout = dropout;
      problem.config.seed = 1234;
      problem.config.seed2 = 99;
      problem.shape = {5, 3, time_major};
      ExpectParity(problem, true, gpu.runtime());
      ExpectParity(problem, false, gpu.runtime());
      problem.lengths = {5, 0, 2};
      ExpectParity(problem, true, gpu.runtime());
    }
  }
}

TEST(EmptyShapesPassTheStatesThrough) {
  MockGpu gpu;
  for (const SequenceShape& shape :
       {SequenceShape{0, 3, true}, SequenceShape{0, 3, false}, SequenceShape{4, 0, true}}) {
    for (const DataType data_type : {DataType::kFloat, DataType::kBfloat16}) {
      Problem problem;
      problem.config.num_layers = 2;
      problem.config.num_units = 3;
      problem.config.input_size = 2;
      problem.config.data_type = data_type;
      problem.shape = shape;
      ExpectParity(problem, false, gpu.runtime());
      ExpectParity(problem, true, gpu.runtime());
    }
  }
}

}  // namespace
}  // namespace cudnn_rnn
