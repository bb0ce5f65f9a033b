#include "cudnn_rnn/cc/tf/cudnn_backend.h"

#include <string>

#include "cudnn_rnn/cc/cpu/cpu_plan.h"
#include "cudnn_rnn/cc/cudnn/gpu_queue.h"
#include "cudnn_rnn/cc/cudnn/plan_cache.h"
#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

constexpr char kAlgorithmVariable[] = "CUDNN_RNN_ALGO";

// A tensor keeps its buffer alive and may outlive the call that allocated it. TensorFlow reuses the
// memory only for later work on the same stream, so nothing waits for the device.
class TensorMemory : public DeviceMemory {
 public:
  explicit TensorMemory(const Tensor& tensor) : tensor_(tensor) {}

  void* data() override { return AlignUp(const_cast<void*>(DataOf(tensor_))); }

 private:
  const Tensor tensor_;
};

class TensorAllocator : public DeviceAllocator {
 public:
  explicit TensorAllocator(OpKernelContext* context) : context_(context) {}

  Status Allocate(int64_t bytes, MemoryNeed need, std::unique_ptr<DeviceMemory>* memory) override {
    Tensor tensor;
    const TensorShape shape({bytes + kDeviceAlignment});  // TensorFlow aligns less strictly.
    if (need == MemoryNeed::kRequired) {
      CUDNN_RNN_RETURN_IF_ERROR(
          FromTf(context_->allocate_temp(::tensorflow::DT_INT8, shape, &tensor)));
    } else if (!AllocateWithoutRetry(context_, shape, &tensor)) {
      return Status(StatusCode::kResourceExhausted,
                    Concatenate("There are no ", bytes,
                                " bytes of free GPU memory for a trial of an algorithm."));
    }
    memory->reset(new TensorMemory(tensor));
    return Status();
  }

 private:
  OpKernelContext* const context_;
};

class CudnnCall : public DeviceCall {
 public:
  CudnnCall(OpKernelContext* context, GpuRuntime* runtime, CudnnPlanCache* plans,
            const CudnnOptions& options, void* stream)
      : runtime_(runtime), plans_(plans), options_(options), stream_(stream), allocator_(context) {}

  Status FindPlan(const RnnConfig& config, const SequenceShape& shape, const CallOptions& options,
                  std::shared_ptr<const RnnPlan>* plan) override {
    CudnnPlanCache::Found found;
    const Status status = plans_->Find(config, shape, options, options_, execution(), &found);
    const bool is_forced =
        options_.algorithm != Algorithm::kAuto && options_.algorithm != Algorithm::kStandard;
    if (!status.ok() && is_forced) {
      return Status(status.code(),
                    Concatenate(status.message(), " The environment variable ", kAlgorithmVariable,
                                " is set to ", Name(options_.algorithm), "."));
    }
    *plan = std::move(found.plan);
    return status;
  }

  bool has_host_memory() const override { return false; }

  Execution execution() override {
    Execution execution;
    execution.stream = stream_;
    execution.allocator = &allocator_;
    return execution;
  }

  Status Clear(void* target, int64_t bytes) override {
    if (bytes == 0) return Status();
    GpuQueue queue(runtime_, stream_, "clearing an output");
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    return queue.Clear(target, bytes);
  }

  Status Copy(const std::vector<BufferCopy>& copies) override {
    GpuQueue queue(runtime_, stream_, "copying parameters");
    CUDNN_RNN_RETURN_IF_ERROR(queue.Begin());
    for (const BufferCopy& copy : copies) {
      CUDNN_RNN_RETURN_IF_ERROR(queue.Copy(copy.target, copy.source, copy.bytes));
    }
    return Status();
  }

 private:
  GpuRuntime* const runtime_;
  CudnnPlanCache* const plans_;
  const CudnnOptions options_;
  void* const stream_;
  TensorAllocator allocator_;
};

class CudnnBackend : public DeviceBackend {
 public:
  CudnnBackend(GpuRuntime* runtime, StreamFunction stream_of, Algorithm algorithm,
               bool deterministic)
      : runtime_(runtime),
        stream_of_(stream_of),
        algorithm_(algorithm),
        deterministic_(deterministic),
        plans_(runtime, CreateCpuPlan) {}

  std::unique_ptr<DeviceCall> Start(OpKernelContext* context) override {
    CudnnOptions options;
    options.algorithm = algorithm_;
    options.deterministic = deterministic_ || OpDeterminismIsRequired();
    options.allow_tf32 = TensorFloat32IsAllowed();
    return std::unique_ptr<DeviceCall>(
        new CudnnCall(context, runtime_, &plans_, options, stream_of_(context)));
  }

 private:
  GpuRuntime* const runtime_;
  const StreamFunction stream_of_;
  const Algorithm algorithm_;
  const bool deterministic_;
  CudnnPlanCache plans_;
};

}  // namespace

Status CreateCudnnBackend(GpuRuntime* runtime, StreamFunction stream_of,
                          std::unique_ptr<DeviceBackend>* backend) {
  Algorithm algorithm;
  const Status parsed = ParseAlgorithm(ReadEnvironment(kAlgorithmVariable), &algorithm);
  if (!parsed.ok()) {
    return InvalidArgument("The environment variable ", kAlgorithmVariable,
                           " is invalid: ", parsed.message());
  }
  bool deterministic = false;
  for (const char* variable : {"TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC"}) {
    bool is_set;
    CUDNN_RNN_RETURN_IF_ERROR(ReadEnvironmentSwitch(variable, &is_set));
    deterministic = deterministic || is_set;
  }
  backend->reset(new CudnnBackend(runtime, stream_of, algorithm, deterministic));
  return Status();
}

}  // namespace cudnn_rnn
