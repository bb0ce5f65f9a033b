// Kernels that rearrange Keras's weights as the parameter buffer and back, on a CPU.
//
// They belong to nodes CudnnRNNCanonicalToParams and CudnnRNNParamsToCanonical with the kernel
// label of _core/keras_params.py. In place of the canonical tensors, such a node has for each
// (layer, direction) the weights `kernel` [I(layer), G * H] and `recurrent_kernel` [H, G * H], and
// the input and recurrent biases, each [G * H]. Both are permutations of the same elements.

#include <memory>
#include <vector>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/tf/adapter.h"
#include "cudnn_rnn/cc/tf/engine_device.h"
#include "cudnn_rnn/cc/tf/registration.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::OpOutputList;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

constexpr char kKerasLabel[] = "cudnn_rnn_keras";

// A matrix of Keras, [rows, G * H], or a bias of one row, and its region of the buffer: G blocks
// [H, rows], one for each gate.
struct KerasPart {
  int64_t rows;
  int64_t offset;
};

// Returns the position in Keras's weights of a gate of the buffer. Keras's GRU has the update
// gate first, the buffer the reset gate.
int64_t KerasPosition(const RnnConfig& config, int64_t gate) {
  if (config.mode != RnnMode::kGru || gate == kGruCandidate) return gate;
  return gate == kGruReset ? kGruUpdate : kGruReset;
}

class KerasParamsKernel : public StatusKernel {
 public:
  explicit KerasParamsKernel(OpKernelConstruction* context) : StatusKernel(context) {
    OP_REQUIRES_OK(context, ReadAttributes(context, &attributes_));
    OP_REQUIRES_OK(context, ToTf(EngineDevice::CreateCpu(&device_)));
  }

 protected:
  // The parts in the order of the node's weights and biases.
  struct Parts {
    RnnConfig config;
    ParamLayout layout;
    std::vector<KerasPart> weights;
    std::vector<KerasPart> biases;

    int64_t gate_width() const { return config.num_gates() * config.num_units; }
    TensorShape WeightShape(size_t index) const {
      return TensorShape({weights[index].rows, gate_width()});
    }
    TensorShape BiasShape() const { return TensorShape({gate_width()}); }

    // Calls visit(offset in the tensor of Keras, offset in the buffer) for each gate of a part.
    template <typename Visit>
    void ForGates(const KerasPart& part, const Visit& visit) const {
      const int64_t units = config.num_units;
      for (int64_t gate = 0; gate < config.num_gates(); ++gate) {
        visit(KerasPosition(config, gate) * units, part.offset + gate * units * part.rows);
      }
    }
  };

  // `num_tensors` is the length of both lists of the node.
  TfStatus ReadParts(OpKernelContext* context, int num_tensors, Parts* parts) const {
    RnnConfig& config = parts->config = attributes_;
    TF_RETURN_IF_ERROR(ReadSizeInputs(context, &config));
    ParamLayout& layout = parts->layout;
    TF_RETURN_IF_ERROR(ToTf(ParamLayout::Create(config, &layout)));
    if (config.skips_input_projection() || config.has_projection()) {
      return ToTf(InvalidArgument("Keras's layers have neither a skipped input nor a projection."));
    }
    const int64_t expected = config.num_layers * config.num_directions() * 2;
    if (num_tensors != expected) {
      return ToTf(InvalidArgument("weights and biases must each hold ", expected,
                                  " tensors (num_layers * directions * 2), but the attribute "
                                  "num_params is ",
                                  num_tensors, "."));
    }
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      for (int64_t d = 0; d < config.num_directions(); ++d) {
        parts->weights.push_back({config.LayerInputSize(layer), layout.InputWeights(layer, d)});
        parts->weights.push_back({config.num_units, layout.RecurrentWeights(layer, d)});
        parts->biases.push_back({1, layout.InputBiases(layer, d)});
        parts->biases.push_back({1, layout.RecurrentBiases(layer, d)});
      }
    }
    return TfStatus();
  }

  TfStatus Transpose(OpKernelContext* context,
                     const std::vector<cudnn_rnn_transposition>& all) const {
    return ToTf(EngineCall(device_.get(), context).Transpose(attributes_.data_type, all));
  }

 private:
  RnnConfig attributes_;
  std::unique_ptr<EngineDevice> device_;
};

template <typename T>
class KerasToParamsKernel : public KerasParamsKernel {
 public:
  using KerasParamsKernel::KerasParamsKernel;

