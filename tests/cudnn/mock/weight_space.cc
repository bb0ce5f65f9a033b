#include "tests/cudnn/mock/weight_space.h"

#include <algorithm>
#include <cstring>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "tests/cudnn/mock/cudnn_call.h"

namespace cudnn_rnn {
namespace mock {
namespace {

constexpr int64_t kRegionAlignment = 256;
constexpr int64_t kRegionGap = 512;
constexpr int64_t kProjectionLayer = 8;

bool IsZero(const char* begin, const char* end) {
  return std::all_of(begin, end, [](char byte) { return byte == 0; });
}

}  // namespace

Status WeightSpace::Create(const RnnConfig& config, bool padded, WeightSpace* space) {
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &space->layout_));
  space->element_size_ = SizeOf(config.data_type);
  space->padded_ = padded;
  CheckedSize bytes(space->dense_bytes());
  if (padded) bytes = bytes + kRegionAlignment + CheckedSize(space->num_regions()) * kRegionGap;
  if (bytes.overflowed()) return InvalidArgument("the weight space is too large");
  space->bytes_ = bytes.value();
  return Status();
}

WeightRegion WeightSpace::Region(int64_t index) const {
  const int64_t num_matrices = layout_.num_canonical_weights();
  const ParamRegion dense = index < num_matrices ? layout_.CanonicalWeight(index)
                                                 : layout_.CanonicalBias(index - num_matrices);
  WeightRegion region = {0, dense.offset * element_size_, dense.rows, dense.columns,
                         dense.size() * element_size_};
  region.offset = region.dense_offset;
  if (padded_) {
    region.offset =
        (region.dense_offset + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment +
        index * kRegionGap;
  }
  return region;
}

int64_t WeightSpace::MatrixIndex(int64_t pseudo_layer, int64_t linear_layer) const {
  const int64_t per_direction = layout_.weights_per_direction();
  const int64_t num_linear_layers = layout_.biases_per_direction();
  if (linear_layer == kProjectionLayer) {
    if (per_direction == num_linear_layers) return -1;
    linear_layer = num_linear_layers;
  }
  const int64_t index = pseudo_layer * per_direction + linear_layer;
  return Region(index).bytes == 0 ? -1 : index;
}

int64_t WeightSpace::BiasIndex(int64_t pseudo_layer, int64_t linear_layer) const {
  if (linear_layer == kProjectionLayer) return -1;
  return layout_.num_canonical_weights() + pseudo_layer * layout_.biases_per_direction() +
         linear_layer;
}

void WeightSpace::Gather(const void* space, void* dense) const {
  for (int64_t i = 0; i < num_regions(); ++i) {
    const WeightRegion region = Region(i);
    std::memcpy(static_cast<char*>(dense) + region.dense_offset,
                static_cast<const char*>(space) + region.offset, static_cast<size_t>(region.bytes));
  }
}

void WeightSpace::Scatter(const void* dense, void* space) const {
  for (int64_t i = 0; i < num_regions(); ++i) {
    const WeightRegion region = Region(i);
    std::memcpy(static_cast<char*>(space) + region.offset,
                static_cast<const char*>(dense) + region.dense_offset,
                static_cast<size_t>(region.bytes));
  }
}

bool WeightSpace::GapsAreZero(const void* space) const {
  const char* const bytes = static_cast<const char*>(space);
  int64_t end = 0;
  for (int64_t i = 0; i < num_regions(); ++i) {
    const WeightRegion region = Region(i);
    if (!IsZero(bytes + end, bytes + region.offset)) return false;
    end = region.offset + region.bytes;
  }
  return IsZero(bytes + end, bytes + bytes_);
}

namespace {

// Sets the tensor descriptor and the address of the region, or an empty descriptor and a null
// address if `index` is negative.
void DescribeRegion(const WeightSpace& weights, int64_t index, int data_type,
                    const void* weight_space, bool is_loose, TensorDescriptor* descriptor,
                    void** address) {
  *descriptor = TensorDescriptor();
  descriptor->is_set = true;
  descriptor->data_type = data_type;
  *address = nullptr;
  if (index < 0) return;
  const WeightRegion region = weights.Region(index);
  const int rows = static_cast<int>(region.rows), columns = static_cast<int>(region.columns);
  descriptor->dimensions = {1, rows, columns};
  const int row_stride = is_loose ? columns + 1 : columns;
  descriptor->strides = {rows * row_stride, row_stride, 1};
  *address = const_cast<char*>(static_cast<const char*>(weight_space)) + region.offset;
}

}  // namespace
}  // namespace mock

