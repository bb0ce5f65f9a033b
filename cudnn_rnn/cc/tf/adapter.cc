#include "cudnn_rnn/cc/tf/adapter.h"

#include <algorithm>
#include <cctype>
#include <memory>

#include "cudnn_rnn/cc/core/environment.h"
#include "cudnn_rnn/cc/core/exceptions.h"

namespace cudnn_rnn {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

TfStatus ToTf(const Status& status) {
  if (status.ok()) return TfStatus();
  return MakeTfStatus(static_cast<int>(status.code()), status.message());
}

TfStatus CaughtToTf(const Status& status) noexcept {
  try {
    return ToTf(status);
  } catch (...) {
    return MakeTfStatus(static_cast<int>(status.code()), std::string());
  }
}

Status FromTf(const TfStatus& status) {
  if (status.ok()) return Status();
  // Only out-of-memory errors keep their code; TensorFlow's other errors become kInternal.
  const bool no_memory = CodeOf(status) == static_cast<int>(StatusCode::kResourceExhausted);
  return Status(no_memory ? StatusCode::kResourceExhausted : StatusCode::kInternal,
                MessageOf(status));
}

void StatusKernel::Compute(OpKernelContext* context) {
  TfStatus result;
  const Status caught = CatchExceptions([&] {
    result = Run(context);
    return Status();
  });
  OP_REQUIRES_OK(context, caught.ok() ? result : CaughtToTf(caught));
}

namespace {

// cudnn_rnn_threads::schedule.
int ScheduleOnPool(void* pool, void (*run)(void*), void (*destroy)(void*), void* task) {
  const Status status = CatchExceptions([=] {
    const std::shared_ptr<void> owned(task, destroy);  // destroys the task if this throws
    static_cast<::tensorflow::thread::ThreadPool*>(pool)->Schedule(
        [run, owned] { run(owned.get()); });
    return Status();
  });
  return static_cast<int>(status.code());
}

}  // namespace

cudnn_rnn_threads IntraOpThreads(OpKernelContext* context) {
  const auto* const workers = context->device()->tensorflow_cpu_worker_threads();
  ::tensorflow::thread::ThreadPool* const pool = workers == nullptr ? nullptr : workers->workers;
  return {pool == nullptr ? 1 : pool->NumThreads(), pool, ScheduleOnPool};
}

TfStatus ReadDataType(OpKernelConstruction* context, DataType* data_type) {
  ::tensorflow::DataType type;
  TF_RETURN_IF_ERROR(context->GetAttr("T", &type));
  switch (type) {
    case ::tensorflow::DT_HALF:
      *data_type = DataType::kHalf;
      return TfStatus();
    case ::tensorflow::DT_BFLOAT16:
      *data_type = DataType::kBfloat16;
      return TfStatus();
    case ::tensorflow::DT_FLOAT:
      *data_type = DataType::kFloat;
      return TfStatus();
    case ::tensorflow::DT_DOUBLE:
      *data_type = DataType::kDouble;
      return TfStatus();
    default:
      return ToTf(InvalidArgument("T must be half, bfloat16, float or double, but is ",
                                  ::tensorflow::DataTypeString(type), "."));
  }
}

TfStatus ReadAttributes(OpKernelConstruction* context, RnnConfig* config) {
  std::string rnn_mode, input_mode, direction;
  TF_RETURN_IF_ERROR(ReadDataType(context, &config->data_type));
  TF_RETURN_IF_ERROR(context->GetAttr("rnn_mode", &rnn_mode));
  TF_RETURN_IF_ERROR(context->GetAttr("input_mode", &input_mode));
  TF_RETURN_IF_ERROR(context->GetAttr("direction", &direction));
  TF_RETURN_IF_ERROR(context->GetAttr("dropout", &config->dropout));
  TfInt64 seed, seed2, num_proj = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("seed", &seed));
  TF_RETURN_IF_ERROR(context->GetAttr("seed2", &seed2));
  if (context->HasAttr("num_proj")) {
    TF_RETURN_IF_ERROR(context->GetAttr("num_proj", &num_proj));
  }
  config->seed = seed;
  config->seed2 = seed2;
  config->num_proj = num_proj;
  TF_RETURN_IF_ERROR(ToTf(ParseRnnMode(rnn_mode, &config->mode)));
  TF_RETURN_IF_ERROR(ToTf(ParseInputMode(input_mode, &config->input_mode)));
  return ToTf(ParseDirection(direction, &config->direction));
}

namespace {

TfStatus ReadSize(OpKernelContext* context, const char* name, int64_t* value) {
  const Tensor* tensor;
  TF_RETURN_IF_ERROR(context->input(name, &tensor));
  TF_RETURN_IF_ERROR(CheckShape(name, *tensor, {}, "a scalar"));
  *value = tensor->scalar<int32_t>()();
  return TfStatus();
}

}  // namespace

TfStatus ReadSizeInputs(OpKernelContext* context, RnnConfig* config) {
  TF_RETURN_IF_ERROR(ReadSize(context, "num_layers", &config->num_layers));
  TF_RETURN_IF_ERROR(ReadSize(context, "num_units", &config->num_units));
  return ReadSize(context, "input_size", &config->input_size);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += Concatenate(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

std::vector<int64_t> ShapeOf(const Tensor& tensor) {
  std::vector<int64_t> shape;
  for (int i = 0; i < tensor.dims(); ++i) shape.push_back(tensor.dim_size(i));
  return shape;
}

TfStatus CheckShape(const char* name, const Tensor& tensor, const std::vector<int64_t>& expected,
                    const char* dimensions) {
  const std::vector<int64_t> shape = ShapeOf(tensor);
  if (shape == expected) return TfStatus();
  return ToTf(InvalidArgument(name, " must have shape ", ShapeText(expected), " (", dimensions,
                              "), but has shape ", ShapeText(shape), "."));
}

TfStatus CheckRank(const char* name, const Tensor& tensor, int rank, const char* dimensions) {
  if (tensor.dims() == rank) return TfStatus();
  return ToTf(InvalidArgument(name, " must have rank ", rank, " (", dimensions, "), but has shape ",
                              ShapeText(ShapeOf(tensor)), "."));
}

TfStatus CheckParams(const Tensor& params, int64_t params_size) {
  if (params.NumElements() >= params_size) return TfStatus();
  return ToTf(InvalidArgument("params must have at least ", params_size,
                              " elements (params_size for these num_layers, num_units and "
                              "input_size), but has shape ",
                              ShapeText(ShapeOf(params)), "."));
}

TfStatus MakeShape(const std::vector<int64_t>& dimensions, ::tensorflow::TensorShape* shape) {
  const std::vector<TfInt64> converted(dimensions.begin(), dimensions.end());
  return ::tensorflow::TensorShapeUtils::MakeShape(converted.data(),
                                                   static_cast<int64_t>(converted.size()), shape);
}

const void* DataOf(const Tensor& tensor) { return tensor.tensor_data().data(); }
void* MutableDataOf(Tensor* tensor) { return const_cast<char*>(tensor->tensor_data().data()); }

Status ReadEnvironmentSwitch(const char* name, bool* value) {
  const std::string text = ReadEnvironment(name);
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "1" || lower == "true") {
    *value = true;
  } else if (lower.empty() || lower == "0" || lower == "false") {
    *value = false;
  } else {
    return InvalidArgument("The environment variable ", name,
                           " must be 1, true, 0 or false, but is '", text, "'.");
  }
  return Status();
}

}  // namespace cudnn_rnn
