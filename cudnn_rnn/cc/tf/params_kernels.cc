#include "cudnn_rnn/cc/tf/params_kernels.h"

#include <limits>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

TfStatus ReadLayout(OpKernelContext* context, const RnnConfig& attributes, ParamLayout* layout) {
  RnnConfig config = attributes;
  TF_RETURN_IF_ERROR(ReadSizeInputs(context, &config));
  return ToTf(ParamLayout::Create(config, layout));
}

// Fails unless the lists of tensors have the lengths that the layout requires.
TfStatus CheckListLengths(int64_t num_weights, int64_t num_biases, const ParamLayout& layout) {
  struct List {
    const char* name;
    int64_t length;
    int64_t expected;
    int64_t per_direction;
  };
  const List lists[] = {
      {"weights", num_weights, layout.num_canonical_weights(), layout.weights_per_direction()},
      {"biases", num_biases, layout.num_canonical_biases(), layout.biases_per_direction()},
  };
  for (const List& list : lists) {
    if (list.length == list.expected) continue;
    return ToTf(InvalidArgument(list.name, " must hold ", list.expected,
                                " tensors (num_layers * directions * ", list.per_direction,
                                "), but the attribute num_params, or num_params_", list.name,
                                ", is ", list.length, "."));
  }
  return TfStatus();
}

}  // namespace

ParamsSizeKernel::ParamsSizeKernel(OpKernelConstruction* context) : StatusKernel(context) {
  OP_REQUIRES_OK(context, ReadAttributes(context, &attributes_));
  OP_REQUIRES_OK(context, context->GetAttr("S", &size_type_));
}

TfStatus ParamsSizeKernel::Run(OpKernelContext* context) {
  ParamLayout layout;
  TF_RETURN_IF_ERROR(ReadLayout(context, attributes_, &layout));
  const bool is_int32 = size_type_ == ::tensorflow::DT_INT32;
  if (is_int32 && layout.size() > std::numeric_limits<int32_t>::max()) {
    return ToTf(InvalidArgument("The parameter buffer has ", layout.size(),
                                " elements, more than an int32 params_size can hold; request "
                                "S=int64."));
  }
  Tensor* params_size;
  TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({1}), &params_size));
  if (is_int32) {
    params_size->vec<int32_t>()(0) = static_cast<int32_t>(layout.size());
  } else {
    params_size->vec<TfInt64>()(0) = layout.size();
  }
  return TfStatus();
}

ParamsToCanonicalKernel::ParamsToCanonicalKernel(OpKernelConstruction* context,
                                                 const DeviceFactory& create_device)
    : StatusKernel(context) {
  OP_REQUIRES_OK(context, ReadAttributes(context, &attributes_));
  OP_REQUIRES_OK(context, ToTf(create_device(&device_)));
}

TfStatus ParamsToCanonicalKernel::Run(OpKernelContext* context) {
  ParamLayout layout;
  TF_RETURN_IF_ERROR(ReadLayout(context, attributes_, &layout));
  const Tensor* params;
  TF_RETURN_IF_ERROR(context->input("params", &params));
  TF_RETURN_IF_ERROR(CheckParams(*params, layout.size()));
  OpOutputList weights, biases;
  TF_RETURN_IF_ERROR(context->output_list("weights", &weights));
  TF_RETURN_IF_ERROR(context->output_list("biases", &biases));
  TF_RETURN_IF_ERROR(CheckListLengths(weights.size(), biases.size(), layout));

  const int64_t element_size = SizeOf(attributes_.data_type);
  const char* source = static_cast<const char*>(DataOf(*params));
  std::vector<cudnn_rnn_copy> copies;
  const auto take = [&](const ParamRegion& region, const TensorShape& shape, int index,
                        OpOutputList* list) {
    Tensor* target;
    TF_RETURN_IF_ERROR(list->allocate(index, shape, &target));
    copies.push_back({MutableDataOf(target), source + region.offset * element_size,
                      region.size() * element_size});
    return TfStatus();
  };
  for (int i = 0; i < weights.size(); ++i) {
    const ParamRegion weight = layout.CanonicalWeight(i);
    TF_RETURN_IF_ERROR(take(weight, TensorShape({weight.rows, weight.columns}), i, &weights));
  }
  for (int i = 0; i < biases.size(); ++i) {
    const ParamRegion bias = layout.CanonicalBias(i);
    TF_RETURN_IF_ERROR(take(bias, TensorShape({bias.rows}), i, &biases));
  }
  TF_RETURN_IF_ERROR(ToTf(EngineCall(device_.get(), context).Copy(copies)));
  return TfStatus();
}

CanonicalToParamsKernel::CanonicalToParamsKernel(OpKernelConstruction* context,
                                                 const DeviceFactory& create_device)
    : StatusKernel(context) {
  OP_REQUIRES_OK(context, ReadAttributes(context, &attributes_));
  OP_REQUIRES_OK(context, ToTf(create_device(&device_)));
}

namespace {

TfStatus CheckElements(const char* list, int index, const Tensor& tensor,
                       const ParamRegion& region) {
  if (tensor.NumElements() == region.size()) return TfStatus();
  return ToTf(InvalidArgument(
      list, "[", index, "] must have ", region.size(), " elements, [", region.rows, ",",
      region.columns, "] in row-major order, but has shape ", ShapeText(ShapeOf(tensor)), "."));
}

}  // namespace

TfStatus CanonicalToParamsKernel::Run(OpKernelContext* context) {
  ParamLayout layout;
  TF_RETURN_IF_ERROR(ReadLayout(context, attributes_, &layout));
  OpInputList weights, biases;
  TF_RETURN_IF_ERROR(context->input_list("weights", &weights));
  TF_RETURN_IF_ERROR(context->input_list("biases", &biases));
  TF_RETURN_IF_ERROR(CheckListLengths(weights.size(), biases.size(), layout));
  // Check all sizes first: then the output is exactly as large as the inputs, which are in memory.
  for (int i = 0; i < weights.size(); ++i) {
    TF_RETURN_IF_ERROR(CheckElements("weights", i, weights[i], layout.CanonicalWeight(i)));
  }
  for (int i = 0; i < biases.size(); ++i) {
    TF_RETURN_IF_ERROR(CheckElements("biases", i, biases[i], layout.CanonicalBias(i)));
  }

  Tensor* params;
  TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({layout.size()}), &params));
  const int64_t element_size = SizeOf(attributes_.data_type);
  char* target = static_cast<char*>(MutableDataOf(params));
  std::vector<cudnn_rnn_copy> copies;
  const auto put = [&](const Tensor& source, const ParamRegion& region) {
    copies.push_back(
        {target + region.offset * element_size, DataOf(source), region.size() * element_size});
  };
  for (int i = 0; i < weights.size(); ++i) put(weights[i], layout.CanonicalWeight(i));
  for (int i = 0; i < biases.size(); ++i) put(biases[i], layout.CanonicalBias(i));
  TF_RETURN_IF_ERROR(ToTf(EngineCall(device_.get(), context).Copy(copies)));
  return TfStatus();
}

}  // namespace cudnn_rnn