using namespace mock;  // NOLINT: C functions are outside the namespace

namespace {

int NeedWeights(Call* call, void* handle, void* rnn_descriptor, RnnDescriptor** rnn,
                WeightSpace* weights) {
  Handle* found;
  MOCK_RETURN_IF_FAILED(call->NeedHandle(handle, &found));
  MOCK_RETURN_IF_FAILED(
      NeedSet(call, &call->state().rnn_descriptors, rnn_descriptor, "RNN descriptor", rnn));
  const Status created = WeightSpace::Create((*rnn)->config, (*rnn)->padded_weights, weights);
  return created.ok() ? 0 : call->StatusOf(MOCK_NOT_SUPPORTED);
}

}  // namespace

extern "C" {

int cudnnGetRNNWeightSpaceSize(void* handle, void* rnn_descriptor, size_t* bytes) {
  return RunCudnn("cudnnGetRNNWeightSpaceSize", [&](Call* call) {
    RnnDescriptor* rnn;
    WeightSpace weights;
    MOCK_RETURN_IF_FAILED(NeedWeights(call, handle, rnn_descriptor, &rnn, &weights));
    if (bytes == nullptr) return call->Violation("bytes is null");
    *bytes = static_cast<size_t>(weights.bytes());
    return 0;
  });
}

int cudnnGetRNNWeightParams(void* handle, void* rnn_descriptor, int32_t pseudo_layer,
                            size_t weight_space_bytes, const void* weight_space,
                            int32_t linear_layer, void* matrix_descriptor, void** matrix_address,
                            void* bias_descriptor, void** bias_address) {
  return RunCudnn("cudnnGetRNNWeightParams", [&](Call* call) {
    State& state = call->state();
    RnnDescriptor* rnn;
    WeightSpace weights;
    TensorDescriptor* matrix;
    TensorDescriptor* bias;
    MOCK_RETURN_IF_FAILED(NeedWeights(call, handle, rnn_descriptor, &rnn, &weights));
    MOCK_RETURN_IF_FAILED(
        call->Need(&state.tensor_descriptors, matrix_descriptor, "tensor descriptor", &matrix));
    MOCK_RETURN_IF_FAILED(
        call->Need(&state.tensor_descriptors, bias_descriptor, "tensor descriptor", &bias));
    if (matrix == bias) return call->Violation("both descriptors are the same");
    if (matrix_address == nullptr || bias_address == nullptr) {
      return call->Violation("an output is null");
    }
    const RnnConfig& config = rnn->config;
    if (pseudo_layer < 0 || pseudo_layer >= config.num_layers * config.num_directions()) {
      return call->Violation("pseudo_layer is ", pseudo_layer);
    }
    if (linear_layer < 0) return call->Violation("linear_layer is ", linear_layer);
    const bool may_project = config.mode == RnnMode::kLstm && linear_layer == kProjectionLayer;
    const bool exists = linear_layer < 2 * config.num_gates() || may_project;
    if (!exists) call->Forbid("linear_layer is ", linear_layer);
    if (weight_space_bytes < static_cast<size_t>(weights.bytes())) {
      call->Forbid("weight_space_bytes must be at least ", weights.bytes(), ", but is ",
                   weight_space_bytes);
    }
    if (weight_space == nullptr) return call->Violation("weight_space is null");
    DescribeRegion(weights, exists ? weights.MatrixIndex(pseudo_layer, linear_layer) : -1,
                   rnn->data_type, weight_space, state.record.options.loose_matrices, matrix,
                   matrix_address);
    const bool is_skipped = config.skips_input_projection() &&
                            pseudo_layer < config.num_directions() &&
                            linear_layer < config.num_gates();
    const bool has_bias = exists && (!is_skipped || state.record.options.skip_input_biases);
    DescribeRegion(weights, has_bias ? weights.BiasIndex(pseudo_layer, linear_layer) : -1,
                   rnn->data_type, weight_space, /*is_loose=*/false, bias, bias_address);
    return 0;
  });
}

}  // extern "C"

}  // namespace cudnn_rnn
