#include "cudnn_rnn/cc/cudnn/weight_regions.h"

#include <algorithm>

namespace cudnn_rnn {
namespace {

constexpr int kMaxDimensions = 8;
constexpr char kOtherVersion[] =
    "This package does not support the parameter layout of this cuDNN; use another version of "
    "cuDNN.";

// Fails unless the elements are contiguous.
Status CountElements(const GpuQueue& queue, void* descriptor, const std::string& name,
                     int64_t* elements) {
  int data_type, num_dimensions, dimensions[kMaxDimensions], strides[kMaxDimensions];
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(queue, cudnnGetTensorNdDescriptor, descriptor,
                                                 kMaxDimensions, &data_type, &num_dimensions,
                                                 dimensions, strides));
  *elements = 1;
  int64_t span = 1;
  for (int i = 0; i < std::min(num_dimensions, kMaxDimensions); ++i) {
    *elements *= dimensions[i];
    span += static_cast<int64_t>(dimensions[i] - 1) * strides[i];
  }
  if (span == *elements) return Status();
  return Unimplemented(Concatenate("cuDNN's ", name, " has ", *elements, " elements spread over ",
                                   span, "; expected contiguous elements. ", kOtherVersion));
}

// A matrix or bias as cuDNN reports it. `address` lies in the weight space passed to cuDNN.
struct ReportedRegion {
  void* address = nullptr;
  int64_t elements = 0;
};

}  // namespace

Status WeightRegions::Create(const GpuQueue& queue, void* rnn_descriptor, const RnnConfig& config,
                             const ParamLayout& layout, WeightRegions* regions) {
  size_t bytes = 0;
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(queue, cudnnGetRNNWeightSpaceSize, queue.handle(),
                                                 rnn_descriptor, &bytes));
  TensorDescriptor matrix_descriptor, bias_descriptor;
  CUDNN_RNN_RETURN_IF_ERROR(matrix_descriptor.Create(queue, "cudnnCreateTensorDescriptor"));
  CUDNN_RNN_RETURN_IF_ERROR(bias_descriptor.Create(queue, "cudnnCreateTensorDescriptor"));
  // cuDNN only adds offsets to this address. It must not be null: null means that a region is
  // missing.
  char* const start = reinterpret_cast<char*>(uintptr_t{1} << 20);
  const int64_t element_size = SizeOf(config.data_type);
  *regions = WeightRegions();
  regions->bytes_ = static_cast<int64_t>(bytes);
  for (int64_t index = 0; index < layout.num_canonical_weights(); ++index) {
    const int64_t pseudo_layer = index / layout.weights_per_direction();
    const int64_t linear_layer = index % layout.weights_per_direction();
    ReportedRegion matrix, bias;
    CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_CUDNN_CALL(
        queue, cudnnGetRNNWeightParams, queue.handle(), rnn_descriptor,
        static_cast<int32_t>(pseudo_layer), bytes, start, static_cast<int32_t>(linear_layer),
        matrix_descriptor.get(), &matrix.address, bias_descriptor.get(), &bias.address));
    const std::string name = Concatenate(linear_layer, " of pseudo-layer ", pseudo_layer);
    if (matrix.address != nullptr) {
      CUDNN_RNN_RETURN_IF_ERROR(
          CountElements(queue, matrix_descriptor.get(), "matrix " + name, &matrix.elements));
    }
    CUDNN_RNN_RETURN_IF_ERROR(regions->Add(layout.CanonicalWeight(index), element_size,
                                           static_cast<char*>(matrix.address) - start,
                                           matrix.elements, "matrix " + name));
    if (linear_layer >= layout.biases_per_direction()) continue;  // a projection has no bias
    if (bias.address != nullptr) {
      CUDNN_RNN_RETURN_IF_ERROR(
          CountElements(queue, bias_descriptor.get(), "bias " + name, &bias.elements));
    } else if (config.skips_input_projection() && pseudo_layer < config.num_directions()) {
      return Unimplemented(Concatenate("This cuDNN has no bias ", name,
                                       " with input_mode=\"skip_input\", but the model has one. ",
                                       "Use input_mode=\"linear_input\", run the model on a CPU, "
                                       "or use another version of cuDNN."));
    }
    const int64_t bias_index = pseudo_layer * layout.biases_per_direction() + linear_layer;
    CUDNN_RNN_RETURN_IF_ERROR(regions->Add(layout.CanonicalBias(bias_index), element_size,
                                           static_cast<char*>(bias.address) - start, bias.elements,
                                           "bias " + name));
  }
  return regions->Finish(layout.size() * element_size);
}

Status WeightRegions::Add(const ParamRegion& expected, int64_t element_size, int64_t offset,
                          int64_t elements, const std::string& name) {
  if (elements != expected.size()) {
    return Unimplemented(Concatenate("cuDNN's ", name, " has ", elements, " elements; expected ",
                                     expected.rows, " x ", expected.columns, ". ", kOtherVersion));
  }
  if (elements == 0) return Status();
  const int64_t region_bytes = elements * element_size;
  if (offset < 0 || offset > bytes_ - region_bytes) {
    return Status(StatusCode::kInternal,
                  Concatenate("cuDNN's ", name, " starts at byte ", offset,
                              ", outside its weight space of ", bytes_, " bytes."));
  }
  regions_.push_back({expected.offset * element_size, offset, region_bytes});
  return Status();
}

// Sorts the regions, rejects overlaps and merges adjacent regions.
Status WeightRegions::Finish(int64_t params_bytes) {
  std::sort(regions_.begin(), regions_.end(),
            [](const Region& a, const Region& b) { return a.weights_offset < b.weights_offset; });
  std::vector<Region> joined;
  for (const Region& region : regions_) {
    if (!joined.empty()) {
      Region& last = joined.back();
      const int64_t end = last.weights_offset + last.bytes;
      if (region.weights_offset < end) {
        return Status(StatusCode::kInternal,
                      Concatenate("cuDNN's parameters overlap at byte ", region.weights_offset,
                                  " of its weight space."));
      }
      if (region.weights_offset == end && region.params_offset == last.params_offset + last.bytes) {
        last.bytes += region.bytes;
        continue;
      }
    }
    joined.push_back(region);
  }
  regions_ = std::move(joined);
  is_dense_ = bytes_ == params_bytes && regions_.size() == 1;
  return Status();
}

Status WeightRegions::ToWeightSpace(const GpuQueue& queue, const void* params,
                                    void* weight_space) const {
  CUDNN_RNN_RETURN_IF_ERROR(queue.Clear(weight_space, bytes_));
  for (const Region& region : regions_) {
    CUDNN_RNN_RETURN_IF_ERROR(queue.Copy(static_cast<char*>(weight_space) + region.weights_offset,
                                         static_cast<const char*>(params) + region.params_offset,
                                         region.bytes));
  }
  return Status();
}

Status WeightRegions::FromWeightSpace(const GpuQueue& queue, const void* weight_space,
                                      void* params) const {
  for (const Region& region : regions_) {
    CUDNN_RNN_RETURN_IF_ERROR(
        queue.Copy(static_cast<char*>(params) + region.params_offset,
                   static_cast<const char*>(weight_space) + region.weights_offset, region.bytes));
  }
  return Status();
}

}  // namespace cudnn_rnn
