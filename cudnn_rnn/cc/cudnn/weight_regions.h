// Mapping between cuDNN's weight space and the parameter buffer of ParamLayout.
//
// As far as is known, cuDNN's weight space has the dense layout of core/param_layout.h. But only
// cuDNN's answer counts, and the space may be larger than the sum of its regions.
#ifndef CUDNN_RNN_CC_CUDNN_WEIGHT_REGIONS_H_
#define CUDNN_RNN_CC_CUDNN_WEIGHT_REGIONS_H_

#include <vector>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/cudnn/descriptors.h"

namespace cudnn_rnn {

class WeightRegions {
 public:
  // Asks cuDNN for the region of each matrix and bias. Fails if a region differs in size from
  // ParamLayout, overlaps another or lies outside the weight space.
  static Status Create(const GpuQueue& queue, void* rnn_descriptor, const RnnConfig& config,
                       const ParamLayout& layout, WeightRegions* regions);

  // Size of cuDNN's weight space in bytes.
  int64_t bytes() const { return bytes_; }
  // Returns whether the parameter buffer can serve as the weight space.
  bool is_dense() const { return is_dense_; }

  // Copy between the parameter buffer and a weight space of bytes() bytes; ToWeightSpace clears
  // gaps.
  Status ToWeightSpace(const GpuQueue& queue, const void* params, void* weight_space) const;
  Status FromWeightSpace(const GpuQueue& queue, const void* weight_space, void* params) const;

 private:
  struct Region {
    int64_t params_offset;  // bytes
    int64_t weights_offset;
    int64_t bytes;
  };
  Status Add(const ParamRegion& expected, int64_t element_size, int64_t offset, int64_t elements,
             const std::string& name);
  Status Finish(int64_t params_bytes);

  std::vector<Region> regions_;
  int64_t bytes_ = 0;
  bool is_dense_ = false;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_WEIGHT_REGIONS_H_
