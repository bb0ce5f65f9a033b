#include "tests/cudnn/core_api.h"

#include <memory>
#include <string>

#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cudnn/plan_cache.h"
#include "tests/cudnn/driver_memory.h"

struct cudnn_rnn_model {
  cudnn_rnn::RnnConfig config;
  cudnn_rnn::CudnnOptions options;
  cudnn_rnn::GpuRuntime* runtime = nullptr;              // null on a CPU
  std::unique_ptr<cudnn_rnn::CudnnPlanCache> gpu_plans;  // null on a CPU
};

namespace cudnn_rnn {
namespace {

// The message of this thread's last call.
struct LastError {
  std::string memory;
  const char* text = "";
};
thread_local LastError last_error;

// Calls `function`, which returns a Status; keeps its message and returns its code.
template <typename Function>
int ReturnFromC(const Function& function) noexcept {
  const Status status = CatchExceptions(function);
  const bool is_kept = CatchExceptions([&] {
                         last_error.memory = status.message();
                         return Status();
                       }).ok();
  const bool lacks_text = !status.ok() && status.message().empty();
  last_error.text = is_kept && !lacks_text ? last_error.memory.c_str() : kOutOfHostMemoryText;
  return static_cast<int>(status.code());
}

// Converts `number` to an enumerator; fails unless 0 <= number < count.
template <typename Enumeration>
Status ReadEnumeration(const char* name, int32_t number, int32_t count, Enumeration* value) {
  if (number < 0 || number >= count) {
    return InvalidArgument(name, " must be between 0 and ", count - 1, ", but is ", number, ".");
  }
  *value = static_cast<Enumeration>(number);
  return Status();
}

Status ReadModel(const cudnn_rnn_model_config& source, cudnn_rnn_model* model) {
  RnnConfig& config = model->config;
  CUDNN_RNN_RETURN_IF_ERROR(ReadEnumeration("rnn_mode", source.rnn_mode, 4, &config.mode));
  CUDNN_RNN_RETURN_IF_ERROR(
      ReadEnumeration("input_mode", source.input_mode, 3, &config.input_mode));
  CUDNN_RNN_RETURN_IF_ERROR(ReadEnumeration("direction", source.direction, 2, &config.direction));
  CUDNN_RNN_RETURN_IF_ERROR(ReadEnumeration("data_type", source.data_type, 4, &config.data_type));
  CUDNN_RNN_RETURN_IF_ERROR(
      ReadEnumeration("algorithm", source.algorithm, 5, &model->options.algorithm));
  config.num_layers = source.num_layers;
  config.num_units = source.num_units;
  config.input_size = source.input_size;
  config.num_proj = source.num_proj;
  config.seed = source.seed;
  config.seed2 = source.seed2;
  config.dropout = source.dropout;
  model->options.deterministic = source.deterministic != 0;
  model->options.allow_tf32 = source.allow_tf32 != 0;
  return Validate(config);
}

// A call's arguments, its plan and its execution context.
struct Call {
  SequenceShape shape;
  CallOptions options;
  SerialRunner runner;
  std::unique_ptr<DriverAllocator> allocator;  // null on a CPU
  Execution execution;
  CudnnPlanCache::Found found;
};

Status ReadCall(cudnn_rnn_model* model, const cudnn_rnn_call& source, Call* call) {
  if (source.num_steps < 0 || source.batch_size < 0) {
    return InvalidArgument("num_steps and batch_size must be at least 0, but are ",
                           source.num_steps, " and ", source.batch_size, ".");
  }
  call->shape = {source.num_steps, source.batch_size, source.time_major != 0};
  call->options.is_training = source.is_training != 0;
  call->options.dropout_call_index = source.dropout_call_index;
  CUDNN_RNN_RETURN_IF_ERROR(
      CopySequenceLengths(source.sequence_lengths, call->shape, &call->options.sequence_lengths));
  call->options.keeps_reserve_space = source.keeps_reserve_space != 0;
  call->execution.runner = &call->runner;
  call->execution.stream = source.stream;
  if (model->gpu_plans != nullptr) {
    call->allocator.reset(new DriverAllocator(model->runtime, source.stream));
    call->execution.allocator = call->allocator.get();
    return model->gpu_plans->Find(model->config, call->shape, call->options, model->options,
                                  call->execution, &call->found);
  }
  std::unique_ptr<RnnPlan> plan;
  CUDNN_RNN_RETURN_IF_ERROR(CreateCpuPlan(model->config, call->shape, &plan));
  call->found.plan = std::move(plan);
  return Status();
}

Status Prepare(cudnn_rnn_model* model, const cudnn_rnn_call& source, cudnn_rnn_sizes* sizes) {
  Call call;
  CUDNN_RNN_RETURN_IF_ERROR(ReadCall(model, source, &call));
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(model->config, &layout));
  const RnnPlan& plan = *call.found.plan;
  sizes->params_elements = layout.size();
  sizes->reserve_space_bytes = plan.ReserveSpaceBytes();
  sizes->forward_workspace_bytes = plan.ForwardWorkspaceBytes(call.options);
  sizes->backward_workspace_bytes = plan.BackwardWorkspaceBytes(call.options);
  sizes->algorithm = static_cast<int32_t>(call.found.algorithm);
  return Status();
}

// The required sizes depend on the lengths, which may have changed since cudnn_rnn_prepare.
Status CheckBytes(const char* name, int64_t given, int64_t required) {
  if (given >= required) return Status();
  return InvalidArgument(name, " must have at least ", required, " bytes for this call, but has ",
                         given, "; call cudnn_rnn_prepare for the same call.");
}

Status Forward(cudnn_rnn_model* model, const cudnn_rnn_call& source,
               const cudnn_rnn_forward_buffers& buffers) {
  Call call;
  CUDNN_RNN_RETURN_IF_ERROR(ReadCall(model, source, &call));
  const RnnPlan& plan = *call.found.plan;
  CUDNN_RNN_RETURN_IF_ERROR(
      CheckBytes("workspace", buffers.workspace_bytes, plan.ForwardWorkspaceBytes(call.options)));
  if (call.options.is_training) {
    CUDNN_RNN_RETURN_IF_ERROR(
        CheckBytes("reserve_space", buffers.reserve_space_bytes, plan.ReserveSpaceBytes()));
  }
  return plan.Forward(buffers, call.options, call.execution);
}

Status Backward(cudnn_rnn_model* model, const cudnn_rnn_call& source,
                const cudnn_rnn_backward_buffers& buffers) {
  Call call;
  CUDNN_RNN_RETURN_IF_ERROR(ReadCall(model, source, &call));
  const RnnPlan& plan = *call.found.plan;
  CUDNN_RNN_RETURN_IF_ERROR(
      CheckBytes("workspace", buffers.workspace_bytes, plan.BackwardWorkspaceBytes(call.options)));
  return plan.Backward(buffers, call.options, call.execution);
}

Status CreateModel(const cudnn_rnn_model_config& config, bool on_gpu, cudnn_rnn_model** model) {
  std::unique_ptr<cudnn_rnn_model> created(new cudnn_rnn_model());
  CUDNN_RNN_RETURN_IF_ERROR(ReadModel(config, created.get()));
  if (on_gpu) {
    CUDNN_RNN_RETURN_IF_ERROR(OpenProcessGpu(&created->runtime));
    CUDNN_RNN_RETURN_IF_ERROR(InitializeDriver(*created->runtime->libraries));
    created->gpu_plans.reset(new CudnnPlanCache(created->runtime, CreateCpuPlan));
  }
  *model = created.release();
  return Status();
}

}  // namespace
}  // namespace cudnn_rnn

