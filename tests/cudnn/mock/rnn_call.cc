#include "tests/cudnn/mock/rnn_call.h"

#include <algorithm>
#include <cstring>

#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "tests/cudnn/mock/cpu_arithmetic.h"

namespace cudnn_rnn {
namespace mock {
namespace {

// Not powers of two: the real library's sizes need not be either.
constexpr int64_t kWorkspaceBytes = 4136;
constexpr int64_t kTrainingWorkspaceBytes = 1000;
constexpr uint64_t kLowest32Bits = 0xffffffff;

int RefuseOrViolate(Call* call, const Status& status) {
  if (status.code() == StatusCode::kUnimplemented) return call->StatusOf(MOCK_NOT_SUPPORTED);
  return call->Violation(status.message());
}

int FindModel(Call* call, void* rnn_descriptor, RnnCall* rnn_call) {
  State& state = call->state();
  RnnDescriptor* rnn;
  DropoutDescriptor* dropout;
  MOCK_RETURN_IF_FAILED(
      NeedSet(call, &state.rnn_descriptors, rnn_descriptor, "RNN descriptor", &rnn));
  MOCK_RETURN_IF_FAILED(NeedSet(call, &state.dropout_descriptors, rnn->dropout_descriptor,
                                "the RNN descriptor's dropout descriptor", &dropout));
  rnn_call->rnn = *rnn;
  rnn_call->config = rnn->config;
  rnn_call->config.dropout = dropout->dropout;
  if (dropout->states != nullptr) {
    MOCK_RETURN_IF_FAILED(NeedDropoutStates(call, dropout->states, &rnn_call->dropout));
    rnn_call->dropout_states = dropout->states;
    // As the CPU plan's seeds are combined by TensorFlow's rule.
    rnn_call->config.seed = static_cast<int64_t>(rnn_call->dropout.seed >> 32);
    rnn_call->config.seed2 = static_cast<int64_t>(rnn_call->dropout.seed & kLowest32Bits);
  }
  return 0;
}

// Returns whether the algorithm supports the model. Descriptors accept more.
bool IsSupported(const RnnDescriptor& rnn) {
  if (rnn.algorithm == kCudnnAlgorithmStandard) return true;
  const int64_t num_units = rnn.config.num_units;
  if (rnn.algorithm == kCudnnAlgorithmPersistStatic) return num_units <= 1024;
  const bool has_one_gate = rnn.config.num_gates() == 1;
  return rnn.algorithm != kCudnnAlgorithmPersistStaticSmallH ||
         num_units <= (has_one_gate ? 384 : 192);
}

int FindData(Call* call, void* descriptor, const char* name, const RnnCall& rnn_call,
             int64_t vector_size, RnnDataDescriptor* data) {
  RnnDataDescriptor* found;
  MOCK_RETURN_IF_FAILED(
      NeedSet(call, &call->state().rnn_data_descriptors, descriptor, name, &found));
  if (CoreTypeOf(found->data_type) != rnn_call.config.data_type) {
    return call->Violation(name, " has data type ", found->data_type, ", the model ",
                           Name(rnn_call.config.data_type));
  }
  if (found->vector_size != vector_size) {
    return call->Violation(name, " has vector size ", found->vector_size, ", but needs ",
                           vector_size);
  }
  if (found->layout != kCudnnLayoutTimeMajorPacked && !rnn_call.rnn.allows_padding) {
    return call->Violation(name, " has padded layout ", found->layout,
                           ", but the RNN descriptor does not have padded IO enabled");
  }
  *data = *found;
  return 0;
}

int CheckStateDescriptor(Call* call, void* descriptor, const char* name, const RnnCall& rnn_call,
                         int64_t width) {
  TensorDescriptor* found;
  MOCK_RETURN_IF_FAILED(NeedSet(call, &call->state().tensor_descriptors, descriptor, name, &found));
  const RnnConfig& config = rnn_call.config;
  const std::vector<int64_t> shape = {config.num_layers * config.num_directions(),
                                      rnn_call.x.batch_size, width};
  if (CoreTypeOf(found->data_type) != config.data_type || found->dimensions.size() != 3 ||
      !std::equal(shape.begin(), shape.end(), found->dimensions.begin())) {
    return call->Violation(name, " must have the model's data type and shape {", shape[0], ", ",
                           shape[1], ", ", shape[2], "}");
  }
  if (found->strides[2] != 1 || found->strides[1] != width ||
      found->strides[0] != width * shape[1]) {
    return call->Violation(name, " is not fully packed");
  }
  return 0;
}

int CheckDeviceLengths(Call* call, const RnnCall& rnn_call, const int32_t* device_lengths) {
  if (device_lengths == nullptr) {
    const int64_t version = call->state().version();
    if (version >= static_cast<int64_t>(kCudnnVersionWithoutDeviceLengths)) return 0;
    return call->Violation("device_lengths may not be null in version ", version);
  }
  const std::vector<int32_t>& lengths = rnn_call.x.lengths;
  const int64_t bytes = static_cast<int64_t>(lengths.size() * sizeof(int32_t));
  MOCK_RETURN_IF_FAILED(call->NeedMemory("device_lengths", device_lengths, bytes, sizeof(int32_t)));
  if (std::equal(lengths.begin(), lengths.end(), device_lengths)) return 0;
  return call->Violation("device_lengths differ from those of the data descriptor");
}

// Calls function(row in [T, B], row in the layout, is_padding) for each step of each sequence.
template <typename Function>
void ForRows(const RnnDataDescriptor& data, const Function& function) {
  for (int64_t t = 0; t < data.num_steps; ++t) {
    for (int64_t b = 0; b < data.batch_size; ++b) {
      const int64_t time_major_row = t * data.batch_size + b;
      const bool is_padding = t >= data.lengths[static_cast<size_t>(b)];
      const bool is_batch_major = data.layout == kCudnnLayoutBatchMajorPadded;
      function(time_major_row, is_batch_major ? b * data.num_steps + t : time_major_row,
               is_padding);
    }
  }
}

int64_t Align(CheckedSize* end, int64_t bytes) {
  const int64_t offset = end->value();
  const CheckedSize rounded = CheckedSize(bytes) + (kBufferAlignment - 1);
  *end = *end + CheckedSize(rounded.value() / static_cast<int64_t>(kBufferAlignment)) *
                    static_cast<int64_t>(kBufferAlignment);
  return offset;
}

}  // namespace

void Copy(const void* source, int64_t bytes, void* target) {
  if (bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
}

uint64_t RnnCall::ModelFingerprint() const {
  std::string text = Concatenate(Describe(config), ", algorithm ", rnn.algorithm, ", math type ",
                                 rnn.math_type, ", ", x.num_steps, " steps, lengths");
  for (const int32_t length : x.lengths) text += Concatenate(" ", length);
  return FingerprintOf(text);
}

Status RnnCall::CreatePlan() {
  return CreateCpuPlan(config, shape(), MockInstructionSet(config.data_type), &plan);
}

int PrepareSizes(Call* call, void* handle, void* rnn_descriptor, void* x_descriptor,
                 bool is_training, RnnCall* rnn_call) {
  Handle* found_handle;
  MOCK_RETURN_IF_FAILED(call->NeedHandleWithStream(handle, &found_handle));
  rnn_call->stream = found_handle->stream;
  MOCK_RETURN_IF_FAILED(FindModel(call, rnn_descriptor, rnn_call));
  if (!IsSupported(rnn_call->rnn)) return call->StatusOf(MOCK_NOT_SUPPORTED);
  const RnnConfig& config = rnn_call->config;
  MOCK_RETURN_IF_FAILED(FindData(call, x_descriptor, "the data descriptor of x", *rnn_call,
                                 config.input_size, &rnn_call->x));
  const Status weights =
      WeightSpace::Create(config, rnn_call->rnn.padded_weights, &rnn_call->weights);
  if (!weights.ok()) return RefuseOrViolate(call, weights);
  const Status planned = rnn_call->CreatePlan();
  if (!planned.ok()) return RefuseOrViolate(call, planned);

  const CheckedSize element(rnn_call->element_size());
  const CheckedSize rows = CheckedSize(rnn_call->x.num_steps) * rnn_call->x.batch_size;
  const CheckedSize pseudo_layers =
      CheckedSize(config.num_layers) * config.num_directions() * rnn_call->x.batch_size;
  const CheckedSize x = rows * config.input_size * element;
  const CheckedSize y = rows * config.num_directions() * config.output_size() * element;
  const CheckedSize h = pseudo_layers * config.output_size() * element;
  const CheckedSize c = config.has_cell_state() ? pseudo_layers * config.num_units * element : 0;
  const CheckedSize total =
      (x + y + h + c) * 4 + rnn_call->plan->ReserveSpaceBytes() + rnn_call->weights.bytes();
  if (total.overflowed()) return call->StatusOf(MOCK_NOT_SUPPORTED);
  rnn_call->x_bytes = x.value();
  rnn_call->y_bytes = y.value();
  rnn_call->h_bytes = h.value();
  rnn_call->c_bytes = c.value();
  rnn_call->workspace_bytes =
      kWorkspaceBytes + 8 * rows.value() + (is_training ? kTrainingWorkspaceBytes : 0);

  CheckedSize end(static_cast<int64_t>(kBufferAlignment));  // after the header
  ReserveLayout& reserve = rnn_call->reserve;
  reserve.plan = Align(&end, rnn_call->plan->ReserveSpaceBytes());
  reserve.x = Align(&end, rnn_call->x_bytes);
  reserve.y = Align(&end, rnn_call->y_bytes);
  reserve.hx = Align(&end, rnn_call->h_bytes);
  reserve.cx = Align(&end, rnn_call->c_bytes);
  reserve.hy = Align(&end, rnn_call->h_bytes);
  reserve.weight_gradient = Align(&end, rnn_call->weights.dense_bytes());
  if (end.overflowed()) return call->StatusOf(MOCK_NOT_SUPPORTED);
  reserve.total = end.value();
  return 0;
}

int PrepareCall(Call* call, const RnnDescriptors& descriptors, const RnnBuffers& buffers,
                bool is_training, RnnCall* rnn_call) {
  MOCK_RETURN_IF_FAILED(PrepareSizes(call, descriptors.handle, descriptors.rnn, descriptors.x,
                                     is_training, rnn_call));
  const RnnConfig& config = rnn_call->config;
  const RnnDataDescriptor& x = rnn_call->x;
  MOCK_RETURN_IF_FAILED(FindData(call, descriptors.y, "the data descriptor of y", *rnn_call,
                                 config.num_directions() * config.output_size(), &rnn_call->y));
  const RnnDataDescriptor& y = rnn_call->y;
  if (y.layout != x.layout || y.num_steps != x.num_steps || y.batch_size != x.batch_size ||
      y.lengths != x.lengths) {
    return call->Violation("the data descriptors of x and y differ in layout, steps, batch size ",
                           "or lengths");
  }
  MOCK_RETURN_IF_FAILED(CheckStateDescriptor(call, descriptors.h, "the descriptor of h", *rnn_call,
                                             config.output_size()));
  if (rnn_call->has_cell_state() && descriptors.c != nullptr) {
    MOCK_RETURN_IF_FAILED(CheckStateDescriptor(call, *descriptors.c, "the descriptor of c",
                                               *rnn_call, config.num_units));
  }
  MOCK_RETURN_IF_FAILED(CheckDeviceLengths(call, *rnn_call, descriptors.device_lengths));
  if (rnn_call->rnn.algorithm == kCudnnAlgorithmPersistDynamic &&
      rnn_call->rnn.built_batch_size != x.batch_size) {
    return call->Violation("cudnnBuildRNNDynamic was called for batch size ",
                           rnn_call->rnn.built_batch_size, ", not ", x.batch_size);
  }
  const struct {
    const char* name;
    size_t given;
    int64_t needed;
  } sizes[] = {
      {"weight_space_bytes", buffers.weight_space_bytes, rnn_call->weights.bytes()},
      {"workspace_bytes", buffers.workspace_bytes, rnn_call->workspace_bytes},
      {"reserve_space_bytes", buffers.reserve_space_bytes,
       is_training ? rnn_call->reserve.total : 0},
  };
  for (const auto& size : sizes) {
    if (size.given < static_cast<size_t>(size.needed)) {
      return call->Violation(size.name, " must be at least ", size.needed, ", but is ", size.given);
    }
  }
  return 0;
}

int CheckOperands(Call* call, const RnnCall& rnn_call, const RnnBuffers& buffers,
                  std::vector<Operand> operands) {
  operands.push_back({"workspace", buffers.workspace, static_cast<int64_t>(buffers.workspace_bytes),
                      true, kBufferAlignment});
  operands.push_back({"reserve_space", buffers.reserve_space,
                      static_cast<int64_t>(buffers.reserve_space_bytes), true, kBufferAlignment});
  for (const Operand& operand : operands) {
    MOCK_RETURN_IF_FAILED(
        call->NeedMemory(operand.name, operand.data, operand.bytes, operand.alignment));
  }
  for (const Operand& written : operands) {
    if (!written.is_written) continue;
    for (const Operand& other : operands) {
      if (&other == &written) continue;
      if (Overlap(written.data, written.bytes, other.data, other.bytes)) {
        return call->Violation(written.name, " overlaps ", other.name);
      }
    }
  }
  for (const Operand& operand : operands) {
    MOCK_RETURN_IF_FAILED(
        call->UseMemory(rnn_call.stream, operand.data, operand.bytes, operand.is_written));
  }
  return 0;
}

int CheckReserveSpace(Call* call, const void* reserve_space, uint64_t stage, RnnCall* rnn_call,
                      ReserveHeader* header) {
  std::memcpy(header, reserve_space, sizeof(*header));
  if (header->magic != kReserveMagic) {
    return call->Violation("reserve_space is not what a forward call in training left");
  }
  if (header->model != rnn_call->ModelFingerprint()) {
    return call->Violation(
        "reserve_space is that of another model, shape or lengths, or another algorithm or math "
        "type");
  }
  rnn_call->config.seed = header->dropout_seed;
  rnn_call->config.seed2 = header->dropout_seed2;
  const Status planned = rnn_call->CreatePlan();
  if (!planned.ok()) return RefuseOrViolate(call, planned);
  if (header->stage == stage) return 0;
  if (stage == kAfterForward) {
    return call->Violation("cudnnRNNBackwardData_v8 has used this reserve space already");
  }
  return call->Violation("cudnnRNNBackwardData_v8 must come before the weights' gradient");
}

void Unpack(const RnnDataDescriptor& descriptor, int64_t element_size, const void* data,
            char* time_major) {
  const int64_t row_bytes = descriptor.vector_size * element_size;
  ForRows(descriptor, [&](int64_t time_major_row, int64_t row, bool is_padding) {
    char* const target = time_major + time_major_row * row_bytes;
    if (is_padding) {
      std::memset(target, 0, static_cast<size_t>(row_bytes));
    } else {
      std::memcpy(target, static_cast<const char*>(data) + row * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  });
}

void Pack(const RnnDataDescriptor& descriptor, int64_t element_size, const char* time_major,
          Padding padding, void* data) {
  const int64_t row_bytes = descriptor.vector_size * element_size;
  ForRows(descriptor, [&](int64_t time_major_row, int64_t row, bool is_padding) {
    char* const target = static_cast<char*>(data) + row * row_bytes;
    if (!is_padding) {
      std::memcpy(target, time_major + time_major_row * row_bytes, static_cast<size_t>(row_bytes));
    } else if (padding == Padding::kKept) {
      return;
    } else if (!descriptor.has_padding_fill) {
      std::memset(target, 0xff, static_cast<size_t>(row_bytes));  // NaN: undefined
    } else {
      for (int64_t i = 0; i < descriptor.vector_size; ++i) {
        std::memcpy(target + i * element_size, descriptor.padding_fill,
                    static_cast<size_t>(element_size));
      }
    }
  });
}

}  // namespace mock
}  // namespace cudnn_rnn
