#include "cudnn_rnn/cc/tf/compat.h"

#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def.pb.h"

#if __has_include("xla/stream_executor/stream.h")
#include "xla/stream_executor/stream.h"
#elif __has_include("tensorflow/compiler/xla/stream_executor/stream.h")
#include "tensorflow/compiler/xla/stream_executor/stream.h"
#else
#include "tensorflow/stream_executor/stream.h"
#include "tensorflow/stream_executor/stream_executor_internal.h"
#endif

#if __has_include("tensorflow/core/platform/tensor_float_32_utils.h")
#include "tensorflow/core/platform/tensor_float_32_utils.h"
#define CUDNN_RNN_TENSORFLOW_HAS_TENSOR_FLOAT_32
#endif

#if __has_include("tensorflow/core/util/determinism.h")
#include "tensorflow/core/util/determinism.h"
#define CUDNN_RNN_TENSORFLOW_HAS_DETERMINISM
#endif

namespace cudnn_rnn {
namespace {

// Pairs of overloads for members that differ between releases: the one with `int` is called if it
// compiles, otherwise the one with `long`.
template <typename Stream>
auto HandleOf(const Stream* stream, int) -> decltype(stream->platform_specific_handle().stream) {
  return stream->platform_specific_handle().stream;
}
template <typename Stream>
auto HandleOf(Stream* stream, long)  // NOLINT: not an int
    -> decltype(stream->implementation()->GpuStreamHack()) {
  return stream->implementation()->GpuStreamHack();
}

template <typename Attributes>
auto ForbidRetry(Attributes* attributes, int) -> decltype(attributes->retry_on_failure, void()) {
  attributes->retry_on_failure = false;
}
template <typename Attributes>
auto ForbidRetry(Attributes* attributes, long)  // NOLINT: not an int
    -> decltype(attributes->no_retry_on_failure, void()) {
  attributes->no_retry_on_failure = true;
}

template <typename AnyStatus>
auto TextOf(const AnyStatus& status, int) -> decltype(std::string(status.message())) {
  return std::string(status.message());
}
template <typename AnyStatus>
auto TextOf(const AnyStatus& status, long)  // NOLINT: not an int
    -> decltype(std::string(status.error_message())) {
  return std::string(status.error_message());
}

}  // namespace

std::string MessageOf(const TfStatus& status) { return TextOf(status, 0); }

void* StreamOf(::tensorflow::OpKernelContext* context) {
  const auto* device_context = context->op_device_context();
  if (device_context == nullptr) return nullptr;
  auto* stream = device_context->stream();
  return stream == nullptr ? nullptr : HandleOf(stream, 0);
}

bool AllocateWithoutRetry(::tensorflow::OpKernelContext* context,
                          const ::tensorflow::TensorShape& shape, ::tensorflow::Tensor* tensor) {
  ::tensorflow::AllocationAttributes attributes;
  ForbidRetry(&attributes, 0);
  attributes.allocation_will_be_logged = true;
  // OpKernelContext::get_allocator returns the same allocator but is private in TensorFlow 1.14.
  ::tensorflow::Allocator* allocator =
      context->device()->GetAllocator(::tensorflow::AllocatorAttributes());
  ::tensorflow::Tensor allocated(allocator, ::tensorflow::DT_INT8, shape, attributes);
  if (!allocated.IsInitialized()) return false;
  *tensor = allocated;
  return true;
}

bool TensorFloat32IsAllowed() {
#ifdef CUDNN_RNN_TENSORFLOW_HAS_TENSOR_FLOAT_32
  return ::tensorflow::tensor_float_32_execution_enabled();
#else
  return false;
#endif
}

bool OpDeterminismIsRequired() {
#ifdef CUDNN_RNN_TENSORFLOW_HAS_DETERMINISM
  return ::tensorflow::OpDeterminismRequired();
#else
  return false;
#endif
}

bool OpTakesBfloat16(const char* op) {
  const ::tensorflow::OpDef* definition = nullptr;
  const TfStatus status = ::tensorflow::OpRegistry::Global()->LookUpOpDef(op, &definition);
  if (!status.ok()) return false;
  for (const auto& attribute : definition->attr()) {
    if (attribute.name() != "T") continue;
    for (int type : attribute.allowed_values().list().type()) {
      if (type == ::tensorflow::DT_BFLOAT16) return true;
    }
  }
  return false;
}

}  // namespace cudnn_rnn
