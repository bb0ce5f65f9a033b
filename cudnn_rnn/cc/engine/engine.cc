#include "cudnn_rnn/cc/engine/engine.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_rnn/cc/core/exceptions.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cpu/instruction_set.h"
#include "cudnn_rnn/cc/cpu/transpose.h"
#include "cudnn_rnn/cc/cudnn/driver_memory.h"
#include "cudnn_rnn/cc/cudnn/gpu_queue.h"
#include "cudnn_rnn/cc/cudnn/plan_cache.h"
#include "cudnn_rnn/cc/engine/caller.h"
#include "cudnn_rnn/cc/engine/conversions.h"
#include "cudnn_rnn/cc/engine/cpu_plans.h"
#include "cudnn_rnn/cc/engine/precision.h"

struct cudnn_rnn_gpu : cudnn_rnn::GpuRuntime {
  using GpuRuntime::GpuRuntime;
};

struct cudnn_rnn_planner {
  // Null: the CPU.
  explicit cudnn_rnn_planner(cudnn_rnn::GpuRuntime* gpu) : runtime(gpu) {
    if (gpu != nullptr) {
      gpu_plans.reset(new cudnn_rnn::CudnnPlanCache(gpu, cudnn_rnn::CreateCpuPlan));
    }
  }

  cudnn_rnn::GpuRuntime* const runtime;
  cudnn_rnn::CpuPlans cpu_plans;
  std::unique_ptr<cudnn_rnn::CudnnPlanCache> gpu_plans;  // null on a CPU
};

struct cudnn_rnn_prepared_call {
  cudnn_rnn_prepared_call(const cudnn_rnn_planner& planner, const cudnn_rnn_call& call)
      : threads(call.threads) {
    execution.runner = &threads;
    execution.stream = call.stream;
    if (planner.runtime == nullptr) return;
    if (call.allocator == nullptr) {
      allocator.reset(new cudnn_rnn::DriverAllocator(planner.runtime, call.stream));
    } else {
      allocator.reset(new cudnn_rnn::CallerAllocator(call.allocator));
    }
    execution.allocator = allocator.get();
  }

  cudnn_rnn::CallerThreads threads;
  std::unique_ptr<cudnn_rnn::DeviceAllocator> allocator;  // null on a CPU
  cudnn_rnn::Execution execution;
  cudnn_rnn::CallOptions options;
  std::shared_ptr<const cudnn_rnn::RnnPlan> plan;
  cudnn_rnn_sizes sizes;
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
  if (status.ok()) {
    last_error.text = "";
    return 0;
  }
  const bool is_kept = CatchExceptions([&] {
                         last_error.memory = status.message();
                         return Status();
                       }).ok();
  const bool has_text = is_kept && !status.message().empty();
  last_error.text = has_text ? last_error.memory.c_str() : kOutOfHostMemoryText;
  return static_cast<int>(status.code());
}

// Returns what `report`, a function, returns. The text is valid until this thread's next call.
template <typename Function>
const char* ReturnText(const Function& report) noexcept {
  static thread_local std::string text;
  const Status status = CatchExceptions([&] {
    text = report();
    return Status();
  });
  return status.ok() ? text.c_str() : kOutOfHostMemoryText;
}

LibrarySearch SearchFor(const cudnn_rnn_library_search& source) {
  LibrarySearch search;
  if (source.driver_name != nullptr) search.driver_name = source.driver_name;
  if (source.cudnn_file != nullptr) search.cudnn_file = source.cudnn_file;
  search.wheel_folders.assign(source.wheel_folders,
                              source.wheel_folders + source.num_wheel_folders);
  return search;
}

Status OpenAnotherGpu(const LibrarySearch& search, int64_t buffer_alignment, cudnn_rnn_gpu** gpu) {
  std::unique_ptr<GpuLibraries> libraries;
  CUDNN_RNN_RETURN_IF_ERROR(OpenGpuLibraries(search, &libraries));
  CUDNN_RNN_RETURN_IF_ERROR(InitializeDriver(*libraries));
  *gpu = new cudnn_rnn_gpu(std::move(libraries), buffer_alignment);
  return Status();
}

