// Makes plans on the mock and repeats their calls in the real cuDNN (real_cudnn.h). The plans must
// make no call that the real library refuses: they must refuse such a model themselves.

#include <algorithm>

#include "cudnn_rnn/cc/cudnn/cudnn_plan.h"
#include "tests/core/testing.h"
#include "tests/cudnn/host/real_cudnn.h"
#include "tests/cudnn/mock/mock_cudnn.h"

namespace cudnn_rnn {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::kStandard, Algorithm::kPersistStatic,
                                     Algorithm::kPersistStaticSmallH, Algorithm::kPersistDynamic};

// Models of all kinds: with and without layers, directions, dropout, skipped input and projection.
std::vector<RnnConfig> Models() {
  std::vector<RnnConfig> models;
  for (RnnConfig config :
       SmallModels({DataType::kFloat, DataType::kDouble, DataType::kHalf, DataType::kBfloat16})) {
    for (const float dropout : {0.0f, 0.5f}) {
      config.dropout = dropout;
      models.push_back(config);
      if (!config.has_projection()) continue;
      models.push_back(config);
      models.back().input_mode = InputMode::kLinear;
    }
  }
  return models;
}

// Returns whether the algorithm runs such a call: in the mock, or already by the real descriptors.
bool IsSupported(const Problem& problem, Algorithm algorithm) {
  const RnnConfig& config = problem.config;
  if (config.data_type == DataType::kBfloat16 && !RealCudnnHasBfloat16()) return false;
  if (algorithm == Algorithm::kStandard) return true;
  const bool is_padded = !problem.shape.time_major || !problem.lengths.empty();
  const bool is_static = algorithm != Algorithm::kPersistDynamic;
  return !is_padded && !config.has_projection() &&
         !(is_static && config.data_type == DataType::kDouble);
}

TEST(RealCudnnAcceptsTheDescriptorsOfAllPlans) {
  const std::vector<int32_t> batches[] = {{}, {4, 1, 3}, {0, 4, 0}, {0, 0, 0}};
  ComparedGpu gpu;
  int num_plans = 0, num_errors = 0;
  int64_t number = 0;
  for (const RnnConfig& config : Models()) {
    for (const Algorithm algorithm : kAlgorithms) {
      GpuModel model(gpu.runtime(), algorithm);
      for (const bool time_major : {true, false}) {
        for (const std::vector<int32_t>& lengths : batches) {
          for (const bool is_training : {true, false}) {
            if (!testing::IsInSample(++number)) continue;
            model.options.allow_tf32 = number % 3 == 0;
            const Problem problem = {config, {4, 3, time_major}, lengths};
            const Status status =
                model.Run(problem, problem.Options(is_training), CallBuffers(problem, 3));
            EXPECT(status.ok() == IsSupported(problem, algorithm), Name(algorithm), problem.Text(),
                   status.message());
            ++(status.ok() ? num_plans : num_errors);
          }
        }
      }
    }
  }
  EXPECT(gpu.num_refusals() == 0, gpu.num_refusals(), " refused of ", gpu.num_calls());
  EXPECT(num_plans > 800 && num_errors > 800, num_plans, " plans, ", num_errors, " errors");
  std::printf("  %d plans and %d errors, %lld calls as in cuDNN %s\n", num_plans, num_errors,
              static_cast<long long>(gpu.num_calls()),  // NOLINT: for printf
              CudnnVersionText(RealCudnn().cudnn_version).c_str());
}

// Sets a model's descriptor without the checks of the plans.
Status SetUnchecked(ComparedGpu* gpu, const Problem& problem, Algorithm algorithm) {
  GpuQueue queue(gpu->runtime(), kStream, "testing");
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  CUDNN_RNN_RETURN_IF_ERROR(queue.BorrowHandle());
  ModelDescriptor::Choices choices;
  choices.algorithm = algorithm;
  choices.is_padded = !problem.shape.time_major;
  std::shared_ptr<ModelDescriptor> descriptor;
  return ModelDescriptor::Create(queue, problem.config, choices, problem.shape.batch_size, nullptr,
                                 &descriptor);
}

