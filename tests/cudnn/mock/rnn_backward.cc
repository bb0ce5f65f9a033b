// The mock of cuDNN: cudnnRNNBackwardData_v8 and cudnnRNNBackwardWeights_v8.
//
// The CPU plan's Backward computes both, so cudnnRNNBackwardData_v8 runs it, stores the weight
// gradient in the reserve space, and invalidates the plan's part of that space.

#include <algorithm>
#include <cstring>

#include "tests/cudnn/mock/faults.h"
#include "tests/cudnn/mock/rnn_call.h"

namespace cudnn_rnn {

using namespace mock;  // NOLINT: C functions are outside the namespace

namespace {

struct BackwardDataTensors {
  const void *y, *dy, *hx, *dhy, *cx, *dcy, *weights;
  void *dx, *dhx, *dcx;
};

bool SameBytes(const void* a, const void* b, int64_t bytes) {
  return bytes == 0 || std::memcmp(a, b, static_cast<size_t>(bytes)) == 0;
}

bool IsZero(const char* data, int64_t bytes) {
  return std::all_of(data, data + bytes, [](char byte) { return byte == 0; });
}

// Compares outputs [T, B, width]. In a sequence of length 1, which may represent an empty one, y
// may also be 0.
bool SameOutput(const RnnCall& rnn_call, const char* given, const char* stored) {
  const int64_t row_bytes = rnn_call.y.vector_size * rnn_call.element_size();
  for (int64_t t = 0; t < rnn_call.y.num_steps; ++t) {
    for (int64_t b = 0; b < rnn_call.y.batch_size; ++b) {
      const int64_t length = rnn_call.y.lengths[static_cast<size_t>(b)];
      const int64_t offset = (t * rnn_call.y.batch_size + b) * row_bytes;
      if (t >= length || SameBytes(given + offset, stored + offset, row_bytes)) continue;
      const bool is_zero = IsZero(given + offset, row_bytes);
      if (!is_zero || length != 1) return false;
    }
  }
  return true;
}

int CheckDataTensors(Call* call, const RnnCall& rnn_call, const BackwardDataTensors& tensors,
                     const RnnBuffers& buffers) {
  const int64_t h_bytes = rnn_call.h_bytes;
  const int64_t c_bytes = rnn_call.c_bytes;
  return CheckOperands(
      call, rnn_call, buffers,
      {{"y", tensors.y, rnn_call.y_memory(), false, kTensorAlignment},
       {"dy", tensors.dy, rnn_call.y_memory(), false, kTensorAlignment},
       {"hx", tensors.hx, h_bytes, false, kTensorAlignment},
       {"dhy", tensors.dhy, h_bytes, false, kTensorAlignment},
       {"cx", tensors.cx, c_bytes, false, kTensorAlignment},
       {"dcy", tensors.dcy, c_bytes, false, kTensorAlignment},
       {"weight_space", tensors.weights, rnn_call.weights.bytes(), false, kBufferAlignment},
       {"dx", tensors.dx, rnn_call.x_memory(), true, kTensorAlignment},
       {"dhx", tensors.dhx, h_bytes, true, kTensorAlignment},
       {"dcx", tensors.dcx, c_bytes, true, kTensorAlignment}});
}

// Returns the first argument that differs from the forward call's, or "".
std::string Difference(const RnnCall& rnn_call, const BackwardDataTensors& tensors,
                       const ReserveHeader& header, const char* reserve, const char* y,
                       const char* weights) {
  const ReserveLayout& layout = rnn_call.reserve;
  if (!SameOutput(rnn_call, y, reserve + layout.y)) return "y";
  if (!SameBytes(tensors.hx, reserve + layout.hx, rnn_call.h_bytes)) return "hx";
  if (!SameBytes(tensors.cx, reserve + layout.cx, rnn_call.c_bytes)) return "cx";
  const std::string bytes(weights, static_cast<size_t>(rnn_call.weights.dense_bytes()));
  if (FingerprintOf(bytes) != header.weights) return "weights";
  return "";
}

// Runs without the state's lock.
Status ComputeData(const RnnCall& rnn_call, const BackwardDataTensors& tensors,
                   const RnnBuffers& buffers, const ReserveHeader& header, int fault) {
  const int64_t element_size = rnn_call.element_size();
  Buffer y(rnn_call.y_bytes), dy(rnn_call.y_bytes), dhy(rnn_call.h_bytes), dcy(rnn_call.c_bytes);
  Buffer weights(rnn_call.weights.dense_bytes());
  Buffer dx(rnn_call.x_bytes), dhx(rnn_call.h_bytes), dcx(rnn_call.c_bytes);
  Unpack(rnn_call.y, element_size, tensors.y, y.data());
  Unpack(rnn_call.y, element_size, tensors.dy, dy.data());
  Copy(tensors.dhy, rnn_call.h_bytes, dhy.data());
  Copy(tensors.dcy, rnn_call.c_bytes, dcy.data());
  rnn_call.weights.Gather(tensors.weights, weights.data());
  char* const reserve = static_cast<char*>(buffers.reserve_space);
  const ReserveLayout& layout = rnn_call.reserve;
  const std::string difference =
      Difference(rnn_call, tensors, header, reserve, y.data(), weights.data());
  if (!difference.empty()) {
    return InvalidArgument(difference, " is not that of the forward call");
  }
  CUDNN_RNN_RETURN_IF_ERROR(SpoilWeights(rnn_call.config, fault, weights.data()));

  CallOptions options;
  options.is_training = true;
  options.sequence_lengths = rnn_call.x.lengths;
  Buffer workspace(rnn_call.plan->BackwardWorkspaceBytes(options));
  BackwardBuffers backward;
  backward.input = reserve + layout.x;
  backward.input_h = reserve + layout.hx;
  backward.input_c = reserve + layout.cx;
  backward.params = weights.data();
  backward.output = y.data();
  backward.output_h = reserve + layout.hy;
  backward.output_backprop = dy.data();
  backward.output_h_backprop = dhy.data();
  backward.output_c_backprop = dcy.data();
  backward.reserve_space = reserve + layout.plan;
  backward.reserve_space_bytes = rnn_call.plan->ReserveSpaceBytes();
  backward.input_backprop = dx.data();
  backward.input_h_backprop = dhx.data();
  backward.input_c_backprop = dcx.data();
  backward.params_backprop = reserve + layout.weight_gradient;
  backward.workspace = workspace.data();
  SerialRunner runner;
  Execution execution;
  execution.runner = &runner;
  CUDNN_RNN_RETURN_IF_ERROR(rnn_call.plan->Backward(backward, options, execution));

  SpoilSequence(rnn_call.shape(), fault, rnn_call.x_bytes, dx.data());
  if (fault == MOCK_ZEROS) {
    std::memset(dhx.data(), 0, static_cast<size_t>(rnn_call.h_bytes));
    std::memset(dcx.data(), 0, static_cast<size_t>(rnn_call.c_bytes));
  }
  Pack(rnn_call.x, element_size, dx.data(), Padding::kKept, tensors.dx);
  Copy(dhx.data(), rnn_call.h_bytes, tensors.dhx);
  Copy(dcx.data(), rnn_call.c_bytes, tensors.dcx);
  ReserveHeader used = header;
  used.stage = kAfterBackwardData;
  std::memcpy(reserve, &used, sizeof(used));
  std::memset(reserve + layout.plan, 0xff, static_cast<size_t>(layout.x - layout.plan));
  std::memset(buffers.workspace, 0xff, buffers.workspace_bytes);
  return Status();
}

// Checks that x, hx and y are those of the forward call. Runs without the state's lock.
Status CheckWeightsCall(const RnnCall& rnn_call, const void* x, const void* hx, const void* y,
                        const char* reserve) {
  Buffer x_copy(rnn_call.x_bytes), y_copy(rnn_call.y_bytes);
  Unpack(rnn_call.x, rnn_call.element_size(), x, x_copy.data());
  Unpack(rnn_call.y, rnn_call.element_size(), y, y_copy.data());
  const ReserveLayout& layout = rnn_call.reserve;
  const char* different = "";
  if (!SameBytes(x_copy.data(), reserve + layout.x, rnn_call.x_bytes)) different = "x";
  if (!SameBytes(hx, reserve + layout.hx, rnn_call.h_bytes)) different = "hx";
  if (!SameOutput(rnn_call, y_copy.data(), reserve + layout.y)) different = "y";
  if (*different == '\0') return Status();
  return InvalidArgument(different, " is not that of the forward call");
}

bool ExceedsBackwardUnits(const RnnCall& rnn_call) {
  const RnnMode mode = rnn_call.config.mode;
  const bool has_one_gate = mode == RnnMode::kRelu || mode == RnnMode::kTanh;
  return rnn_call.rnn.algorithm == kCudnnAlgorithmPersistStaticSmallH &&
         rnn_call.config.num_units > (has_one_gate ? 256 : 128);
}

// Advances the virtual clock by half a backward pass, or refuses the algorithm.
int StartBackward(Call* call, const RnnCall& rnn_call) {
  State& state = call->state();
  if (rnn_call.Behaves(&state, MOCK_REFUSED_BY_BACKWARD) || ExceedsBackwardUnits(rnn_call)) {
    return call->StatusOf(MOCK_NOT_SUPPORTED);
  }
  state.stream_times_ms[rnn_call.stream] +=
      state.record.options.algorithms[rnn_call.rnn.algorithm].backward_ms / 2;
  return 0;
}

}  // namespace

extern "C" {

int cudnnRNNBackwardData_v8(void* handle, void* rnn_descriptor, const int32_t* device_lengths,
                            void* y_descriptor, const void* y, const void* dy, void* x_descriptor,
                            void* dx, void* h_descriptor, const void* hx, const void* dhy,
                            void* dhx, void* c_descriptor, const void* cx, const void* dcy,
                            void* dcx, size_t weight_space_bytes, const void* weight_space,
                            size_t workspace_bytes, void* workspace, size_t reserve_space_bytes,
                            void* reserve_space) {
  return RunCudnn("cudnnRNNBackwardData_v8", [&](Call* call) {
    const RnnDescriptors descriptors = {handle,       rnn_descriptor, device_lengths, x_descriptor,
                                        y_descriptor, h_descriptor,   &c_descriptor};
    const RnnBuffers buffers = {weight_space_bytes, workspace_bytes, workspace, reserve_space_bytes,
                                reserve_space};
    RnnCall rnn_call;
    MOCK_RETURN_IF_FAILED(PrepareCall(call, descriptors, buffers, true, &rnn_call));
    const BackwardDataTensors tensors = {y, dy, hx, dhy, cx, dcy, weight_space, dx, dhx, dcx};
    MOCK_RETURN_IF_FAILED(CheckDataTensors(call, rnn_call, tensors, buffers));
    ReserveHeader header;
    MOCK_RETURN_IF_FAILED(
        CheckReserveSpace(call, reserve_space, kAfterForward, &rnn_call, &header));
    MOCK_RETURN_IF_FAILED(StartBackward(call, rnn_call));
    const int fault = rnn_call.FaultOf(call->state(), MOCK_WRONG_DATA_GRADIENTS);
    call->Unlock();
    const Status status = ComputeData(rnn_call, tensors, buffers, header, fault);
    call->Lock();
    return status.ok() ? 0 : call->Violation(status.message());
  });
}

int cudnnRNNBackwardWeights_v8(void* handle, void* rnn_descriptor, int gradient_mode,
                               const int32_t* device_lengths, void* x_descriptor, const void* x,
                               void* h_descriptor, const void* hx, void* y_descriptor,
                               const void* y, size_t weight_space_bytes,
                               void* weight_space_gradient, size_t workspace_bytes, void* workspace,
                               size_t reserve_space_bytes, void* reserve_space) {
  return RunCudnn("cudnnRNNBackwardWeights_v8", [&](Call* call) {
    if (gradient_mode != kCudnnWeightGradientAdd) {
      return call->Violation("gradient_mode is ", gradient_mode, ": only adding is known");
    }
    const RnnDescriptors descriptors = {handle,       rnn_descriptor, device_lengths, x_descriptor,
                                        y_descriptor, h_descriptor,   nullptr};
    const RnnBuffers buffers = {weight_space_bytes, workspace_bytes, workspace, reserve_space_bytes,
                                reserve_space};
    RnnCall rnn_call;
    MOCK_RETURN_IF_FAILED(PrepareCall(call, descriptors, buffers, true, &rnn_call));
    const int64_t weight_bytes = rnn_call.weights.bytes();
    MOCK_RETURN_IF_FAILED(CheckOperands(
        call, rnn_call, buffers,
        {{"x", x, rnn_call.x_memory(), false, kTensorAlignment},
         {"hx", hx, rnn_call.h_bytes, false, kTensorAlignment},
         {"y", y, rnn_call.y_memory(), false, kTensorAlignment},
         {"weight_space_gradient", weight_space_gradient, weight_bytes, true, kBufferAlignment}}));
    ReserveHeader header;
    MOCK_RETURN_IF_FAILED(
        CheckReserveSpace(call, reserve_space, kAfterBackwardData, &rnn_call, &header));
    if (!IsZero(static_cast<char*>(weight_space_gradient), weight_bytes)) {
      return call->Violation("weight_space_gradient was not cleared");
    }
    MOCK_RETURN_IF_FAILED(StartBackward(call, rnn_call));
    const int fault = rnn_call.FaultOf(call->state(), MOCK_WRONG_WEIGHT_GRADIENTS);
    call->Unlock();
    char* const reserve = static_cast<char*>(reserve_space);
    char* const gradient = reserve + rnn_call.reserve.weight_gradient;
    Status status = CheckWeightsCall(rnn_call, x, hx, y, reserve);
    if (status.ok()) status = SpoilWeights(rnn_call.config, fault, gradient);
    if (status.ok()) {
      rnn_call.weights.Scatter(gradient, weight_space_gradient);
      std::memset(workspace, 0xff, workspace_bytes);
    }
    call->Lock();
    return status.ok() ? 0 : call->Violation(status.message());
  });
}

}  // extern "C"

}  // namespace cudnn_rnn
