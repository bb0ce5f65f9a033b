// Tests which cuDNN may compute in bfloat16: its version, and the check by value
// (bfloat16_check.h).

#include "cudnn_rnn/cc/cudnn/bfloat16_check.h"

#include <algorithm>
#include <limits>
#include <string>

#include "tests/core/testing.h"
#include "tests/cudnn/mock/mock_cudnn.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

const RnnMode kModes[] = {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm, RnnMode::kGru};

Problem Bfloat16Problem(RnnMode mode) {
  Problem problem;
  problem.config.mode = mode;
  problem.config.data_type = DataType::kBfloat16;
  problem.shape = {4, 5, true};
  return problem;
}

Bfloat16Error Measure(GpuRuntime* runtime, RnnMode mode, bool is_training) {
  const Problem problem = Bfloat16Problem(mode);
  DriverAllocator allocator(runtime, kStream);
  CudnnPlan::Choices choices;
  choices.is_training = is_training;
  const Trial trial = {runtime,       kStream, &allocator,   problem.config,
                       problem.shape, choices, DeviceModel()};
  Bfloat16Error error;
  const Status status = MeasureBfloat16(trial, CreateCpuPlan, &error);
  EXPECT(status.ok(), Name(mode), ": ", status.message());
  return error;
}

TEST(OldCudnnRefusesBfloat16) {
  for (const int64_t version : {8907, 90300, 91201}) {
    MockGpu gpu;
    mock_set_version(version);
    gpu.Reopen();
    GpuModel model(gpu.runtime());
    const Problem problem = Bfloat16Problem(RnnMode::kLstm);
    CudnnPlanCache::Found found;
    const Status status = model.Find(problem, problem.Options(true), &found);
    EXPECT(status.code() == StatusCode::kUnimplemented && found.plan == nullptr);
    const std::string found_version = CudnnVersionText(static_cast<size_t>(version));
    EXPECT_ERROR(status, found_version.c_str(), "bfloat16", "cuDNN 9.13.0 and newer versions do");
    EXPECT(mock_calls("cudnnCreateRNNDescriptor") == 0, "no trial is needed");
  }
}

TEST(WrongValuesInBfloat16AreFoundOnce) {
  const struct {
    int wrong_results;
    const char* tensor;
    bool fails_inference;
  } cases[] = {
      {MOCK_WRONG_OUTPUT, "returned 0 in the output, element", true},
      {MOCK_WRONG_DATA_GRADIENTS, "returned 0 in the gradient of the in", false},
      {MOCK_WRONG_WEIGHT_GRADIENTS, "returned 0 in the gradient of the parameters", false}};
  for (const RnnMode mode : kModes) {
    for (const auto& test : cases) {
      MockGpu gpu;
      mock_set_wrong_bfloat16(test.wrong_results, MOCK_ZEROS);
      GpuModel model(gpu.runtime());
      Problem problem = Bfloat16Problem(mode);
      CudnnPlanCache::Found found;
      for (int call = 0; call < 2; ++call) {
        const Status status = model.Find(problem, problem.Options(true), &found);
        EXPECT(status.code() == StatusCode::kUnimplemented && found.plan == nullptr);
        EXPECT_ERROR(status, "cuDNN 9.13.0 computes wrong values in bfloat16", Name(mode),
                     "; expected", "Use float16 or float32");
        if (test.wrong_results != MOCK_WRONG_OUTPUT) EXPECT_ERROR(status, test.tensor);
        EXPECT(mock_calls("cudnnRNNForward") == 1, "one check");
        EXPECT(mock_live("allocation") == 0);
      }
      const Status inference = model.Find(problem, problem.Options(false), &found);
      EXPECT(inference.ok() == !test.fails_inference, inference.message());
      if (test.fails_inference) EXPECT_ERROR(inference, test.tensor);
      problem.config.data_type = DataType::kFloat;
      EXPECT(model.Run(problem, problem.Options(true), CallBuffers(problem, 1)).ok());
    }
  }
}