TEST(PlansRefuseTheModelsThatRealDescriptorsRefuse) {
  ComparedGpu gpu;
  int num_refused = 0;
  for (RnnConfig config : Models()) {
    for (const int64_t num_proj : {int64_t{0}, int64_t{4}, config.num_units + 1}) {
      for (const int64_t num_layers : {0, 1, 3}) {
        for (const int64_t input_size : {0, 5, 6}) {
          for (const Algorithm algorithm : kAlgorithms) {
            config.num_proj = num_proj;
            config.num_layers = num_layers;
            config.input_size = input_size;
            const Problem problem = {config, {4, 3, true}, {}};
            const bool is_refused = !SetUnchecked(&gpu, problem, algorithm).ok();
            const int64_t before = gpu.num_refusals();
            CudnnPlanCache::Found found;
            GpuModel model(gpu.runtime(), algorithm);
            const Status status = model.Find(problem, problem.Options(true), &found);
            const std::string text = Concatenate(Name(algorithm), " ", problem.Text());
            EXPECT(gpu.num_refusals() == before, text, " was refused by cuDNN only");
            EXPECT(!is_refused || !status.ok(), text, " has a plan");
            EXPECT(!is_refused || status.message().find("cudnnSet") == std::string::npos, text,
                   ": ", status.message());
            num_refused += is_refused;
          }
        }
      }
    }
  }
  EXPECT(num_refused > 1000, num_refused);
  mock_reset();  // forgets the violations
}

// A batch at a limit of the real library.
struct Limit {
  int64_t num_steps, batch_size, num_layers, num_units;
  bool is_accepted;
};

TEST(PlansRefuseTheBatchesThatRealDescriptorsRefuse) {
  constexpr int64_t kMax = (int64_t{1} << 31) - 1;
  const Limit limits[] = {
      {65535, 2, 1, 4, true},           {65536, 2, 1, 4, false},
      {70000, 1, 1, 4, false},          {kMax, 1, 1, 4, false},
      {1, 1 << 16, 1, 1 << 15, false},  {1, (1 << 16) - 1, 1, 1 << 15, true},
      {1, 1 << 14, 4, 1 << 15, false},  {1, 1 << 14, 3, 1 << 15, true},
      {1, 1 << 15, 64, 1 << 10, false}, {1, 1 << 15, 63, 1 << 10, true},
  };
  ComparedGpu gpu;
  const GpuLibraries& real = RealCudnn();
  void *data = nullptr, *tensor = nullptr;
  EXPECT(real.cudnnCreateRNNDataDescriptor(&data) == 0);
  EXPECT(real.cudnnCreateTensorDescriptor(&tensor) == 0);
  for (const Limit& limit : limits) {
    for (const bool time_major : {true, false}) {
      Problem problem;
      problem.config.num_layers = limit.num_layers;
      problem.config.num_units = limit.num_units;
      problem.config.mode = RnnMode::kGru;
      problem.config.input_size = 4;
      problem.shape = {limit.num_steps, limit.batch_size, time_major};
      const int steps = static_cast<int>(limit.num_steps);
      const int batch = static_cast<int>(limit.batch_size);
      const int units = static_cast<int>(limit.num_units);
      const std::vector<int> lengths(static_cast<size_t>(batch), steps);
      const int64_t stride = std::min(limit.batch_size * limit.num_units, kMax);
      const int dimensions[] = {static_cast<int>(limit.num_layers), batch, units};
      const int strides[] = {static_cast<int>(stride), units, 1};
      const int data_status = real.cudnnSetRNNDataDescriptor(
          data, kCudnnDataFloat,
          time_major ? kCudnnLayoutTimeMajorPacked : kCudnnLayoutBatchMajorPadded, steps, batch, 4,
          lengths.data(), nullptr);
      const int tensor_status =
          real.cudnnSetTensorNdDescriptor(tensor, kCudnnDataFloat, 3, dimensions, strides);
      EXPECT((data_status == 0 && tensor_status == 0) == limit.is_accepted, problem.Text());
      CudnnPlanCache::Found found;
      const Status status = GpuModel(gpu.runtime()).Find(problem, problem.Options(false), &found);
      EXPECT(status.ok() == limit.is_accepted, problem.Text(), status.message());
      if (!status.ok()) EXPECT_ERROR(status, "on a GPU, because cuDNN", "Run the op on a CPU");
    }
  }
  EXPECT(gpu.num_refusals() == 0);
  EXPECT(real.cudnnDestroyRNNDataDescriptor(data) == 0);
  EXPECT(real.cudnnDestroyTensorDescriptor(tensor) == 0);
}

}  // namespace
}  // namespace cudnn_rnn