Status CreateGpuPlanner(GpuRuntime* runtime, cudnn_rnn_planner** planner) {
  if (runtime == nullptr) {
    CUDNN_RNN_RETURN_IF_ERROR(OpenProcessGpu(&runtime));
    CUDNN_RNN_RETURN_IF_ERROR(InitializeDriver(*runtime->libraries));
  }
  *planner = new cudnn_rnn_planner(runtime);
  return Status();
}

// Returns the name of what a CPU computes with.
const char* NameInForce(Precision precision) {
  return Name(precision == Precision::kDefault ? Precision::kHighest : precision);
}

// Returns lines about the data types and the precision.
std::string ReportOnCpu() {
  PrecisionChoice precision;
  const Status status = ChoosePrecision(&precision);
  std::string text;
  for (DataType data_type : {DataType::kFloat, DataType::kHalf, DataType::kBfloat16}) {
    InstructionSetChoice choice;
    const Status chosen = ChooseInstructionSet(ReadEnvironment(kInstructionSetVariable),
                                               FactorFormatOf(data_type, precision.precision),
                                               ThisProcessor(), &choice);
    text += Concatenate(Name(data_type), ": ");
    text += chosen.ok() ? Concatenate(Name(choice.instruction_set), ", ", choice.reason)
                        : chosen.message();
    text += "\n";
  }
  text += "precision: ";
  text += status.ok() ? Concatenate(NameInForce(precision.precision), ", ", precision.reason)
                      : status.message();
  return text + "\n";
}

Status FindParamsSize(const cudnn_rnn_config& source, int64_t* size) {
  RnnConfig config;
  CUDNN_RNN_RETURN_IF_ERROR(FromC(source, &config));
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
  *size = layout.size();
  return Status();
}

Status ReadCall(const cudnn_rnn_call& source, SequenceShape* shape, CallOptions* options) {
  if (source.num_steps < 0 || source.batch_size < 0) {
    return InvalidArgument("num_steps and batch_size must be at least 0, but are ",
                           source.num_steps, " and ", source.batch_size, ".");
  }
  *shape = {source.num_steps, source.batch_size, source.time_major != 0};
  options->is_training = source.is_training != 0;
  options->dropout_call_index = source.dropout_call_index;
  options->keeps_reserve_space = source.keeps_reserve_space != 0;
  options->forward_choice = FromC(source.forward_choice);
  return CopySequenceLengths(source.sequence_lengths, *shape, &options->sequence_lengths);
}

Status ReadOptions(const cudnn_rnn_call& source, CudnnOptions* options) {
  options->deterministic = source.deterministic != 0;
  options->allow_tf32 = source.allow_tf32 != 0;
  return FromC("algorithm", source.algorithm, Algorithm::kPersistDynamic, &options->algorithm);
}

Status FindPlan(cudnn_rnn_planner* planner, RnnConfig config, const SequenceShape& shape,
                const cudnn_rnn_call& call, cudnn_rnn_prepared_call* prepared) {
  if (planner->gpu_plans == nullptr) return planner->cpu_plans.Find(config, shape, &prepared->plan);
  CudnnOptions options;
  CUDNN_RNN_RETURN_IF_ERROR(ReadOptions(call, &options));
  if (config.precision != Precision::kDefault) {
    options.allow_tf32 = config.precision != Precision::kHighest;
    config.precision = Precision::kDefault;  // cuDNN's plans depend on allow_tf32
  }
  CudnnPlanCache::Found found;
  CUDNN_RNN_RETURN_IF_ERROR(planner->gpu_plans->Find(config, shape, prepared->options, options,
                                                     prepared->execution, &found));
  prepared->plan = std::move(found.plan);
  return Status();
}

