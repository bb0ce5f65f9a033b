// Tests calls whose buffers are aligned less strictly than cuDNN requires.

#include <algorithm>

#include "tests/core/testing.h"
#include "tests/cudnn/mock/mock_cudnn.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

// The mock refuses tensors that are not aligned to 16 bytes, and weights, workspaces and reserve
// spaces that are not aligned to 256. An element is copied bit for bit, so results are equal.
const int64_t kOffsets[] = {0, 16, 64, 240};

Problem SmallProblem(DataType data_type) {
  Problem problem;
  problem.config.data_type = data_type;
  problem.config.num_layers = 2;
  problem.config.num_units = 6;
  problem.config.input_size = 5;
  problem.shape = {4, 3, true};
  return problem;
}

void ExpectResultsOfCpu(const Problem& problem, const CallOptions& call, const CallBuffers& gpu,
                        const std::string& text) {
  const CallBuffers cpu(problem, 3);
  EXPECT(RunOnCpu(problem, call, cpu).ok(), text);
  const double difference = LargestDifference(ReadResults(problem, call.is_training, cpu),
                                              ReadResults(problem, call.is_training, gpu));
  EXPECT(difference == 0, text, ": differ by ", difference);
  ExpectNoViolations(text);
}

TEST(BuffersNeedNotBeAligned) {
  for (const DataType data_type : {DataType::kHalf, DataType::kDouble}) {
    for (const int has_padded_weights : {0, 1}) {
      for (const int64_t offset : kOffsets) {
        MockGpu gpu;
        mock_set_padded_weights(has_padded_weights);
        GpuModel model(gpu.runtime());
        model.offset = offset;
        const Problem problem = SmallProblem(data_type);
        for (const bool is_training : {false, true}) {
          for (const bool keeps_reserve_space : {true, false}) {
            CallOptions call = problem.Options(is_training);
            call.keeps_reserve_space = keeps_reserve_space;
            const CallBuffers buffers(problem, 3, offset);
            const Status status = model.Run(problem, call, buffers);
            EXPECT(status.ok(), offset, ": ", status.message());
            ExpectResultsOfCpu(problem, call, buffers, Concatenate("offset ", offset));
          }
        }
        EXPECT(mock_live("allocation") == 0, "copies outlive their call");
      }
    }
  }
}

// A framework may copy a reserve space to memory with another alignment.
TEST(AReserveSpaceMayMove) {
  const Problem problem = SmallProblem(DataType::kFloat);
  for (const int64_t from : kOffsets) {
    for (const int64_t to : kOffsets) {
      for (const bool keeps_reserve_space : {true, false}) {
        MockGpu gpu;
        GpuModel model(gpu.runtime());
        model.offset = from;
        CallOptions call = problem.Options(/*is_training=*/true);
        call.keeps_reserve_space = keeps_reserve_space;
        const CallBuffers buffers(problem, 3);
        std::unique_ptr<DeviceBuffer> written;
        EXPECT(model.Forward(problem, call, buffers, &written).ok(), from);
        const DeviceBuffer moved(written->bytes(), to);
        std::copy_n(written->data(), written->bytes(), moved.data());
        const Status status = model.Backward(problem, call, buffers, moved);
        EXPECT(status.ok(), from, " to ", to, ": ", status.message());
        ExpectResultsOfCpu(problem, call, buffers, Concatenate(from, " to ", to));
      }
    }
  }
}

// The graph would use the copies after they are freed.
TEST(AGraphRecordsNoCopies) {
  const Problem problem = SmallProblem(DataType::kFloat);
  for (const int64_t offset : kOffsets) {
    MockGpu gpu;
    GpuModel model(gpu.runtime());
    const CallOptions call = problem.Options(/*is_training=*/false);
    const CallBuffers buffers(problem, 3, offset);
    EXPECT(model.Run(problem, call, buffers).ok(), offset);
    const int64_t allocations = mock_calls("cuMemAlloc_v2");
    mock_set_capturing(kStream, 1);
    const Status status = model.Run(problem, call, buffers);
    mock_set_capturing(kStream, 0);  // before the model is released
    if (offset == 0) {
      EXPECT(status.ok(), status.message());
    } else {
      EXPECT_ERROR(status, "CUDA graph", "multiple of 256 bytes");
    }
    EXPECT(mock_calls("cuMemAlloc_v2") == allocations, offset);
  }
}

TEST(AlignedBuffersAreNotCopied) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  const Problem problem = SmallProblem(DataType::kFloat);
  CallOptions call = problem.Options(/*is_training=*/true);
  call.keeps_reserve_space = false;
  EXPECT(model.Run(problem, call, CallBuffers(problem, 3)).ok());
  EXPECT(mock_calls("cuMemAlloc_v2") == 0 && mock_calls("cuMemcpyDtoDAsync_v2") == 0, mock_log());
  EXPECT(model.Run(problem, call, CallBuffers(problem, 3, 16)).ok());
  // Parameters, forward and backward, and their gradient.
  EXPECT(mock_calls("cuMemAlloc_v2") == 3 && mock_calls("cuMemcpyDtoDAsync_v2") == 3, mock_log());
  model.offset = 16;
  EXPECT(model.Run(problem, call, CallBuffers(problem, 3)).ok());
  EXPECT(mock_calls("cuMemAlloc_v2") == 5, "the reserve space, forward and backward");
}

}  // namespace
}  // namespace cudnn_rnn
