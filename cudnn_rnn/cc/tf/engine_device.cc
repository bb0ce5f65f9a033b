#include "cudnn_rnn/cc/tf/engine_device.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cudnn_rnn/cc/core/environment.h"
#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

constexpr char kAlgorithmVariable[] = "CUDNN_RNN_ALGO";

Status AllocateTensor(OpKernelContext* context, int64_t bytes, bool is_optional, Tensor* tensor) {
  const TensorShape shape({bytes});
  if (!is_optional) return FromTf(context->allocate_temp(::tensorflow::DT_INT8, shape, tensor));
  if (AllocateWithoutRetry(context, shape, tensor)) return Status();
  return Status(StatusCode::kResourceExhausted,
                Concatenate("There are no ", bytes,
                            " bytes of free GPU memory for a trial of an algorithm."));
}

// cudnn_rnn_allocator::allocate. A tensor keeps its buffer alive and may outlive the call that
// allocated it. TensorFlow reuses the memory only for later work on the same stream, so nothing
// waits for the device.
int Allocate(void* context, int64_t bytes, int is_optional, void** memory, void** data,
             char* message, size_t message_bytes) {
  const Status status = CatchExceptions([=] {
    std::unique_ptr<Tensor> tensor(new Tensor());
    CUDNN_RNN_RETURN_IF_ERROR(AllocateTensor(static_cast<OpKernelContext*>(context), bytes,
                                             is_optional != 0, tensor.get()));
    *data = MutableDataOf(tensor.get());
    *memory = tensor.release();
    return Status();
  });
  const size_t length = std::min(status.message().size(), message_bytes - 1);
  std::memcpy(message, status.message().data(), length);
  message[length] = '\0';
  return static_cast<int>(status.code());
}

void Release(void* memory) { delete static_cast<Tensor*>(memory); }

}  // namespace

Status FromEngine(int code) {
  if (code == 0) return Status();
  return Status(static_cast<StatusCode>(code), cudnn_rnn_last_error());
}

Status EngineDevice::CreateCpu(std::unique_ptr<EngineDevice>* device) {
  std::unique_ptr<EngineDevice> created(new EngineDevice());
  CUDNN_RNN_RETURN_IF_ERROR(FromEngine(cudnn_rnn_create_cpu_planner(&created->planner_)));
  *device = std::move(created);
  return Status();
}

Status EngineDevice::CreateGpu(cudnn_rnn_gpu* gpu, StreamFunction stream_of,
                               std::unique_ptr<EngineDevice>* device) {
  std::unique_ptr<EngineDevice> created(new EngineDevice());
  created->stream_of_ = stream_of;
  created->algorithm_name_ = ReadEnvironment(kAlgorithmVariable);
  const Status parsed =
      FromEngine(cudnn_rnn_parse_algorithm(created->algorithm_name_.c_str(), &created->algorithm_));
  if (!parsed.ok()) {
    return InvalidArgument("The environment variable ", kAlgorithmVariable,
                           " is invalid: ", parsed.message());
  }
  for (const char* variable : {"TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC"}) {
    bool is_set;
    CUDNN_RNN_RETURN_IF_ERROR(ReadEnvironmentSwitch(variable, &is_set));
    created->deterministic_ = created->deterministic_ || is_set;
  }
  CUDNN_RNN_RETURN_IF_ERROR(FromEngine(cudnn_rnn_create_gpu_planner(gpu, &created->planner_)));
  *device = std::move(created);
  return Status();
}

EngineCall::EngineCall(EngineDevice* device, OpKernelContext* context)
    : device_(device),
      stream_(device->is_gpu() ? device->stream_of_(context) : nullptr),
      threads_(device->is_gpu() ? cudnn_rnn_threads{1, nullptr, nullptr} : IntraOpThreads(context)),
      allocator_{context, Allocate, Release} {}

Status EngineCall::Prepare(const RnnConfig& config, const SequenceShape& shape,
                           const CallOptions& options) {
  cudnn_rnn_call call = {};
  call.num_steps = shape.num_steps;
  call.batch_size = shape.batch_size;
  call.time_major = shape.time_major;
  call.is_training = options.is_training;
  call.dropout_call_index = options.dropout_call_index;
  if (!options.sequence_lengths.empty()) call.sequence_lengths = options.sequence_lengths.data();
  call.keeps_reserve_space = options.keeps_reserve_space;
  call.forward_choice = ToC(options.forward_choice);
  call.threads = &threads_;
  if (device_->is_gpu()) {
    call.algorithm = device_->algorithm_;
    call.deterministic = device_->deterministic_ || OpDeterminismIsRequired();
    call.allow_tf32 = TensorFloat32IsAllowed();
    call.stream = stream_;
    call.allocator = &allocator_;
  }
  const cudnn_rnn_config converted = ToC(config);
  const Status status =
      FromEngine(cudnn_rnn_prepare(device_->planner_, &converted, &call, &prepared_, &sizes_));
  const std::string& algorithm = device_->algorithm_name_;
  if (status.ok() || algorithm.empty() || algorithm == "auto" || algorithm == "standard") {
    return status;
  }
  return Status(status.code(), Concatenate(status.message(), " The environment variable ",
                                           kAlgorithmVariable, " is set to ", algorithm, "."));
}

PackedWeightsSpec EngineCall::PackedWeights() const {
  const int64_t* const layout = sizes_.packed_weights_layout;
  return {sizes_.packed_weights_bytes, {layout, layout + CUDNN_RNN_MAX_PACKED_LAYOUT}};
}

Status EngineCall::Forward(const cudnn_rnn_forward_buffers& buffers) {
  return FromEngine(cudnn_rnn_forward(prepared_, &buffers));
}

Status EngineCall::Backward(const cudnn_rnn_backward_buffers& buffers) {
  return FromEngine(cudnn_rnn_backward(prepared_, &buffers));
}

Status EngineCall::Clear(void* target, int64_t bytes) {
  return FromEngine(cudnn_rnn_clear_memory(device_->planner_, stream_, target, bytes));
}

Status EngineCall::Copy(const std::vector<cudnn_rnn_copy>& copies) {
  return FromEngine(cudnn_rnn_copy_memory(device_->planner_, stream_, copies.data(),
                                          static_cast<int64_t>(copies.size())));
}

Status EngineCall::Transpose(DataType data_type,
                             const std::vector<cudnn_rnn_transposition>& transpositions) {
  return FromEngine(cudnn_rnn_transpose(device_->planner_, &threads_,
                                        static_cast<int32_t>(data_type), transpositions.data(),
                                        static_cast<int64_t>(transpositions.size())));
}

}  // namespace cudnn_rnn