Status FindSizes(cudnn_rnn_prepared_call* prepared) {
  const RnnPlan& plan = *prepared->plan;
  const PackedWeightsSpec packed = plan.PackedWeights(prepared->options);
  if (packed.layout.size() > CUDNN_RNN_MAX_PACKED_LAYOUT) {
    return Status(StatusCode::kInternal,
                  Concatenate("The layout of packed weights has ", packed.layout.size(),
                              " numbers; expected at most ", CUDNN_RNN_MAX_PACKED_LAYOUT, "."));
  }
  cudnn_rnn_sizes& sizes = prepared->sizes = {};
  sizes.reserve_space_bytes = plan.ReserveSpaceBytes();
  sizes.forward_workspace_bytes = plan.ForwardWorkspaceBytes(prepared->options);
  if (prepared->options.is_training) {
    sizes.backward_workspace_bytes = plan.BackwardWorkspaceBytes(prepared->options);
  }
  sizes.packed_weights_bytes = packed.bytes;
  std::copy(packed.layout.begin(), packed.layout.end(), sizes.packed_weights_layout);
  sizes.choice = ToC(plan.choice());
  return Status();
}

Status Prepare(cudnn_rnn_planner* planner, const cudnn_rnn_config& source,
               const cudnn_rnn_call& call, cudnn_rnn_prepared_call** prepared,
               cudnn_rnn_sizes* sizes) {
  const bool is_cpu = planner->gpu_plans == nullptr;
  RnnConfig config;
  CUDNN_RNN_RETURN_IF_ERROR(FromC(source, &config));
  if (config.precision == Precision::kDefault) {
    PrecisionChoice process;
    CUDNN_RNN_RETURN_IF_ERROR(ChoosePrecision(&process));
    if (is_cpu || !process.is_for_cpu) config.precision = process.precision;
  }
  if (is_cpu && config.precision == Precision::kDefault) config.precision = Precision::kHighest;
  std::unique_ptr<cudnn_rnn_prepared_call> created(new cudnn_rnn_prepared_call(*planner, call));
  SequenceShape shape;
  CUDNN_RNN_RETURN_IF_ERROR(ReadCall(call, &shape, &created->options));
  CUDNN_RNN_RETURN_IF_ERROR(FindPlan(planner, config, shape, call, created.get()));
  CUDNN_RNN_RETURN_IF_ERROR(FindSizes(created.get()));
  *sizes = created->sizes;
  *prepared = created.release();
  return Status();
}

Status CheckBytes(const char* name, int64_t given, int64_t required) {
  if (given >= required) return Status();
  return InvalidArgument(name, " must have at least ", required, " bytes for this call, but has ",
                         given, "; cudnn_rnn_prepare returns the sizes.");
}

Status Forward(const cudnn_rnn_prepared_call& call, const cudnn_rnn_forward_buffers& buffers) {
  CUDNN_RNN_RETURN_IF_ERROR(
      CheckBytes("workspace", buffers.workspace_bytes, call.sizes.forward_workspace_bytes));
  if (call.options.is_training) {
    CUDNN_RNN_RETURN_IF_ERROR(
        CheckBytes("reserve_space", buffers.reserve_space_bytes, call.sizes.reserve_space_bytes));
  }
  return call.plan->Forward(FromC(buffers), call.options, call.execution);
}

Status Backward(const cudnn_rnn_prepared_call& call, const cudnn_rnn_backward_buffers& buffers) {
  if (!call.options.is_training) {
    return InvalidArgument(
        "is_training is 0, but only a training call has a gradient; prepare the "
        "gradient like its forward call, with is_training of 1.");
  }
  CUDNN_RNN_RETURN_IF_ERROR(
      CheckBytes("workspace", buffers.workspace_bytes, call.sizes.backward_workspace_bytes));
  return call.plan->Backward(FromC(buffers), call.options, call.execution);
}

