// Common code of the mock's cuDNN functions.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_CUDNN_CALL_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_CUDNN_CALL_H_

#include <string>

#include "tests/cudnn/mock/state.h"

namespace cudnn_rnn {
namespace mock {

template <typename Body>
int RunCudnn(const char* name, const Body& body) {
  return Run(Library::kCudnn, name, body);
}

template <typename Body>
int RunCudnnRelease(const char* name, const Body& body) {
  return RunRelease(Library::kCudnn, name, body);
}

// Requires a live object that was set.
template <typename T>
int NeedSet(Call* call, Objects<T>* objects, const void* address, const char* what, T** object) {
  const int status = call->Need(objects, address, what, object);
  if (status != 0 || (*object)->is_set) return status;
  return call->Violation(what, " ", address, " was created, but not set");
}

template <typename T>
int CreateObject(const char* name, Objects<T> State::*objects, void** address) {
  return RunCudnn(name, [&](Call* call) {
    if (address == nullptr) return call->Violation("the descriptor's address is null");
    *address = (call->state().*objects).Add(T());
    return 0;
  });
}

template <typename T>
int DestroyObject(const char* name, Objects<T> State::*objects, void* address) {
  return RunCudnnRelease(name, [&](Call* call) {
    T* object;
    int device;
    MOCK_RETURN_IF_FAILED(call->Need(&(call->state().*objects), address, "descriptor", &object));
    MOCK_RETURN_IF_FAILED(call->NeedContext(&device));
    (call->state().*objects).Remove(address);
    return 0;
  });
}

bool IsDataType(int data_type);
// Returns whether RNNs of the mock's version of cuDNN support the data type.
bool IsRnnDataType(const State& state, int data_type);
DataType CoreTypeOf(int data_type);

// The header of the dropout states in device memory.
struct DropoutStates {
  uint64_t magic;
  uint64_t seed;
  uint64_t calls;  // training calls with dropout since the initialization
};
constexpr uint64_t kDropoutStatesMagic = 0x7374616e64696e21;
constexpr size_t kDropoutStatesBytes = 8192;

// Requires initialized states, and copies their header to `read`.
int NeedDropoutStates(Call* call, const void* states, DropoutStates* read);

}  // namespace mock
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_CUDNN_CALL_H_
