// Tests that the mock of cuDNN detects misuse: the calls of a training step of the cuDNN plan, of
// which one argument is wrong. (That correct calls compute the right results is what
// plan_parity_test.cc tests.)

#include <algorithm>
#include <cstring>
#include <functional>

#include "tests/core/testing.h"
#include "tests/cudnn/mock/functions.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

// Changes the arguments of a call, given their addresses.
using Change = std::function<void(void* const* arguments)>;

template <typename T>
T& At(void* const* arguments, int position) {
  return *static_cast<T*>(arguments[position]);
}

// Returns the bytes that a pointer argument points to.
char* BytesAt(void* const* arguments, int position) { return At<char*>(arguments, position); }

// A function of cuDNN whose arguments are changed before each call. One for each signature.
template <typename... Parameters>
struct ChangedFunction {
  static int (*original)(Parameters...);
  static Change change;
  static int* worst_status;  // null: not wanted
  static int Call(Parameters... parameters) {
    void* const arguments[] = {&parameters...};
    change(arguments);
    const int status = original(parameters...);
    if (worst_status != nullptr) *worst_status = std::max(*worst_status, status);
    return status;
  }
};
template <typename... Parameters>
int (*ChangedFunction<Parameters...>::original)(Parameters...);
template <typename... Parameters>
Change ChangedFunction<Parameters...>::change;

template <typename... Parameters>
int* ChangedFunction<Parameters...>::worst_status;

template <typename... Parameters>
void ChangeCalls(int (**function)(Parameters...), const Change& change,
                 int* worst_status = nullptr) {
  using Changed = ChangedFunction<Parameters...>;
  Changed::worst_status = worst_status;
  Changed::original = *function;
  Changed::change = change;
  *function = Changed::Call;
}

template <typename... Parameters>
void OmitCalls(int (**function)(Parameters...)) {
  *function = [](Parameters...) { return 0; };
}

// Positions of arguments.
namespace forward {
enum {
  kHandle,
  kRnn,
  kMode,
  kLengths,
  kXDescriptor,
  kX,
  kYDescriptor,
  kY,
  kHDescriptor,
  kHx,
  kHy,
  kCDescriptor,
  kWeightSpaceBytes = 14,
  kWeights,
  kWorkspaceBytes,
  kWorkspace,
  kReserveSpaceBytes,
  kReserveSpace,
};
}  // namespace forward
namespace backward_data {
enum { kY = 4, kHx = 9, kWeights = 17, kReserveSpace = 21 };
}  // namespace backward_data
namespace backward_weights {
enum { kX = 5, kY = 9, kGradient = 11 };
}  // namespace backward_weights
namespace data_descriptor {
enum { kLayout = 2, kVectorSize = 5, kLengths, kPaddingFill };
}  // namespace data_descriptor

Problem SmallLstm() {
  Problem problem;
  problem.config.num_layers = 2;
  problem.config.num_units = 6;
  problem.config.num_proj = 4;
  problem.config.input_size = 3;
  problem.config.direction = Direction::kBidirectional;
  problem.shape = {5, 4, true};
  problem.lengths = {5, 3, 3, 1};
  return problem;
}

// Expects exactly one violation, whose text contains `part`. Then resets the mock.
void ExpectOneViolation(const Status& status, const std::string& part) {
  const std::string text = mock_violation_text();
  EXPECT(!status.ok(), part);
  EXPECT(mock_violations() == 1 && text.find(part) != std::string::npos, part, " in: ", text);
  mock_reset();
}

Status Train(MockGpu* gpu, const Problem& problem, Algorithm algorithm = Algorithm::kStandard) {
  GpuModel model(gpu->runtime(), algorithm);
  return model.Run(problem, problem.Options(true), CallBuffers(problem, 23));
}

struct Misuse {
  const char* violation;
  Change change;
};

// Expects each change of the function's arguments to be a violation.
template <typename Function>
void ExpectViolations(Function GpuLibraries::*function, std::initializer_list<Misuse> misuses) {
  for (const Misuse& misuse : misuses) {
    MockGpu gpu;
    ChangeCalls(&(gpu.libraries()->*function), misuse.change);
    ExpectOneViolation(Train(&gpu, SmallLstm()), misuse.violation);
  }
}

// Expects each change of the function's arguments to be a violation, although the real library
// accepts it. (The mock may then fail later.)
template <typename Function>
void ExpectForbidden(Function GpuLibraries::*function, std::initializer_list<Misuse> misuses) {
  for (const Misuse& misuse : misuses) {
    int status = 0;
    MockGpu gpu;
    ChangeCalls(&(gpu.libraries()->*function), misuse.change, &status);
    Train(&gpu, SmallLstm());
    const std::string text = mock_violation_text();
    EXPECT(text.substr(0, text.find('\n')).find(misuse.violation) != std::string::npos,
           misuse.violation, " in: ", text);
    EXPECT(status == 0, misuse.violation, " fails with ", status);
    mock_reset();
  }
}

