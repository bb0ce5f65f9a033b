// Tests the default algorithm, requested ones, and models that cannot run. auto_algorithm_test.cc
// tests the choice by trial.

#include "tests/core/testing.h"
#include "tests/cudnn/mock/functions.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

Problem SmallProblem() {
  Problem problem;
  problem.config.num_units = 6;
  problem.config.input_size = 5;
  problem.shape = {4, 3, true};
  return problem;
}

TEST(NamesOfAlgorithms) {
  for (const Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kStandard, Algorithm::kPersistStatic,
        Algorithm::kPersistStaticSmallH, Algorithm::kPersistDynamic}) {
    Algorithm parsed;
    EXPECT(ParseAlgorithm(Name(algorithm), &parsed).ok() && parsed == algorithm);
  }
  Algorithm parsed;
  EXPECT(ParseAlgorithm("", &parsed).ok() && parsed == Algorithm::kStandard);
  EXPECT_ERROR(ParseAlgorithm("fastest", &parsed), "algorithm must be one of auto", "'fastest'",
               "persist_static_small_h");
}

TEST(StandardIsTheDefaultAndNeedsNoTrial) {
  MockGpu gpu;
  mock_set_algorithm_time(kCudnnAlgorithmPersistStaticSmallH, 0.1, 0.1);
  GpuModel model(gpu.runtime());
  EXPECT(CudnnOptions().algorithm == Algorithm::kStandard);
  EXPECT(AlgorithmOf(&model, SmallProblem()) == Algorithm::kStandard);
  EXPECT(mock_calls("cudnnRNNForward") == 0);
}

TEST(ARequestedAlgorithmRunsWithoutATrial) {
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kPersistStatic,
                                    Algorithm::kPersistStaticSmallH, Algorithm::kPersistDynamic}) {
    MockGpu gpu;
    GpuModel model(gpu.runtime(), algorithm);
    const Problem problem = SmallProblem();
    EXPECT(AlgorithmOf(&model, problem) == algorithm, Name(algorithm));
    EXPECT(mock_calls("cudnnRNNForward") == 0, Name(algorithm));
    EXPECT(model.Run(problem, problem.Options(true), CallBuffers(problem, 1)).ok());
  }
}

TEST(ARequestedAlgorithmThatCannotRunIsAnError) {
  Problem with_lengths = SmallProblem(), batch_major = SmallProblem(), projected = SmallProblem(),
          in_double = SmallProblem();
  with_lengths.lengths = {4, 3, 4};
  batch_major.shape.time_major = false;
  projected.config.num_proj = 3;
  in_double.config.data_type = DataType::kDouble;
  Problem with_385_units = SmallProblem(), with_1025_units = SmallProblem();
  with_385_units.config.num_units = 385;
  with_1025_units.config.num_units = 1025;
  const char* const supported = nullptr;
  const char* const by_sizes = "cudnnGetRNNTempSpaceSizes";
  const char* const no_padding = "does not support sequences of different lengths or batch-major";
  const char* const no_projection = "does not support projections";
  const char* const no_double = "does not support double";
  const struct {
    Algorithm algorithm;
    Problem problem;
    const char* error;
  } cases[] = {{Algorithm::kPersistStatic, with_lengths, no_padding},
               {Algorithm::kPersistStaticSmallH, with_lengths, no_padding},
               {Algorithm::kPersistDynamic, batch_major, no_padding},
               {Algorithm::kPersistStatic, projected, no_projection},
               {Algorithm::kPersistStaticSmallH, projected, no_projection},
               {Algorithm::kPersistDynamic, projected, no_projection},
               {Algorithm::kPersistStatic, in_double, no_double},
               {Algorithm::kPersistStaticSmallH, in_double, no_double},
               {Algorithm::kPersistDynamic, in_double, supported},
               {Algorithm::kPersistStatic, with_385_units, supported},
               {Algorithm::kPersistStaticSmallH, with_385_units, by_sizes},
               {Algorithm::kPersistStatic, with_1025_units, by_sizes}};
  for (const auto& test : cases) {
    MockGpu gpu;
    GpuModel model(gpu.runtime(), test.algorithm);
    CudnnPlanCache::Found found;
    const Status status = model.Find(test.problem, test.problem.Options(true), &found);
    EXPECT(status.ok() == (test.error == supported), test.problem.Text(), ": ", status.message());
    if (status.ok()) continue;
    EXPECT(status.code() == StatusCode::kUnimplemented, static_cast<int>(status.code()));
    const std::string requested = Concatenate(Name(test.algorithm), " was requested");
    EXPECT_ERROR(status, test.error, requested.c_str(), "request standard", "lstm");
    const bool asks_cudnn = test.error == by_sizes;
    EXPECT(mock_calls("cudnnSetRNNDescriptor_v8") == (asks_cudnn ? 1 : 0), status.message());
  }
}

TEST(OutOfMemoryForTheDropoutStateIsAnError) {
  MockGpu gpu;
  mock_set_memory_limit(0);
  GpuModel model(gpu.runtime());
  Problem problem = SmallProblem();
  problem.config.num_layers = 2;
  problem.config.dropout = 0.5f;
  CudnnPlanCache::Found found;
  const Status status = model.Find(problem, problem.Options(true), &found);
  EXPECT(status.code() == StatusCode::kResourceExhausted, status.message());
  EXPECT_ERROR(status, "cuMemAlloc_v2", "allocating");
  mock_set_memory_limit(-1);
  EXPECT(model.Find(problem, problem.Options(true), &found).ok());
}

