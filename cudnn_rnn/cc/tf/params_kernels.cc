// CPU kernels of the ops that know the parameter buffer: CudnnRNNParamsSize,
// CudnnRNNParamsToCanonical and CudnnRNNCanonicalToParams.

#include <algorithm>
#include <limits>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::DEVICE_CPU;
using ::tensorflow::OpInputList;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// Common to the three: attributes at construction, sizes and layout at each call.
template <typename T>
class ParamsKernel : public OpKernel {
 public:
  explicit ParamsKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadAttributes(context, DataTypeOf<T>::value, &attributes_));
  }

 protected:
  TfStatus ReadLayout(OpKernelContext* context, ParamLayout* layout) const {
    RnnConfig config = attributes_;
    TF_RETURN_IF_ERROR(ReadSizes(context, &config));
    return ToTf(ParamLayout::Create(config, layout));
  }

 private:
  RnnConfig attributes_;
};

// -> params_size [1]: elements of the parameter buffer.
template <typename T, typename Size>
class ParamsSizeKernel : public ParamsKernel<T> {
 public:
  explicit ParamsSizeKernel(OpKernelConstruction* context) : ParamsKernel<T>(context) {
    int64_t num_proj = 0;
    if (context->HasAttr("num_proj")) {
      TfInt64 value;
      OP_REQUIRES_OK(context, context->GetAttr("num_proj", &value));
      num_proj = value;
    }
    OP_REQUIRES(context, num_proj == 0,
                ToTf(InvalidArgument("num_proj must be 0, but is ", num_proj,
                                     ": projection is not supported on a CPU yet.")));
  }

  void Compute(OpKernelContext* context) override {
    ParamLayout layout;
    OP_REQUIRES_OK(context, this->ReadLayout(context, &layout));
    OP_REQUIRES(context, layout.size() <= std::numeric_limits<Size>::max(),
                ToTf(InvalidArgument("The parameter buffer has ", layout.size(),
                                     " elements, more than params_size can hold in ",
                                     8 * sizeof(Size), " bits; ask for it with S=int64.")));
    Tensor* params_size;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &params_size));
    params_size->vec<Size>()(0) = static_cast<Size>(layout.size());
  }
};

TfStatus CheckListLength(const char* name, int64_t length, const ParamLayout& layout) {
  if (length == layout.num_canonical_weights()) return TfStatus();
  return ToTf(InvalidArgument(
      name, " must hold ", layout.num_canonical_weights(),
      " tensors (num_layers * directions * 2 * gates), but the attribute num_params is ", length,
      "."));
}

// params [params_size] -> num_params weights [num_units, width] and num_params biases [num_units].
template <typename T>
class ParamsToCanonicalKernel : public ParamsKernel<T> {
 public:
  using ParamsKernel<T>::ParamsKernel;

  void Compute(OpKernelContext* context) override {
    ParamLayout layout;
    OP_REQUIRES_OK(context, this->ReadLayout(context, &layout));
    const Tensor* params;
    OP_REQUIRES_OK(context, context->input("params", &params));
    OP_REQUIRES_OK(context, CheckShape("params", *params, {layout.size()}, "params_size"));
    OpOutputList weights, biases;
    OP_REQUIRES_OK(context, context->output_list("weights", &weights));
    OP_REQUIRES_OK(context, context->output_list("biases", &biases));
    OP_REQUIRES_OK(context, CheckListLength("weights", weights.size(), layout));
    OP_REQUIRES_OK(context, CheckListLength("biases", biases.size(), layout));
    const T* source = params->vec<T>().data();
    for (int i = 0; i < weights.size(); ++i) {
      const ParamRegion weight = layout.CanonicalWeight(i);
      OP_REQUIRES_OK(context,
                     Copy(source, weight, TensorShape({weight.rows, weight.columns}), i, &weights));
      const ParamRegion bias = layout.CanonicalBias(i);
      OP_REQUIRES_OK(context, Copy(source, bias, TensorShape({bias.rows}), i, &biases));
    }
  }