TEST(MockFindsWrongArgumentsOfForward) {
  using namespace forward;  // NOLINT: names of arguments
  alignas(64) static char host_memory[4096];
  ExpectViolations(
      &GpuLibraries::cudnnRNNForward,
      {{"x is null", [](void* const* a) { At<void*>(a, kX) = nullptr; }},
       {"y is null", [](void* const* a) { At<void*>(a, kY) = nullptr; }},
       {"hx is null", [](void* const* a) { At<void*>(a, kHx) = nullptr; }},
       {"hx at", [](void* const* a) { At<char*>(a, kHx) += 4; }},
       {"y at", [](void* const* a) { At<char*>(a, kY) += 16; }},
       {"is not device memory", [](void* const* a) { At<void*>(a, kX) = host_memory; }},
       {"y overlaps x",
        [](void* const* a) { At<void*>(a, kX) = At<void*>(a, kY) = At<void*>(a, kWeights); }},
       {"hy overlaps hx", [](void* const* a) { At<void*>(a, kHy) = At<void*>(a, kHx); }},
       {"weight_space at", [](void* const* a) { At<char*>(a, kWeights) += 16; }},
       {"is not aligned to 256 bytes", [](void* const* a) { At<char*>(a, kWorkspace) += 128; }},
       {"weight_space_bytes", [](void* const* a) { --At<size_t>(a, kWeightSpaceBytes); }},
       {"workspace_bytes", [](void* const* a) { --At<size_t>(a, kWorkspaceBytes); }},
       {"workspace is null", [](void* const* a) { At<void*>(a, kWorkspace) = nullptr; }},
       {"reserve_space_bytes", [](void* const* a) { --At<size_t>(a, kReserveSpaceBytes); }},
       {"reserve_space is null", [](void* const* a) { At<void*>(a, kReserveSpace) = nullptr; }},
       {"was not created", [](void* const* a) { At<void*>(a, kHandle) = host_memory; }},
       {"was not created", [](void* const* a) { At<void*>(a, kXDescriptor) = host_memory; }},
       {"has vector size 3",
        [](void* const* a) { At<void*>(a, kYDescriptor) = At<void*>(a, kXDescriptor); }},
       {"shape {4, 4, 4}",
        [](void* const* a) { At<void*>(a, kHDescriptor) = At<void*>(a, kCDescriptor); }},
       {"descriptor of c", [](void* const* a) { At<void*>(a, kCDescriptor) = nullptr; }},
       {"forward_mode is 7", [](void* const* a) { At<int>(a, kMode) = 7; }}});
}

TEST(MockFindsWrongDescriptors) {
  static const int loose_strides[] = {48, 6, 1};
  ExpectViolations(
      &GpuLibraries::cudnnSetTensorNdDescriptor,
      {{"num_dimensions is 1", [](void* const* a) { At<int>(a, 2) = 1; }},
       {"not fully packed", [](void* const* a) { At<const int*>(a, 4) = loose_strides; }}});
  ExpectForbidden(&GpuLibraries::cudnnSetTensorNdDescriptor,
                  {{"num_dimensions is 2", [](void* const* a) { At<int>(a, 2) = 2; }},
                   {"data_type is 3", [](void* const* a) { At<int>(a, 1) = 3; }}});
  using namespace data_descriptor;  // NOLINT: names of arguments
  for (const int32_t length : {6, -1}) {
    const std::vector<int32_t> lengths = {5, 3, 3, length};
    ExpectViolations(&GpuLibraries::cudnnSetRNNDataDescriptor,
                     {{"lengths[3] must be 1 to 5",
                       [&](void* const* a) { At<const int*>(a, kLengths) = lengths.data(); }}});
  }
  static const int other_lengths[] = {5, 3, 3, 2}, zero_lengths[] = {5, 3, 3, 0};
  static const int unsorted_lengths[] = {3, 5, 3, 1};
  ExpectForbidden(&GpuLibraries::cudnnSetRNNDataDescriptor,
                  {{"lengths[3] must be 1 to 5, but is 0",
                    [](void* const* a) { At<const int*>(a, kLengths) = zero_lengths; }},
                   {"only without padding",
                    [](void* const* a) { At<int>(a, kLayout) = kCudnnLayoutTimeMajorPacked; }}});
  ExpectViolations(&GpuLibraries::cudnnSetRNNDataDescriptor,
                   {{"x and y differ",
                     [](void* const* a) {
                       if (At<int>(a, kVectorSize) == 3)
                         At<const int*>(a, kLengths) = other_lengths;
                     }},
                    {"in descending order", [](void* const* a) {
                       At<int>(a, kLayout) = kCudnnLayoutTimeMajorPacked;
                       At<const int*>(a, kLengths) = unsorted_lengths;
                     }}});
  const int bias_mode = 3, math_precision = 7, flags = 14;
  ExpectViolations(
      &GpuLibraries::cudnnSetRNNDescriptor_v8,
      {{"padded IO", [](void* const* a) { At<uint32_t>(a, flags) = kCudnnPaddedIoDisabled; }},
       {"bias_mode is 4", [](void* const* a) { At<int>(a, bias_mode) = 4; }}});
  ExpectForbidden(&GpuLibraries::cudnnSetRNNDescriptor_v8,
                  {{"bias_mode is 1", [](void* const* a) { At<int>(a, bias_mode) = 1; }},
                   {"math_precision is half", [](void* const* a) {
                      At<int>(a, 6) = At<int>(a, math_precision) = kCudnnDataHalf;
                    }}});
  const int weight_space_bytes = 3, linear_layer = 5;
  ExpectForbidden(
      &GpuLibraries::cudnnGetRNNWeightParams,
      {{"weight_space_bytes must be at least",
        [](void* const* a) { --At<size_t>(a, weight_space_bytes); }},
       {"linear_layer is 9", [](void* const* a) { At<int32_t>(a, linear_layer) = 9; }}});
}