TEST(RightValuesInBfloat16PassTheCheck) {
  for (const RnnMode mode : kModes) {
    MockGpu gpu;
    GpuModel model(gpu.runtime());
    const Problem problem = Bfloat16Problem(mode);
    CudnnPlanCache::Found found;
    for (const bool is_training : {true, false, true}) {
      const Status status = model.Find(problem, problem.Options(is_training), &found);
      EXPECT(status.ok(), status.message());
    }
    EXPECT(mock_calls("cudnnRNNForward") == 2, "a check for training, and one for inference");
    EXPECT(mock_calls("cudnnRNNBackwardWeights_v8") == 1);
  }
}

// The mock rounds no intermediate result, so its errors are those of one rounding, 1/8 of what the
// check accepts.
TEST(ErrorsOfRightValuesInBfloat16AreSmall) {
  for (const RnnMode mode : kModes) {
    for (const bool is_training : {false, true}) {
      MockGpu gpu;
      const Bfloat16Error error = Measure(gpu.runtime(), mode, is_training);
      EXPECT(error.size > 0 && error.size <= 0.15f, Name(mode), ": ", error.size, " ", error.place);
      ExpectNoViolations(Name(mode));
      std::printf("  %s, %s: %.3f of the accepted error\n", Name(mode),
                  is_training ? "training" : "inference", static_cast<double>(error.size));
    }
  }
}

struct Fault {
  const char* name;
  int number;
  bool is_of_data_gradients;
  bool is_of_weight_gradients;
};

// Weights in wrong places change the gradients of data, too, but biases do not.
const Fault kFaults[] = {
    {"zeros", MOCK_ZEROS, true, true},
    {"exchanged gates", MOCK_EXCHANGED_GATES, true, true},
    {"transposed R", MOCK_TRANSPOSED_RECURRENT_WEIGHTS, true, true},
    {"shifted weights", MOCK_SHIFTED_WEIGHTS, true, true},
    {"exchanged directions", MOCK_EXCHANGED_DIRECTIONS, true, true},
    {"missing biases", MOCK_MISSING_BIASES, false, true},
    {"exchanged steps", MOCK_EXCHANGED_STEPS, true, false},
};

// Returns the size of the error that the check finds.
float MeasureFault(RnnMode mode, const Fault& fault, int wrong_results, bool is_training) {
  MockGpu gpu;
  mock_set_wrong_bfloat16(wrong_results, fault.number);
  const Bfloat16Error error = Measure(gpu.runtime(), mode, is_training);
  EXPECT(error.size > 3, Name(mode), ", ", fault.name, ", results ", wrong_results,
         is_training ? ", training: " : ", inference: ", error.size, " ", error.place);
  ExpectNoViolations(fault.name);
  return error.size;
}

TEST(EveryFaultInBfloat16IsFound) {
  for (const RnnMode mode : kModes) {
    float smallest = std::numeric_limits<float>::infinity();
    for (const Fault& fault : kFaults) {
      const bool has_one_gate = mode == RnnMode::kRelu || mode == RnnMode::kTanh;
      if (has_one_gate && fault.number == MOCK_EXCHANGED_GATES) continue;
      for (const bool is_training : {false, true}) {
        smallest = std::min(smallest, MeasureFault(mode, fault, MOCK_WRONG_OUTPUT, is_training));
      }
      if (fault.is_of_data_gradients) {
        smallest = std::min(smallest, MeasureFault(mode, fault, MOCK_WRONG_DATA_GRADIENTS, true));
      }
      if (fault.is_of_weight_gradients) {
        smallest = std::min(smallest, MeasureFault(mode, fault, MOCK_WRONG_WEIGHT_GRADIENTS, true));
      }
    }
    std::printf("  %s: the smallest is %.1f times the accepted error\n", Name(mode),
                static_cast<double>(smallest));
  }
}

}  // namespace
}  // namespace cudnn_rnn