Status Clear(cudnn_rnn_planner* planner, void* stream, void* target, int64_t num_bytes) {
  if (num_bytes <= 0) return Status();
  if (planner->runtime == nullptr) {
    std::memset(target, 0, static_cast<size_t>(num_bytes));
    return Status();
  }
  GpuQueue queue(planner->runtime, stream, "clearing an output");
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  return queue.Clear(target, num_bytes);
}

Status Copy(cudnn_rnn_planner* planner, void* stream, const cudnn_rnn_copy* copies,
            int64_t num_copies) {
  if (planner->runtime == nullptr) {
    for (int64_t i = 0; i < num_copies; ++i) {
      if (copies[i].bytes <= 0) continue;
      std::memcpy(copies[i].target, copies[i].source, static_cast<size_t>(copies[i].bytes));
    }
    return Status();
  }
  GpuQueue queue(planner->runtime, stream, "copying parameters");
  CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
  for (int64_t i = 0; i < num_copies; ++i) {
    CUDNN_RNN_RETURN_IF_ERROR(queue.Copy(copies[i].target, copies[i].source, copies[i].bytes));
  }
  return Status();
}

template <typename T>
Status Transpose(const CpuPlans& plans, const cudnn_rnn_threads* threads,
                 const cudnn_rnn_transposition* transpositions, int64_t num_transpositions) {
  std::vector<Transposition<T>> converted;
  for (int64_t i = 0; i < num_transpositions; ++i) {
    const cudnn_rnn_transposition& one = transpositions[i];
    converted.push_back({static_cast<const T*>(one.source), one.source_stride,
                         static_cast<T*>(one.target), one.target_stride, one.rows, one.columns});
  }
  CallerThreads runner(threads);
  const Status status = TransposeMatrices(converted, plans.instruction_set(), &runner);
  return status.ok() ? status : plans.Explained(status, FactorFormat::kExact);
}

Status Transpose(const CpuPlans& plans, const cudnn_rnn_threads* threads, int32_t data_type,
                 const cudnn_rnn_transposition* transpositions, int64_t num_transpositions) {
  DataType type;
  CUDNN_RNN_RETURN_IF_ERROR(FromC("data_type", data_type, DataType::kDouble, &type));
  if (type == DataType::kFloat) {
    return Transpose<float>(plans, threads, transpositions, num_transpositions);
  }
  if (type == DataType::kDouble) {
    return Transpose<double>(plans, threads, transpositions, num_transpositions);
  }
  return InvalidArgument("data_type must be float or double, but is ", Name(type), ".");
}

}  // namespace
}  // namespace cudnn_rnn

using cudnn_rnn::ReturnFromC;
using cudnn_rnn::Status;

const char* cudnn_rnn_last_error(void) { return cudnn_rnn::last_error.text; }

int cudnn_rnn_open_driver(const cudnn_rnn_library_search* search) {
  return ReturnFromC([=] { return cudnn_rnn::OpenProcessDriver(cudnn_rnn::SearchFor(*search)); });
}

int cudnn_rnn_open_gpu(const cudnn_rnn_library_search* search) {
  return ReturnFromC([=] {
    cudnn_rnn::GpuRuntime* runtime;
    return cudnn_rnn::OpenProcessGpu(cudnn_rnn::SearchFor(*search), &runtime);
  });
}

int cudnn_rnn_open_another_gpu(const cudnn_rnn_library_search* search, int64_t buffer_alignment,
                               cudnn_rnn_gpu** gpu) {
  return ReturnFromC([=] {
    return cudnn_rnn::OpenAnotherGpu(cudnn_rnn::SearchFor(*search), buffer_alignment, gpu);
  });
}

const char* cudnn_rnn_gpu_report(void) {
  return cudnn_rnn::ReturnText([] { return cudnn_rnn::ProcessGpuReport(); });
}