TEST(MockFindsChangedDataInBackward) {
  // Of y, only the row of a sequence of length 1 may be cleared.
  const size_t row_bytes = 2 * 4 * sizeof(float);
  ExpectViolations(
      &GpuLibraries::cudnnRNNBackwardData_v8,
      {{"not what a forward call in training left",
        [](void* const* a) { std::memset(BytesAt(a, backward_data::kReserveSpace), 0, 64); }},
       {"y is not that of the forward call",
        [](void* const* a) { BytesAt(a, backward_data::kY)[0] ^= 1; }},
       {"weights is not that of the forward call",
        [](void* const* a) { BytesAt(a, backward_data::kWeights)[5] ^= 1; }},
       {"hx is not that", [](void* const* a) { BytesAt(a, backward_data::kHx)[1] ^= 1; }}});
  ExpectViolations(
      &GpuLibraries::cudnnRNNBackwardWeights_v8,
      {{"was not cleared", [](void* const* a) { BytesAt(a, backward_weights::kGradient)[9] = 1; }},
       {"x is not that of the forward call",
        [](void* const* a) { BytesAt(a, backward_weights::kX)[2] ^= 1; }},
       {"y is not that of the forward call", [](void* const* a) {
          std::memset(BytesAt(a, backward_weights::kY) + 2 * row_bytes, 0, row_bytes);
        }}});
}

TEST(MockFindsAWrongOrderOfCalls) {
  MockGpu gpu;
  GpuModel model(gpu.runtime());
  Problem problem = SmallLstm();
  const CallBuffers buffers(problem, 23);
  CallOptions call = problem.Options(true);
  std::unique_ptr<DeviceBuffer> reserve_space;
  EXPECT(model.Forward(problem, call, buffers, &reserve_space).ok());
  problem.lengths[2] = 2;
  ExpectOneViolation(model.Backward(problem, problem.Options(true), buffers, *reserve_space),
                     "of another model, shape or lengths");
  call.keeps_reserve_space = false;
  EXPECT(model.Backward(problem, call, buffers, *reserve_space).ok());
  ExpectOneViolation(model.Backward(problem, call, buffers, *reserve_space),
                     "has used this reserve space already");
  EXPECT(model.Forward(problem, call, buffers, &reserve_space).ok());
  OmitCalls(&gpu.libraries()->cudnnRNNBackwardData_v8);
  ExpectOneViolation(model.Backward(problem, call, buffers, *reserve_space),
                     "must come before the weights' gradient");
}

TEST(MockFindsAGradientWithAnotherAlgorithmOrMathType) {
  MockGpu gpu;
  Problem problem = SmallLstm();
  problem.config.num_proj = 0;
  problem.lengths.clear();
  const CallBuffers buffers(problem, 23);
  const CallOptions call = problem.Options(true);
  for (const bool changes_algorithm : {false, true}) {
    GpuModel model(gpu.runtime());
    std::unique_ptr<DeviceBuffer> reserve_space;
    EXPECT(model.Forward(problem, call, buffers, &reserve_space).ok());
    if (changes_algorithm) {
      model.options.algorithm = Algorithm::kPersistStatic;
    } else {
      model.options.allow_tf32 = true;
    }
    ExpectOneViolation(model.Backward(problem, call, buffers, *reserve_space),
                       "another algorithm or math type");
  }
}

