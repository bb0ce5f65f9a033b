#include "cudnn_rnn/cc/tf/rnn_model.h"

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// graph/precision.py sets this attribute on a node whose model has a precision of its own.
constexpr char kPrecisionAttribute[] = "_cudnn_rnn_float32_matmul_precision";

std::vector<int64_t> StateShape(const Model& model, int64_t width) {
  const int64_t pseudo_layers = model.config.num_layers * model.config.num_directions();
  const int64_t batch_size = model.shape.batch_size;
  if (model.shape.time_major) return {pseudo_layers, batch_size, width};
  return {batch_size, pseudo_layers, width};
}

// Sets the config's sizes from the shapes of the tensors.
TfStatus ReadSizesFromShapes(const Model& model, RnnConfig* config) {
  config->input_size = model.input->dim_size(2);
  if (config->input_size == 0) {
    return ToTf(InvalidArgument("input must have input_size of at least 1 in its last dimension, ",
                                "but has shape ", ShapeText(ShapeOf(*model.input)), "."));
  }
  const int64_t pseudo_layers = model.input_h->dim_size(model.shape.time_major ? 0 : 1);
  config->num_layers = pseudo_layers / config->num_directions();
  config->num_units = model.input_h->dim_size(2);
  if (config->num_layers == 0 || pseudo_layers % config->num_directions() != 0 ||
      config->num_units == 0) {
    const std::string axis = Concatenate("num_layers * ", config->num_directions());
    const std::string first = model.shape.time_major ? axis + ", batch" : "batch, " + axis;
    const char* width = config->num_proj == 0 ? "num_units" : "num_proj";
    return ToTf(InvalidArgument("input_h must have shape [", first, ", ", width, "] for direction ",
                                Name(config->direction), ", with num_layers and ", width,
                                " of at least 1, but has shape ",
                                ShapeText(ShapeOf(*model.input_h)), "."));
  }
  if (config->num_proj != 0 && config->has_cell_state()) {
    // The last axis of input_h is num_proj; num_units is the width of the cell state.
    TF_RETURN_IF_ERROR(CheckRank("input_c", *model.input_c, 3, model.CellStateAxes()));
    config->num_units = model.input_c->dim_size(2);
  }
  return TfStatus();
}

TfStatus ReadParamsSize(Model* model) {
  ParamLayout layout;
  TF_RETURN_IF_ERROR(ToTf(ParamLayout::Create(model->config, &layout)));
  model->params_size = layout.size();
  return CheckParams(*model->params, model->params_size);
}

TfStatus ReadSequenceLengths(OpKernelContext* context, Model* model) {
  const Tensor* lengths;
  TF_RETURN_IF_ERROR(context->input("sequence_lengths", &lengths));
  TF_RETURN_IF_ERROR(CheckShape("sequence_lengths", *lengths, {model->shape.batch_size}, "batch"));
  return ToTf(CopySequenceLengths(static_cast<const int32_t*>(DataOf(*lengths)), model->shape,
                                  &model->sequence_lengths));
}

}  // namespace

std::vector<int64_t> Model::OutputShape() const {
  const int64_t width = config.num_directions() * config.output_size();
  if (shape.time_major) return {shape.num_steps, shape.batch_size, width};
  return {shape.batch_size, shape.num_steps, width};
}

std::vector<int64_t> Model::HiddenStateShape() const {
  return StateShape(*this, config.output_size());
}

std::vector<int64_t> Model::CellStateShape() const { return StateShape(*this, config.num_units); }

const char* Model::OutputAxes() const {
  if (config.has_projection()) {
    return shape.time_major ? "time, batch, directions * num_proj"
                            : "batch, time, directions * num_proj";
  }
  return shape.time_major ? "time, batch, directions * num_units"
                          : "batch, time, directions * num_units";
}

const char* Model::HiddenStateAxes() const {
  if (!config.has_projection()) return CellStateAxes();
  return shape.time_major ? "num_layers * directions, batch, num_proj"
                          : "batch, num_layers * directions, num_proj";
}

const char* Model::CellStateAxes() const {
  return shape.time_major ? "num_layers * directions, batch, num_units"
                          : "batch, num_layers * directions, num_units";
}

TfStatus ReadRnnAttributes(::tensorflow::OpKernelConstruction* context, OpVersion version,
                           RnnAttributes* attributes) {
  TF_RETURN_IF_ERROR(ReadAttributes(context, &attributes->config));
  if (context->HasAttr(kPrecisionAttribute)) {
    std::string name;
    TF_RETURN_IF_ERROR(context->GetAttr(kPrecisionAttribute, &name));
    TF_RETURN_IF_ERROR(ToTf(ParsePrecision(name, &attributes->config.precision)));
  }
  if (version != OpVersion::k3) return TfStatus();
  return context->GetAttr("time_major", &attributes->time_major);
}

TfStatus ReadModel(OpKernelContext* context, OpVersion version, const RnnAttributes& attributes,
                   Model* model) {
  TF_RETURN_IF_ERROR(context->input("input", &model->input));
  TF_RETURN_IF_ERROR(context->input("input_h", &model->input_h));
  TF_RETURN_IF_ERROR(context->input("input_c", &model->input_c));
  TF_RETURN_IF_ERROR(context->input("params", &model->params));
  model->config = attributes.config;
  model->shape.time_major = attributes.time_major;
  const char* input_axes =
      attributes.time_major ? "time, batch, input_size" : "batch, time, input_size";
  TF_RETURN_IF_ERROR(CheckRank("input", *model->input, 3, input_axes));
  TF_RETURN_IF_ERROR(CheckRank("input_h", *model->input_h, 3, model->HiddenStateAxes()));
  model->shape.num_steps = model->input->dim_size(attributes.time_major ? 0 : 1);
  model->shape.batch_size = model->input->dim_size(attributes.time_major ? 1 : 0);
  TF_RETURN_IF_ERROR(ReadSizesFromShapes(*model, &model->config));
  TF_RETURN_IF_ERROR(ToTf(Validate(model->config)));
  TF_RETURN_IF_ERROR(
      CheckShape("input_h", *model->input_h, model->HiddenStateShape(), model->HiddenStateAxes()));
  if (model->config.has_cell_state()) {
    TF_RETURN_IF_ERROR(
        CheckShape("input_c", *model->input_c, model->CellStateShape(), model->CellStateAxes()));
  }
  TF_RETURN_IF_ERROR(ReadParamsSize(model));
  return HasSequenceLengths(version) ? ReadSequenceLengths(context, model) : TfStatus();
}

}  // namespace cudnn_rnn
