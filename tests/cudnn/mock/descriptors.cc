// The mock of cuDNN: version, handles, and the descriptors of tensors, models and data.

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "tests/cudnn/mock/cudnn_call.h"

namespace cudnn_rnn {

namespace mock {

bool IsDataType(int data_type) {
  return data_type == kCudnnDataFloat || data_type == kCudnnDataDouble ||
         data_type == kCudnnDataHalf || data_type == kCudnnDataBfloat16;
}

bool IsRnnDataType(const State& state, int data_type) {
  const bool has_bfloat16 = state.version() >= static_cast<int64_t>(kMinCudnnVersionForBfloat16);
  return IsDataType(data_type) && (data_type != kCudnnDataBfloat16 || has_bfloat16);
}

DataType CoreTypeOf(int data_type) {
  switch (data_type) {
    case kCudnnDataHalf:
      return DataType::kHalf;
    case kCudnnDataBfloat16:
      return DataType::kBfloat16;
    case kCudnnDataDouble:
      return DataType::kDouble;
    default:
      return DataType::kFloat;
  }
}

namespace {

constexpr int kMaxDimensions = 8;
constexpr int kMaxDataType = 9;  // of the types that every version of tensor descriptors knows
constexpr int kMathWithConversion = 2;
constexpr int kMaxSteps = 65535;
constexpr int64_t kFirstVersionWithTwoDimensions = 90000;
constexpr int64_t kVersionWithoutEmptySequences = 90100;
constexpr int64_t kFirstVersionThatSortsPackedLengths = 90500;

// The arguments of cudnnSetRNNDescriptor_v8.
struct RnnArguments {
  int algorithm, cell_mode, bias_mode, direction_mode, input_mode;
  int data_type, math_precision, math_type;
  int32_t input_size, hidden_size, projection_size, num_layers;
  uint32_t auxiliary_flags;

