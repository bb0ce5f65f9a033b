// The mock of cuDNN: sizes of the temporary buffers, and cudnnRNNForward.

#include <cstring>

#include "tests/cudnn/mock/faults.h"
#include "tests/cudnn/mock/rnn_call.h"

namespace cudnn_rnn {

using namespace mock;  // NOLINT: C functions are outside the namespace

namespace {

// The tensors of cudnnRNNForward.
struct ForwardTensors {
  const void *x, *hx, *cx, *weights;
  void *y, *hy, *cy;
};

int CheckTensors(Call* call, const RnnCall& rnn_call, const ForwardTensors& tensors,
                 const RnnBuffers& buffers) {
  const int64_t c_bytes = rnn_call.c_bytes;  // 0 without a cell state
  return CheckOperands(
      call, rnn_call, buffers,
      {{"x", tensors.x, rnn_call.x_memory(), false, kTensorAlignment},
       {"hx", tensors.hx, rnn_call.h_bytes, false, kTensorAlignment},
       {"cx", tensors.cx, c_bytes, false, kTensorAlignment},
       {"weight_space", tensors.weights, rnn_call.weights.bytes(), false, kBufferAlignment},
       {"y", tensors.y, rnn_call.y_memory(), true, kTensorAlignment},
       {"hy", tensors.hy, rnn_call.h_bytes, true, kTensorAlignment},
       {"cy", tensors.cy, c_bytes, true, kTensorAlignment}});
}

// Sets the number of this call's dropout pattern, and increments the counter in the states.
int NextDropoutCall(Call* call, RnnCall* rnn_call, CallOptions* options) {
  if (!options->is_training || rnn_call->config.dropout == 0) return 0;
  if (rnn_call->dropout_states == nullptr) {
    return call->Violation("the dropout descriptor has no states");
  }
  MOCK_RETURN_IF_FAILED(call->UseMemory(rnn_call->stream, rnn_call->dropout_states,
                                        static_cast<int64_t>(kDropoutStatesBytes), true));
  options->dropout_call_index = static_cast<int64_t>(rnn_call->dropout.calls);
  ++rnn_call->dropout.calls;
  std::memcpy(rnn_call->dropout_states, &rnn_call->dropout, sizeof(rnn_call->dropout));
  return 0;
}

// Runs without the state's lock.
Status Compute(const RnnCall& rnn_call, const ForwardTensors& tensors, const RnnBuffers& buffers,
               const ReserveHeader& header, const CallOptions& options, int fault) {
  Buffer x(rnn_call.x_bytes), hx(rnn_call.h_bytes), cx(rnn_call.c_bytes);
  Buffer weights(rnn_call.weights.dense_bytes());
  Buffer y(rnn_call.y_bytes), hy(rnn_call.h_bytes), cy(rnn_call.c_bytes);
  const int64_t element_size = rnn_call.element_size();
  Unpack(rnn_call.x, element_size, tensors.x, x.data());
  Copy(tensors.hx, rnn_call.h_bytes, hx.data());
  Copy(tensors.cx, rnn_call.c_bytes, cx.data());
  rnn_call.weights.Gather(tensors.weights, weights.data());
  ReserveHeader filled = header;
  filled.weights = FingerprintOf(
      std::string(weights.data(), static_cast<size_t>(rnn_call.weights.dense_bytes())));
  CUDNN_RNN_RETURN_IF_ERROR(SpoilWeights(rnn_call.config, fault, weights.data()));

  char* const reserve = static_cast<char*>(buffers.reserve_space);
  const ReserveLayout& layout = rnn_call.reserve;
  // Leaves a part of the reserve space unwritten, the place of the weights' gradient.
  if (options.is_training) {
    std::memset(reserve, 0xff, static_cast<size_t>(layout.weight_gradient));
  }
  Buffer workspace(rnn_call.plan->ForwardWorkspaceBytes(options));
  ForwardBuffers forward;
  forward.input = x.data();
  forward.input_h = hx.data();
  forward.input_c = cx.data();
  forward.params = weights.data();
  forward.output = y.data();
  forward.output_h = hy.data();
  forward.output_c = cy.data();
  forward.reserve_space = options.is_training ? reserve + layout.plan : nullptr;
  forward.workspace = workspace.data();
  SerialRunner runner;
  Execution execution;
  execution.runner = &runner;
  CUDNN_RNN_RETURN_IF_ERROR(rnn_call.plan->Forward(forward, options, execution));

  SpoilSequence(rnn_call.shape(), fault, rnn_call.y_bytes, y.data());
  Pack(rnn_call.y, element_size, y.data(), Padding::kAsDescribed, tensors.y);
  Copy(hy.data(), rnn_call.h_bytes, tensors.hy);
  Copy(cy.data(), rnn_call.c_bytes, tensors.cy);
  if (options.is_training) {
    std::memcpy(reserve, &filled, sizeof(filled));
    Copy(x.data(), rnn_call.x_bytes, reserve + layout.x);
    Copy(y.data(), rnn_call.y_bytes, reserve + layout.y);
    Copy(hx.data(), rnn_call.h_bytes, reserve + layout.hx);
    Copy(cx.data(), rnn_call.c_bytes, reserve + layout.cx);
    Copy(hy.data(), rnn_call.h_bytes, reserve + layout.hy);
  }
  std::memset(buffers.workspace, 0xff, buffers.workspace_bytes);
  return Status();
}

}  // namespace

extern "C" {

int cudnnGetRNNTempSpaceSizes(void* handle, void* rnn_descriptor, int forward_mode,
                              void* x_descriptor, size_t* workspace_bytes,
                              size_t* reserve_space_bytes) {
  return RunCudnn("cudnnGetRNNTempSpaceSizes", [&](Call* call) {
    const bool is_training = forward_mode == kCudnnForwardTraining;
    if (!is_training && forward_mode != kCudnnForwardInference) {
      return call->Violation("forward_mode is ", forward_mode);
    }
    if (workspace_bytes == nullptr || reserve_space_bytes == nullptr) {
      return call->Violation("an output is null");
    }
    RnnCall rnn_call;
    MOCK_RETURN_IF_FAILED(
        PrepareSizes(call, handle, rnn_descriptor, x_descriptor, is_training, &rnn_call));
    if (rnn_call.Behaves(&call->state(), MOCK_REFUSED_BY_SIZES)) {
      return call->StatusOf(MOCK_NOT_SUPPORTED);
    }
    *workspace_bytes = static_cast<size_t>(rnn_call.workspace_bytes);
    *reserve_space_bytes = is_training ? static_cast<size_t>(rnn_call.reserve.total) : 0;
    return 0;
  });
}

int cudnnRNNForward(void* handle, void* rnn_descriptor, int forward_mode,
                    const int32_t* device_lengths, void* x_descriptor, const void* x,
                    void* y_descriptor, void* y, void* h_descriptor, const void* hx, void* hy,
                    void* c_descriptor, const void* cx, void* cy, size_t weight_space_bytes,
                    const void* weight_space, size_t workspace_bytes, void* workspace,
                    size_t reserve_space_bytes, void* reserve_space) {
  return RunCudnn("cudnnRNNForward", [&](Call* call) {
    const bool is_training = forward_mode == kCudnnForwardTraining;
    if (!is_training && forward_mode != kCudnnForwardInference) {
      return call->Violation("forward_mode is ", forward_mode);
    }
    const RnnDescriptors descriptors = {handle,       rnn_descriptor, device_lengths, x_descriptor,
                                        y_descriptor, h_descriptor,   &c_descriptor};
    const RnnBuffers buffers = {weight_space_bytes, workspace_bytes, workspace, reserve_space_bytes,
                                reserve_space};
    RnnCall rnn_call;
    MOCK_RETURN_IF_FAILED(PrepareCall(call, descriptors, buffers, is_training, &rnn_call));
    const ForwardTensors tensors = {x, hx, cx, weight_space, y, hy, cy};
    MOCK_RETURN_IF_FAILED(CheckTensors(call, rnn_call, tensors, buffers));
    if (!rnn_call.weights.GapsAreZero(weight_space)) {
      return call->Violation("weight_space is not 0 between its regions");
    }
    State& state = call->state();
    if (rnn_call.Behaves(&state, MOCK_REFUSED_BY_FORWARD) ||
        (rnn_call.rnn.allows_padding && rnn_call.rnn.algorithm != kCudnnAlgorithmStandard)) {
      return call->StatusOf(MOCK_NOT_SUPPORTED);
    }
    state.stream_times_ms[rnn_call.stream] +=
        state.record.options.algorithms[rnn_call.rnn.algorithm].forward_ms;
    const bool fails_later = rnn_call.Behaves(&state, MOCK_FAILS_LATER);
    const RnnConfig& config = rnn_call.config;
    const ReserveHeader header = {kReserveMagic, kAfterForward, rnn_call.ModelFingerprint(), 0,
                                  config.seed,   config.seed2};
    CallOptions options;
    options.is_training = is_training;
    MOCK_RETURN_IF_FAILED(NextDropoutCall(call, &rnn_call, &options));
    options.sequence_lengths = rnn_call.x.lengths;
    const int fault = rnn_call.FaultOf(state, MOCK_WRONG_OUTPUT);
    call->Unlock();
    const Status status = Compute(rnn_call, tensors, buffers, header, options, fault);
    call->Lock();
    if (fails_later) state.failed_devices.insert(state.CurrentDevice());
    return status.ok() ? 0 : call->Violation("the CPU plan says: ", status.message());
  });
}

}  // extern "C"

}  // namespace cudnn_rnn