 private:
  static TfStatus Copy(const T* params, const ParamRegion& region, const TensorShape& shape,
                       int index, OpOutputList* list) {
    Tensor* target;
    TF_RETURN_IF_ERROR(list->allocate(index, shape, &target));
    std::copy_n(params + region.offset, region.size(), target->flat<T>().data());
    return TfStatus();
  }
};

// num_params weights and num_params biases, of any shapes with the right number of elements in
// row-major order -> params [params_size].
template <typename T>
class CanonicalToParamsKernel : public ParamsKernel<T> {
 public:
  using ParamsKernel<T>::ParamsKernel;

  void Compute(OpKernelContext* context) override {
    ParamLayout layout;
    OP_REQUIRES_OK(context, this->ReadLayout(context, &layout));
    OpInputList weights, biases;
    OP_REQUIRES_OK(context, context->input_list("weights", &weights));
    OP_REQUIRES_OK(context, context->input_list("biases", &biases));
    OP_REQUIRES_OK(context, CheckListLength("weights", weights.size(), layout));
    OP_REQUIRES_OK(context, CheckListLength("biases", biases.size(), layout));
    // All sizes before the allocation: with the inputs in memory, so is room for their sum.
    for (int i = 0; i < weights.size(); ++i) {
      OP_REQUIRES_OK(context, CheckElements("weights", i, weights[i], layout.CanonicalWeight(i)));
      OP_REQUIRES_OK(context, CheckElements("biases", i, biases[i], layout.CanonicalBias(i)));
    }
    Tensor* params;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({layout.size()}), &params));
    T* target = params->vec<T>().data();
    for (int i = 0; i < weights.size(); ++i) {
      Copy(weights[i], layout.CanonicalWeight(i), target);
      Copy(biases[i], layout.CanonicalBias(i), target);
    }
  }

 private:
  static TfStatus CheckElements(const char* list, int index, const Tensor& tensor,
                                const ParamRegion& region) {
    if (tensor.NumElements() == region.size()) return TfStatus();
    return ToTf(InvalidArgument(
        list, "[", index, "] must have ", region.size(), " elements, [", region.rows, ",",
        region.columns, "] in row-major order, but has shape ", ShapeText(ShapeOf(tensor)), "."));
  }

  static void Copy(const Tensor& source, const ParamRegion& region, T* params) {
    std::copy_n(source.flat<T>().data(), region.size(), params + region.offset);
  }
};

#define REGISTER_PARAMS_KERNELS(T)                                                 \
  REGISTER_KERNEL_BUILDER(Name("CudnnRNNParamsSize")                               \
                              .Device(DEVICE_CPU)                                  \
                              .TypeConstraint<T>("T")                              \
                              .TypeConstraint<int32_t>("S"),                       \
                          ParamsSizeKernel<T COMMA int32_t>);                      \
  REGISTER_KERNEL_BUILDER(Name("CudnnRNNParamsSize")                               \
                              .Device(DEVICE_CPU)                                  \
                              .TypeConstraint<T>("T")                              \
                              .TypeConstraint<TfInt64>("S"),                       \
                          ParamsSizeKernel<T COMMA TfInt64>);                      \
  REGISTER_KERNEL_BUILDER(                                                         \
      Name("CudnnRNNParamsToCanonical").Device(DEVICE_CPU).TypeConstraint<T>("T"), \
      ParamsToCanonicalKernel<T>);                                                 \
  REGISTER_KERNEL_BUILDER(                                                         \
      Name("CudnnRNNCanonicalToParams").Device(DEVICE_CPU).TypeConstraint<T>("T"), \
      CanonicalToParamsKernel<T>)
#define COMMA ,

REGISTER_PARAMS_KERNELS(Eigen::half);
REGISTER_PARAMS_KERNELS(float);
REGISTER_PARAMS_KERNELS(double);

#undef COMMA
#undef REGISTER_PARAMS_KERNELS

}  // namespace
}  // namespace cudnn_rnn