 private:
  TfStatus Run(OpKernelContext* context) override {
    OpInputList weights, biases;
    TF_RETURN_IF_ERROR(context->input_list("weights", &weights));
    TF_RETURN_IF_ERROR(context->input_list("biases", &biases));
    Parts parts;
    TF_RETURN_IF_ERROR(ReadParts(context, weights.size(), &parts));
    // Check all shapes first: then the output is as large as the inputs, which are in memory.
    for (int i = 0; i < weights.size(); ++i) {
      TF_RETURN_IF_ERROR(
          Check("weights", i, weights[i], parts.WeightShape(static_cast<size_t>(i))));
      TF_RETURN_IF_ERROR(Check("biases", i, biases[i], parts.BiasShape()));
    }
    Tensor* params;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({parts.layout.size()}), &params));
    std::vector<cudnn_rnn_transposition> all;
    for (int i = 0; i < weights.size(); ++i) {
      const size_t index = static_cast<size_t>(i);
      Add(parts, parts.weights[index], weights[i], params, &all);
      Add(parts, parts.biases[index], biases[i], params, &all);
    }
    return Transpose(context, all);
  }

  static TfStatus Check(const char* list, int index, const Tensor& tensor,
                        const TensorShape& expected) {
    if (tensor.shape() == expected) return TfStatus();
    return ToTf(InvalidArgument(list, "[", index, "] must have shape ", expected.DebugString(),
                                ", but has shape ", tensor.shape().DebugString(), "."));
  }

  static void Add(const Parts& parts, const KerasPart& part, const Tensor& tensor, Tensor* params,
                  std::vector<cudnn_rnn_transposition>* all) {
    const T* source = static_cast<const T*>(DataOf(tensor));
    T* target = static_cast<T*>(MutableDataOf(params));
    parts.ForGates(part, [&](int64_t in_tensor, int64_t in_buffer) {
      all->push_back({source + in_tensor, parts.gate_width(), target + in_buffer, part.rows,
                      part.rows, parts.config.num_units});
    });
  }
};

template <typename T>
class ParamsToKerasKernel : public KerasParamsKernel {
 public:
  using KerasParamsKernel::KerasParamsKernel;

 private:
  TfStatus Run(OpKernelContext* context) override {
    OpOutputList weights, biases;
    TF_RETURN_IF_ERROR(context->output_list("weights", &weights));
    TF_RETURN_IF_ERROR(context->output_list("biases", &biases));
    Parts parts;
    TF_RETURN_IF_ERROR(ReadParts(context, weights.size(), &parts));
    const Tensor* params;
    TF_RETURN_IF_ERROR(context->input("params", &params));
    TF_RETURN_IF_ERROR(CheckParams(*params, parts.layout.size()));
    std::vector<cudnn_rnn_transposition> all;
    for (int i = 0; i < weights.size(); ++i) {
      const size_t index = static_cast<size_t>(i);
      Tensor *weight, *bias;
      TF_RETURN_IF_ERROR(weights.allocate(i, parts.WeightShape(index), &weight));
      TF_RETURN_IF_ERROR(biases.allocate(i, parts.BiasShape(), &bias));
      Add(parts, parts.weights[index], *params, weight, &all);
      Add(parts, parts.biases[index], *params, bias, &all);
    }
    return Transpose(context, all);
  }

  static void Add(const Parts& parts, const KerasPart& part, const Tensor& params, Tensor* tensor,
                  std::vector<cudnn_rnn_transposition>* all) {
    const T* source = static_cast<const T*>(DataOf(params));
    T* target = static_cast<T*>(MutableDataOf(tensor));
    parts.ForGates(part, [&](int64_t in_tensor, int64_t in_buffer) {
      all->push_back({source + in_buffer, part.rows, target + in_tensor, parts.gate_width(),
                      parts.config.num_units, part.rows});
    });
  }
};

template <typename Kernel>
void Register(const char* op_name, ::tensorflow::DataType type) {
  const auto create = [](OpKernelConstruction* context) { return new Kernel(context); };
  RegisterKernel({op_name, {}, create}, type, {"CPU", kKerasLabel, 0});
}

template <typename T>
void RegisterAll(::tensorflow::DataType type) {
  Register<KerasToParamsKernel<T>>("CudnnRNNCanonicalToParams", type);
  Register<ParamsToKerasKernel<T>>("CudnnRNNParamsToCanonical", type);
}

[[maybe_unused]] const bool kRegistered = [] {
  RegisterAll<float>(::tensorflow::DT_FLOAT);
  RegisterAll<double>(::tensorflow::DT_DOUBLE);
  return true;
}();

}  // namespace
}  // namespace cudnn_rnn