using cudnn_rnn::ReturnFromC;

const char* cudnn_rnn_last_error() { return cudnn_rnn::last_error.text; }

int cudnn_rnn_open_gpu(const char* driver_name, const char* cudnn_file) {
  return ReturnFromC([=] {
    cudnn_rnn::LibrarySearch search;
    if (driver_name != nullptr) search.driver_name = driver_name;
    if (cudnn_file != nullptr) search.cudnn_file = cudnn_file;
    cudnn_rnn::GpuRuntime* runtime;
    return cudnn_rnn::OpenProcessGpu(search, &runtime);
  });
}

const char* cudnn_rnn_gpu_report() {
  static thread_local std::string text;
  text = cudnn_rnn::ProcessGpuReport();
  return text.c_str();
}

int cudnn_rnn_model_create(const cudnn_rnn_model_config* config, int on_gpu,
                           cudnn_rnn_model** model) {
  return ReturnFromC([=] { return cudnn_rnn::CreateModel(*config, on_gpu != 0, model); });
}

void cudnn_rnn_model_destroy(cudnn_rnn_model* model) { delete model; }

int cudnn_rnn_prepare(cudnn_rnn_model* model, const cudnn_rnn_call* call, cudnn_rnn_sizes* sizes) {
  return ReturnFromC([=] { return cudnn_rnn::Prepare(model, *call, sizes); });
}

int cudnn_rnn_forward(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                      const cudnn_rnn_forward_buffers* buffers) {
  return ReturnFromC([=] { return cudnn_rnn::Forward(model, *call, *buffers); });
}

int cudnn_rnn_backward(cudnn_rnn_model* model, const cudnn_rnn_call* call,
                       const cudnn_rnn_backward_buffers* buffers) {
  return ReturnFromC([=] { return cudnn_rnn::Backward(model, *call, *buffers); });
}