TEST(MockLimitsAlgorithms) {
  Problem problem = SmallLstm();
  problem.config.num_proj = 0;
  problem.lengths.clear();
  const struct {
    int64_t max_steps, max_batch_size;
    int min_compute_capability;
    bool is_supported;
  } cases[] = {{5, 4, 80, true}, {4, 4, 80, false}, {5, 3, 80, false}, {5, 4, 86, false}};
  for (const int support :
       {MOCK_REFUSED_BY_SIZES, MOCK_REFUSED_BY_FORWARD, MOCK_REFUSED_BY_BACKWARD}) {
    for (const auto& test : cases) {
      MockGpu gpu;
      mock_limit_algorithm(kCudnnAlgorithmPersistStatic, support, test.max_steps,
                           test.max_batch_size, test.min_compute_capability);
      const Status status = Train(&gpu, problem, Algorithm::kPersistStatic);
      EXPECT(status.ok() == test.is_supported, status.message());
      EXPECT(Train(&gpu, problem).ok(), "other algorithms have no limits");
    }
  }
}

TEST(MockFindsGapsThatAreNotZero) {
  MockGpu gpu;
  mock_set_padded_weights(1);
  ChangeCalls(&gpu.libraries()->cudnnRNNForward, [](void* const* a) {
    BytesAt(a, forward::kWeights)[At<size_t>(a, forward::kWeightSpaceBytes) - 1] = 1;
  });
  ExpectOneViolation(Train(&gpu, SmallLstm()), "not 0 between its regions");
}

TEST(MockRequiresDeviceLengthsInOldVersions) {
  const Misuse misuses[] = {
      {"device_lengths may not be null in version 8800",
       [](void* const* a) { At<void*>(a, forward::kLengths) = nullptr; }},
      {"device_lengths differ", [](void* const* a) { ++*At<int32_t*>(a, forward::kLengths); }}};
  for (const Misuse& misuse : misuses) {
    MockGpu gpu;
    mock_set_version(8800);
    gpu.Reopen();
    ChangeCalls(&gpu.libraries()->cudnnRNNForward, misuse.change);
    ExpectOneViolation(Train(&gpu, SmallLstm()), misuse.violation);
  }
}

TEST(MockRequiresThatDynamicAlgorithmsAreBuilt) {
  MockGpu gpu;
  OmitCalls(&gpu.libraries()->cudnnBuildRNNDynamic);
  Problem problem = SmallLstm();
  problem.config.num_proj = 0;
  problem.lengths.clear();
  ExpectOneViolation(Train(&gpu, problem, Algorithm::kPersistDynamic),
                     "cudnnBuildRNNDynamic was called for batch size 0, not 4");
}

TEST(MockForbidsToBuildTheStandardAlgorithm) {
  Problem problem = SmallLstm();
  problem.config.num_proj = 0;
  problem.lengths.clear();
  const struct {
    int64_t version;
    int status;
  } cases[] = {{8907, 11}, {90300, 3008}, {90500, 0}};
  for (const auto& test : cases) {
    int status = 0;
    MockGpu gpu;
    mock_set_version(test.version);
    gpu.Reopen();
    ChangeCalls(&gpu.libraries()->cudnnSetRNNDescriptor_v8,
                [](void* const* a) { At<int>(a, 1) = kCudnnAlgorithmStandard; });
    ChangeCalls(
        &gpu.libraries()->cudnnBuildRNNDynamic, [](void* const*) {}, &status);
    const bool is_ok = Train(&gpu, problem, Algorithm::kPersistDynamic).ok();
    EXPECT(status == test.status && is_ok == (status == 0), test.version, " returns ", status);
    const std::string text = mock_violation_text();
    EXPECT(text.find("the algorithm is 0, not persist_dynamic") != std::string::npos, text);
    mock_reset();
  }
}

TEST(MockRefusesBfloat16InOldVersions) {
  MockGpu gpu;
  mock_set_version(91200);  // unknown to the plan, which would refuse bfloat16 itself
  Problem problem = SmallLstm();
  problem.config.data_type = DataType::kBfloat16;
  EXPECT_ERROR(Train(&gpu, problem), "cudnnSetRNNDescriptor_v8", "NOT_SUPPORTED");
}

TEST(MockFillsTheOutputsPadding) {
  for (const bool fills : {true, false}) {
    MockGpu gpu;
    float fill = 7;
    ChangeCalls(&gpu.libraries()->cudnnSetRNNDataDescriptor, [&](void* const* a) {
      At<void*>(a, data_descriptor::kPaddingFill) = fills ? &fill : nullptr;
    });
    const Problem problem = SmallLstm();
    const CallBuffers buffers(problem, 23);
    EXPECT(GpuModel(gpu.runtime()).Run(problem, problem.Options(false), buffers).ok());
    const double last = ReadResults(problem, false, buffers)[0].back();
    EXPECT(fills ? last == 7 : last != last, "undefined without a fill, but is ", last);
  }
}

}  // namespace
}  // namespace cudnn_rnn