const char* cudnn_rnn_cpu_report(void) {
  return cudnn_rnn::ReturnText([] { return cudnn_rnn::ReportOnCpu(); });
}

int cudnn_rnn_set_precision(const char* name) {
  return ReturnFromC([=] {
    cudnn_rnn::Precision precision = cudnn_rnn::Precision::kDefault;
    const Status status = *name == '\0' ? Status() : cudnn_rnn::ParsePrecision(name, &precision);
    if (status.ok()) cudnn_rnn::SetPrecision(precision);
    return status;
  });
}

int cudnn_rnn_get_precision(const char** name) {
  return ReturnFromC([=] {
    cudnn_rnn::PrecisionChoice choice;
    const Status status = cudnn_rnn::ChoosePrecision(&choice);
    *name = cudnn_rnn::NameInForce(choice.precision);
    return status;
  });
}

int cudnn_rnn_parse_algorithm(const char* name, int32_t* algorithm) {
  return ReturnFromC([=] {
    cudnn_rnn::Algorithm parsed;
    const Status status = cudnn_rnn::ParseAlgorithm(name, &parsed);
    if (status.ok()) *algorithm = static_cast<int32_t>(parsed);
    return status;
  });
}

int cudnn_rnn_create_cpu_planner(cudnn_rnn_planner** planner) {
  return ReturnFromC([=] {
    *planner = new cudnn_rnn_planner(nullptr);
    return Status();
  });
}

int cudnn_rnn_create_gpu_planner(cudnn_rnn_gpu* gpu, cudnn_rnn_planner** planner) {
  return ReturnFromC([=] { return cudnn_rnn::CreateGpuPlanner(gpu, planner); });
}

void cudnn_rnn_destroy_planner(cudnn_rnn_planner* planner) { delete planner; }

int cudnn_rnn_params_size(const cudnn_rnn_config* config, int64_t* size) {
  return ReturnFromC([=] { return cudnn_rnn::FindParamsSize(*config, size); });
}

int cudnn_rnn_prepare(cudnn_rnn_planner* planner, const cudnn_rnn_config* config,
                      const cudnn_rnn_call* call, cudnn_rnn_prepared_call** prepared,
                      cudnn_rnn_sizes* sizes) {
  return ReturnFromC([=] { return cudnn_rnn::Prepare(planner, *config, *call, prepared, sizes); });
}

int cudnn_rnn_forward(cudnn_rnn_prepared_call* prepared, const cudnn_rnn_forward_buffers* buffers) {
  return ReturnFromC([=] { return cudnn_rnn::Forward(*prepared, *buffers); });
}

int cudnn_rnn_backward(cudnn_rnn_prepared_call* prepared,
                       const cudnn_rnn_backward_buffers* buffers) {
  return ReturnFromC([=] { return cudnn_rnn::Backward(*prepared, *buffers); });
}

void cudnn_rnn_release_call(cudnn_rnn_prepared_call* prepared) { delete prepared; }

int cudnn_rnn_clear_memory(cudnn_rnn_planner* planner, void* stream, void* target,
                           int64_t num_bytes) {
  return ReturnFromC([=] { return cudnn_rnn::Clear(planner, stream, target, num_bytes); });
}

int cudnn_rnn_copy_memory(cudnn_rnn_planner* planner, void* stream, const cudnn_rnn_copy* copies,
                          int64_t num_copies) {
  return ReturnFromC([=] { return cudnn_rnn::Copy(planner, stream, copies, num_copies); });
}

int cudnn_rnn_transpose(cudnn_rnn_planner* planner, const cudnn_rnn_threads* threads,
                        int32_t data_type, const cudnn_rnn_transposition* transpositions,
                        int64_t num_transpositions) {
  return ReturnFromC([=] {
    return cudnn_rnn::Transpose(planner->cpu_plans, threads, data_type, transpositions,
                                num_transpositions);
  });
}