TEST(FloatMeansFusedMultiplyAddUnlessTf32IsAllowed) {
  const struct {
    DataType data_type;
    bool allow_tf32;
    int math_type;
  } cases[] = {{DataType::kFloat, false, kCudnnFmaMath},
               {DataType::kFloat, true, kCudnnDefaultMath},
               {DataType::kDouble, false, kCudnnDefaultMath},
               {DataType::kHalf, false, kCudnnTensorOpMath}};
  for (const auto& test : cases) {
    MockGpu gpu;
    GpuModel model(gpu.runtime());
    model.options.allow_tf32 = test.allow_tf32;
    Problem problem = SmallProblem();
    problem.config.data_type = test.data_type;
    AlgorithmOf(&model, problem);
    const std::string expected = Concatenate(" math_type=", test.math_type);
    EXPECT(std::string(mock_log()).find(expected) != std::string::npos, expected, " in ",
           mock_log());
  }
}

TEST(AGradientRepeatsTheChoiceOfItsForwardCall) {
  for (const bool allow_tf32 : {true, false}) {
    for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kPersistDynamic}) {
      MockGpu gpu;
      mock_set_algorithm_time(kCudnnAlgorithmPersistStaticSmallH, 0.1, 0.1);
      GpuModel forward(gpu.runtime(), algorithm), backward(gpu.runtime());
      forward.options.allow_tf32 = allow_tf32;
      backward.options.allow_tf32 = !allow_tf32;
      backward.options.deterministic = true;
      const Problem problem = SmallProblem();
      const CallOptions call = problem.Options(true);
      const CallBuffers buffers(problem, 1);
      CudnnPlanCache::Found found;
      std::unique_ptr<DeviceBuffer> reserve_space;
      EXPECT(forward.Find(problem, call, &found).ok());
      EXPECT(found.algorithm != Algorithm::kStandard);
      EXPECT(forward.Forward(problem, call, buffers, &reserve_space).ok());
      CallOptions gradient_call = call;
      gradient_call.forward_choice = found.plan->choice();
      CudnnPlanCache::Found gradient;
      EXPECT(backward.Find(problem, gradient_call, &gradient).ok());
      EXPECT(gradient.algorithm == found.algorithm);
      EXPECT(gradient.plan->choice().allow_tf32 == allow_tf32);
      const Status status = backward.Backward(problem, gradient_call, buffers, *reserve_space);
      EXPECT(status.ok(), status.message());
    }
  }
}

TEST(AGradientThatCannotRepeatTheChoiceIsAnError) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  const Problem problem = SmallProblem();
  CallOptions call = problem.Options(true);
  call.forward_choice.algorithm = 7;
  CudnnPlanCache::Found found;
  EXPECT_ERROR(model.Find(problem, call, &found), "reserve_space", "algorithm 7", "same device");
  call.forward_choice.algorithm = static_cast<int32_t>(Algorithm::kPersistStatic);
  mock_set_algorithm_support(kCudnnAlgorithmPersistStatic, MOCK_REFUSED_BY_SIZES);
  EXPECT_ERROR(model.Find(problem, call, &found), "forward call ran the algorithm persist_static",
               "request standard for the forward call");
}

TEST(ModelsBeyondTheLimitsOfCudnnAreRefused) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  CudnnPlanCache::Found found;
  Problem problem = SmallProblem();
  problem.shape.num_steps = 65535;
  EXPECT(model.Find(problem, problem.Options(false), &found).ok());
  for (const int64_t num_steps : {int64_t{65536}, int64_t{1} << 31}) {
    problem.shape.num_steps = num_steps;
    EXPECT_ERROR(model.Find(problem, problem.Options(false), &found), "number of steps",
                 "at most 65535", "on a CPU");
    problem.shape.batch_size = 0;
    EXPECT(model.Find(problem, problem.Options(false), &found).ok(),
           "an empty call needs no cuDNN");
    problem.shape.batch_size = 2;
  }
  problem = SmallProblem();
  problem.shape.batch_size = int64_t{1} << 30;
  EXPECT_ERROR(model.Find(problem, problem.Options(false), &found), "batch size", "2^31");
  problem = SmallProblem();
  problem.config.num_layers = 4;
  problem.config.num_units = int64_t{1} << 9;
  problem.shape = {1, int64_t{1} << 20, true};
  EXPECT_ERROR(model.Find(problem, problem.Options(false), &found), "4 * 1048576 * 512", "2^31");
  problem = SmallProblem();
  problem.config.input_size = int64_t{1} << 11;
  problem.shape = {1 << 10, int64_t{1} << 10, false};
  EXPECT_ERROR(model.Find(problem, problem.Options(false), &found), "batch-major",
               "1024 * 1024 * 2048", "2^31", "divide the batch");
  problem.config.num_units = 0;
  EXPECT_ERROR(model.Find(problem, problem.Options(false), &found), "num_units");
  problem = SmallProblem();
  problem.lengths = {4, 5, 1};
  EXPECT_ERROR(model.Find(problem, problem.Options(false), &found), "sequence_lengths[1] is 5");
}

}  // namespace
}  // namespace cudnn_rnn
