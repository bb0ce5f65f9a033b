// The mock of cuDNN: dropout descriptors. The generator's state is only in the caller's memory, so
// that copying the bytes copies the state.

#include <cstring>

#include "tests/cudnn/mock/cudnn_call.h"

namespace cudnn_rnn {
namespace mock {

int NeedDropoutStates(Call* call, const void* states, DropoutStates* read) {
  MOCK_RETURN_IF_FAILED(
      call->NeedMemory("dropout states", states, kDropoutStatesBytes, kBufferAlignment));
  std::memcpy(read, states, sizeof(*read));
  if (read->magic == kDropoutStatesMagic) return 0;
  return call->Violation("the dropout states at ", states,
                         " were not initialized by cudnnSetDropoutDescriptor");
}

namespace {

// Checks the arguments of cudnnSetDropoutDescriptor and cudnnRestoreDropoutDescriptor. `states` may
// be null without dropout.
int CheckArguments(Call* call, void* descriptor, void* handle, float dropout, void* states,
                   size_t states_bytes, DropoutDescriptor** found) {
  Handle* found_handle;
  MOCK_RETURN_IF_FAILED(
      call->Need(&call->state().dropout_descriptors, descriptor, "dropout descriptor", found));
  MOCK_RETURN_IF_FAILED(call->NeedHandleWithStream(handle, &found_handle));
  if (!(dropout >= 0 && dropout <= 1)) {
    return call->Violation("dropout must be between 0 and 1, but is ", dropout);
  }
  if (states == nullptr && dropout == 0 && states_bytes == 0) return 0;
  if (states_bytes < kDropoutStatesBytes) {
    return call->Violation("states_bytes must be at least ", kDropoutStatesBytes, ", but is ",
                           states_bytes);
  }
  return call->NeedMemory("states", states, static_cast<int64_t>(states_bytes), kBufferAlignment);
}

}  // namespace
}  // namespace mock

using namespace mock;  // NOLINT: C functions are outside the namespace

extern "C" {

int cudnnCreateDropoutDescriptor(void** descriptor) {
  return CreateObject("cudnnCreateDropoutDescriptor", &State::dropout_descriptors, descriptor);
}

int cudnnDestroyDropoutDescriptor(void* descriptor) {
  return DestroyObject("cudnnDestroyDropoutDescriptor", &State::dropout_descriptors, descriptor);
}

int cudnnDropoutGetStatesSize(void* handle, size_t* bytes) {
  return RunCudnn("cudnnDropoutGetStatesSize", [&](Call* call) {
    Handle* found;
    MOCK_RETURN_IF_FAILED(call->NeedHandle(handle, &found));
    if (bytes == nullptr) return call->Violation("bytes is null");
    *bytes = kDropoutStatesBytes;
    return 0;
  });
}

int cudnnSetDropoutDescriptor(void* descriptor, void* handle, float dropout, void* states,
                              size_t states_bytes, unsigned long long seed) {
  return RunCudnn("cudnnSetDropoutDescriptor", [&](Call* call) {
    DropoutDescriptor* found;
    MOCK_RETURN_IF_FAILED(
        CheckArguments(call, descriptor, handle, dropout, states, states_bytes, &found));
    *found = {true, dropout, states};
    if (states == nullptr) return 0;
    MOCK_RETURN_IF_FAILED(call->WaitForDevice());
    MOCK_RETURN_IF_FAILED(call->UseMemory(call->state().handles.Find(handle)->stream, states,
                                          static_cast<int64_t>(states_bytes), true));
    const DropoutStates initial = {kDropoutStatesMagic, seed, 0};
    std::memset(states, 0x5a, states_bytes);
    std::memcpy(states, &initial, sizeof(initial));
    return 0;
  });
}

int cudnnRestoreDropoutDescriptor(void* descriptor, void* handle, float dropout, void* states,
                                  size_t states_bytes, unsigned long long seed) {
  return RunCudnn("cudnnRestoreDropoutDescriptor", [&](Call* call) {
    DropoutDescriptor* found;
    MOCK_RETURN_IF_FAILED(
        CheckArguments(call, descriptor, handle, dropout, states, states_bytes, &found));
    if (states == nullptr) return call->Violation("states is null");
    DropoutStates read;
    MOCK_RETURN_IF_FAILED(NeedDropoutStates(call, states, &read));
    if (read.seed != seed) {
      return call->Violation("seed is ", seed, ", but the states were made with ", read.seed);
    }
    *found = {true, dropout, states};
    return 0;
  });
}

}  // extern "C"

}  // namespace cudnn_rnn
