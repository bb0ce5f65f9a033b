// The layout of cuDNN's weight space, dense or padded.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_WEIGHT_SPACE_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_WEIGHT_SPACE_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {
namespace mock {

struct WeightRegion {
  int64_t offset;  // in bytes, within the weight space
  int64_t dense_offset;
  int64_t rows;
  int64_t columns;
  int64_t bytes;
};

class WeightSpace {
 public:
  static Status Create(const RnnConfig& config, bool padded, WeightSpace* space);

  int64_t bytes() const { return bytes_; }
  int64_t dense_bytes() const { return layout_.size() * element_size_; }

  // Regions in the order of their offsets: all matrices, then all biases.
  int64_t num_regions() const {
    return layout_.num_canonical_weights() + layout_.num_canonical_biases();
  }
  WeightRegion Region(int64_t index) const;
  // Return the index of the region that cudnnGetRNNWeightParams describes, or -1 if there is none.
  int64_t MatrixIndex(int64_t pseudo_layer, int64_t linear_layer) const;
  int64_t BiasIndex(int64_t pseudo_layer, int64_t linear_layer) const;

  // Copy the weight space to the dense buffer of ParamLayout, and back.
  void Gather(const void* space, void* dense) const;
  void Scatter(const void* dense, void* space) const;
  // Returns whether all bytes between and after the regions are 0.
  bool GapsAreZero(const void* space) const;

 private:
  ParamLayout layout_;
  int64_t element_size_ = 0;
  bool padded_ = false;
  int64_t bytes_ = 0;
};

}  // namespace mock
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_WEIGHT_SPACE_H_