  bool has_projection() const { return projection_size != hidden_size; }
  bool is_double() const { return data_type == kCudnnDataDouble; }
  bool is_persistent() const { return algorithm != kCudnnAlgorithmStandard; }
};

// Finds arguments that every version of cuDNN refuses, in its order.
int CheckRnnArguments(Call* call, const RnnArguments& arguments) {
  const struct {
    const char* name;
    int value, most;
  } enumerations[] = {
      {"algorithm", arguments.algorithm, kNumAlgorithms - 1},
      {"cell_mode", arguments.cell_mode, kCudnnGru},
      {"bias_mode", arguments.bias_mode, 3},
      {"direction_mode", arguments.direction_mode, kCudnnBidirectional},
      {"input_mode", arguments.input_mode, kCudnnSkipInput},
      {"math_type", arguments.math_type, kCudnnFmaMath},
  };
  for (const auto& enumeration : enumerations) {
    if (enumeration.value < 0 || enumeration.value > enumeration.most) {
      return call->Violation(enumeration.name, " is ", enumeration.value);
    }
  }
  if (arguments.input_size < 1 || arguments.hidden_size < 1 || arguments.num_layers < 1) {
    return call->Violation("sizes must be positive: input ", arguments.input_size, ", hidden ",
                           arguments.hidden_size, ", layers ", arguments.num_layers);
  }
  if (arguments.is_persistent() && arguments.bias_mode != kCudnnDoubleBias) {
    return call->StatusOf(MOCK_NOT_SUPPORTED);
  }
  if (arguments.projection_size < 1) {
    return call->Violation("projection_size is ", arguments.projection_size);
  }
  if (arguments.auxiliary_flags > kCudnnPaddedIoEnabled) {
    return call->Violation("auxiliary_flags are ", arguments.auxiliary_flags);
  }
  return 0;
}

bool HasSupportedPrecision(const RnnArguments& arguments) {
  if (arguments.math_precision == kCudnnDataHalf) {
    return arguments.data_type == kCudnnDataHalf && !arguments.is_persistent();
  }
  return arguments.math_precision == (arguments.is_double() ? kCudnnDataDouble : kCudnnDataFloat);
}

// Returns whether the mock, as configured by the test, supports these arguments.
bool IsSupported(State* state, const RnnArguments& arguments) {
  if (state->Behaves(arguments.algorithm, MOCK_REFUSED_BY_DESCRIPTOR)) return false;
  if (!IsRnnDataType(*state, arguments.data_type)) return false;
  if (!HasSupportedPrecision(arguments)) return false;
  if (arguments.has_projection() &&
      (arguments.projection_size > arguments.hidden_size || arguments.cell_mode != kCudnnLstm ||
       arguments.is_persistent())) {
    return false;
  }
  return !arguments.is_double() || arguments.algorithm == kCudnnAlgorithmStandard ||
         arguments.algorithm == kCudnnAlgorithmPersistDynamic;
}

// Finds arguments that cuDNN supports, but neither the plans nor the mock.
void ForbidRnnArguments(Call* call, const RnnArguments& arguments) {
  if (arguments.bias_mode != kCudnnDoubleBias) {
    call->Forbid("bias_mode is ", arguments.bias_mode, ": only double bias is used");
  }
  const bool is_float = arguments.data_type == kCudnnDataFloat;
  if ((arguments.math_type == kMathWithConversion && !is_float) ||
      (arguments.is_double() && arguments.math_type == kCudnnTensorOpMath)) {
    call->Forbid("math_type is ", arguments.math_type, " for data_type ", arguments.data_type);
  }
  if (arguments.math_precision == kCudnnDataHalf) call->Forbid("math_precision is half");
}

RnnConfig ConfigOf(const RnnArguments& arguments) {
  RnnConfig config;
  config.mode = arguments.cell_mode == kCudnnRnnRelu   ? RnnMode::kRelu
                : arguments.cell_mode == kCudnnRnnTanh ? RnnMode::kTanh
                : arguments.cell_mode == kCudnnLstm    ? RnnMode::kLstm
                                                       : RnnMode::kGru;
  config.input_mode =
      arguments.input_mode == kCudnnSkipInput ? InputMode::kSkip : InputMode::kLinear;
  config.direction = arguments.direction_mode == kCudnnBidirectional ? Direction::kBidirectional
                                                                     : Direction::kUnidirectional;
  config.data_type = CoreTypeOf(arguments.data_type);
  config.num_layers = arguments.num_layers;
  config.num_units = arguments.hidden_size;
  config.input_size = arguments.input_size;
  config.num_proj = arguments.has_projection() ? arguments.projection_size : 0;
  return config;
}

// Answers the lengths as this version of cuDNN does. Forbids sequences of length 0, which some
// versions refuse, and padding in the packed layout, which the mock does not compute.
int CheckLengths(Call* call, const RnnDataDescriptor& data) {
  const int64_t version = call->state().version();
  for (size_t i = 0; i < data.lengths.size(); ++i) {
    const int32_t length = data.lengths[i];
    if (length >= 1 && length <= data.num_steps) continue;
    const std::string problem =
        Concatenate("lengths[", i, "] must be 1 to ", data.num_steps, ", but is ", length);
    if (length != 0) return call->Violation(problem);
    call->Forbid(problem);
    if (version == kVersionWithoutEmptySequences) return call->StatusOf(MOCK_NOT_SUPPORTED);
  }
  const int32_t shortest = *std::min_element(data.lengths.begin(), data.lengths.end());
  const int32_t longest = *std::max_element(data.lengths.begin(), data.lengths.end());
  if (data.layout != kCudnnLayoutTimeMajorPacked) {
    if (longest > 0 || version / 100 != 903) return 0;
    return call->Violation("cuDNN 9.3 refuses that all lengths are 0");
  }
  if (longest != data.num_steps) {
    return call->Violation("the longest packed sequence must have ", data.num_steps,
                           " steps, but has ", longest);
  }
  const bool is_sorted =
      std::is_sorted(data.lengths.begin(), data.lengths.end(), std::greater<int32_t>());
  if (version >= kFirstVersionThatSortsPackedLengths && (!is_sorted || shortest == 0)) {
    return call->Violation("packed lengths must be positive and in descending order");
  }
  if (shortest < data.num_steps) {
    call->Forbid("the mock supports the packed layout only without padding, but a length is ",
                 shortest);
  }
  return 0;
}

// Answers as this version of cuDNN does. Forbids what the plans do not use.
int CheckTensor(Call* call, int data_type, int num_dimensions, const int* dimensions,
                const int* strides) {
  if (data_type < 0 || data_type > kMaxDataType) {
    return call->Violation("data_type is ", data_type);
  }
  const bool has_two = call->state().version() >= kFirstVersionWithTwoDimensions;
  if (num_dimensions < (has_two ? 2 : 3)) {
    return call->Violation("num_dimensions is ", num_dimensions);
  }
  if (num_dimensions < 3 || num_dimensions > kMaxDimensions) {
    call->Forbid("num_dimensions is ", num_dimensions);
  }
  if (num_dimensions > kMaxDimensions) return call->StatusOf(MOCK_NOT_SUPPORTED);
  if (dimensions == nullptr || strides == nullptr) {
    return call->Violation("dimensions or strides are null");
  }
  CheckedSize span = 1;  // of the addresses, in elements
  for (int i = 0; i < num_dimensions; ++i) {
    if (dimensions[i] < 1 || (strides[i] == 0 && dimensions[i] > 1)) {
      return call->Violation("dimension ", i, " is ", dimensions[i], " with stride ", strides[i]);
    }
    if (strides[i] < 1) call->Forbid("stride ", i, " is ", strides[i]);
    span = span + CheckedSize(dimensions[i] - 1) * std::max(strides[i], 0);
  }
  if (std::numeric_limits<int>::max() < span) return call->StatusOf(MOCK_NOT_SUPPORTED);
  if (!IsDataType(data_type)) call->Forbid("data_type is ", data_type);
  return 0;
}

}  // namespace
}  // namespace mock

using namespace mock;  // NOLINT: C functions are outside the namespace

extern "C" {

size_t cudnnGetVersion() {
  LoadPartOrAbort();
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return static_cast<size_t>(state.version());
}

const char* cudnnGetErrorString(int status) {
  switch (status) {
    case 0:
      return "CUDNN_STATUS_SUCCESS";
    case 1:
    case 1001:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
      return "CUDNN_STATUS_ALLOC_FAILED";
    case 4004:
      return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
    case 3:
    case 2000:
      return "CUDNN_STATUS_BAD_PARAM";
    case 4:
    case 4000:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    case 8:
    case 5000:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    case 9:
    case 3000:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
      return "CUDNN_STATUS_UNKNOWN";
  }
}

int cudnnCreate(void** handle) {
  return RunCudnn("cudnnCreate", [&](Call* call) {
    Handle created;
    MOCK_RETURN_IF_FAILED(call->NeedContext(&created.device));
    if (handle == nullptr) return call->Violation("handle is null");
    MOCK_RETURN_IF_FAILED(call->WaitForDevice());
    *handle = call->state().handles.Add(created);
    return 0;
  });
}

int cudnnDestroy(void* handle) {
  return RunCudnnRelease("cudnnDestroy", [&](Call* call) {
    Handle* found;
    MOCK_RETURN_IF_FAILED(call->NeedHandle(handle, &found));
    call->state().handles.Remove(handle);
    return call->WaitForDevice();
  });
}

int cudnnSetStream(void* handle, void* stream) {
  return RunCudnn("cudnnSetStream", [&](Call* call) {
    Handle* found;
    MOCK_RETURN_IF_FAILED(call->NeedHandle(handle, &found));
    MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
    found->stream = stream;
    found->has_stream = true;
    return 0;
  });
}

int cudnnCreateTensorDescriptor(void** descriptor) {
  return CreateObject("cudnnCreateTensorDescriptor", &State::tensor_descriptors, descriptor);
}

int cudnnDestroyTensorDescriptor(void* descriptor) {
  return DestroyObject("cudnnDestroyTensorDescriptor", &State::tensor_descriptors, descriptor);
}

int cudnnSetTensorNdDescriptor(void* descriptor, int data_type, int num_dimensions,
                               const int* dimensions, const int* strides) {
  return RunCudnn("cudnnSetTensorNdDescriptor", [&](Call* call) {
    TensorDescriptor* found;
    MOCK_RETURN_IF_FAILED(
        call->Need(&call->state().tensor_descriptors, descriptor, "tensor descriptor", &found));
    MOCK_RETURN_IF_FAILED(CheckTensor(call, data_type, num_dimensions, dimensions, strides));
    found->is_set = true;
    found->data_type = data_type;
    found->dimensions.assign(dimensions, dimensions + num_dimensions);
    found->strides.assign(strides, strides + num_dimensions);
    return 0;
  });
}

int cudnnGetTensorNdDescriptor(void* descriptor, int max_dimensions, int* data_type,
                               int* num_dimensions, int* dimensions, int* strides) {
  return RunCudnn("cudnnGetTensorNdDescriptor", [&](Call* call) {
    TensorDescriptor* found;
    MOCK_RETURN_IF_FAILED(
        NeedSet(call, &call->state().tensor_descriptors, descriptor, "tensor descriptor", &found));
    if (max_dimensions < 0 || max_dimensions > kMaxDimensions) {
      return call->Violation("max_dimensions is ", max_dimensions);
    }
    if (data_type == nullptr || num_dimensions == nullptr || dimensions == nullptr ||
        strides == nullptr) {
      return call->Violation("an output is null");
    }
    *data_type = found->data_type;
    *num_dimensions = static_cast<int>(found->dimensions.size());
    const int count = std::min(max_dimensions, *num_dimensions);
    std::copy_n(found->dimensions.begin(), count, dimensions);
    std::copy_n(found->strides.begin(), count, strides);
    return 0;
  });
}

int cudnnCreateRNNDescriptor(void** descriptor) {
  return CreateObject("cudnnCreateRNNDescriptor", &State::rnn_descriptors, descriptor);
}

int cudnnDestroyRNNDescriptor(void* descriptor) {
  return DestroyObject("cudnnDestroyRNNDescriptor", &State::rnn_descriptors, descriptor);
}

int cudnnSetRNNDescriptor_v8(void* descriptor, int algorithm, int cell_mode, int bias_mode,
                             int direction_mode, int input_mode, int data_type, int math_precision,
                             int math_type, int32_t input_size, int32_t hidden_size,
                             int32_t projection_size, int32_t num_layers, void* dropout_descriptor,
                             uint32_t auxiliary_flags) {
  const RnnArguments arguments = {algorithm,      cell_mode,   bias_mode,       direction_mode,
                                  input_mode,     data_type,   math_precision,  math_type,
                                  input_size,     hidden_size, projection_size, num_layers,
                                  auxiliary_flags};
  return RunCudnn("cudnnSetRNNDescriptor_v8", [&](Call* call) {
    State& state = call->state();
    state.record.log.back() += Concatenate(" algorithm=", algorithm, " math_type=", math_type);
    RnnDescriptor* found;
    DropoutDescriptor* dropout;
    MOCK_RETURN_IF_FAILED(call->Need(&state.rnn_descriptors, descriptor, "RNN descriptor", &found));
    MOCK_RETURN_IF_FAILED(NeedSet(call, &state.dropout_descriptors, dropout_descriptor,
                                  "dropout descriptor", &dropout));
    MOCK_RETURN_IF_FAILED(CheckRnnArguments(call, arguments));
    if (!IsSupported(&state, arguments)) return call->StatusOf(MOCK_NOT_SUPPORTED);
    ForbidRnnArguments(call, arguments);
    RnnDescriptor set;
    set.is_set = true;
    set.config = ConfigOf(arguments);
    set.data_type = data_type;
    set.algorithm = algorithm;
    set.math_type = math_type;
    set.allows_padding = auxiliary_flags == kCudnnPaddedIoEnabled;
    set.padded_weights = state.record.options.padded_weights;
    set.dropout_descriptor = dropout_descriptor;
    *found = set;
    return 0;
  });
}

int cudnnBuildRNNDynamic(void* handle, void* rnn_descriptor, int batch_size) {
  return RunCudnn("cudnnBuildRNNDynamic", [&](Call* call) {
    Handle* found_handle;
    RnnDescriptor* found;
    MOCK_RETURN_IF_FAILED(call->NeedHandle(handle, &found_handle));
    MOCK_RETURN_IF_FAILED(
        NeedSet(call, &call->state().rnn_descriptors, rnn_descriptor, "RNN descriptor", &found));
    if (found->algorithm != kCudnnAlgorithmPersistDynamic) {
      call->Forbid("the algorithm is ", found->algorithm, ", not persist_dynamic");
      const int64_t version = call->state().version();
      if (version < 90000) return kCudnn8RuntimePrerequisiteMissing;
      if (version < 90500) return kCudnnRuntimePrerequisiteMissing;
    }
    if (batch_size < 1) return call->Violation("batch_size is ", batch_size);
    MOCK_RETURN_IF_FAILED(call->WaitForDevice());
    found->built_batch_size = batch_size;
    return 0;
  });
}

int cudnnCreateRNNDataDescriptor(void** descriptor) {
  return CreateObject("cudnnCreateRNNDataDescriptor", &State::rnn_data_descriptors, descriptor);
}

int cudnnDestroyRNNDataDescriptor(void* descriptor) {
  return DestroyObject("cudnnDestroyRNNDataDescriptor", &State::rnn_data_descriptors, descriptor);
}

int cudnnSetRNNDataDescriptor(void* descriptor, int data_type, int layout, int max_length,
                              int batch_size, int vector_size, const int* lengths,
                              void* padding_fill) {
  return RunCudnn("cudnnSetRNNDataDescriptor", [&](Call* call) {
    RnnDataDescriptor* found;
    MOCK_RETURN_IF_FAILED(
        call->Need(&call->state().rnn_data_descriptors, descriptor, "RNN data descriptor", &found));
    if (data_type < 0 || data_type > kMaxDataType) {
      return call->Violation("data_type is ", data_type);
    }
    if (!IsRnnDataType(call->state(), data_type)) return call->StatusOf(MOCK_NOT_SUPPORTED);
    if (layout < kCudnnLayoutTimeMajorPadded || layout > kCudnnLayoutBatchMajorPadded) {
      return call->Violation("layout is ", layout);
    }
    if (max_length < 1 || batch_size < 1 || vector_size < 1) {
      return call->Violation("sizes must be positive: max_length ", max_length, ", batch_size ",
                             batch_size, ", vector_size ", vector_size);
    }
    if (lengths == nullptr) return call->Violation("lengths are null");
    if (max_length > kMaxSteps) return call->StatusOf(MOCK_NOT_SUPPORTED);
    RnnDataDescriptor set;
    set.is_set = true;
    set.data_type = data_type;
    set.layout = layout;
    set.num_steps = max_length;
    set.batch_size = batch_size;
    set.vector_size = vector_size;
    set.lengths.assign(lengths, lengths + batch_size);
    MOCK_RETURN_IF_FAILED(CheckLengths(call, set));
    if (padding_fill != nullptr) {
      set.has_padding_fill = true;
      const int64_t size = SizeOf(CoreTypeOf(data_type));
      std::memcpy(set.padding_fill, padding_fill, static_cast<size_t>(size));
    }
    *found = set;
    return 0;
  });
}

}  // extern "C"

}  // namespace cudnn_rnn
