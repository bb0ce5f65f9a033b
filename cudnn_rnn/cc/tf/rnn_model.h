// What CudnnRNN, its later versions and their gradients have in common: the inputs that describe
// the model, checked against one another.
#ifndef CUDNN_RNN_CC_TF_RNN_MODEL_H_
#define CUDNN_RNN_CC_TF_RNN_MODEL_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/tf/compat.h"

namespace cudnn_rnn {

// The first version of the op, CudnnRNNV2 or CudnnRNNV3.
enum class OpVersion { k1, k2, k3 };

inline bool HasHostReserved(OpVersion version) { return version != OpVersion::k1; }
inline bool HasSequenceLengths(OpVersion version) { return version == OpVersion::k3; }

// What the attributes say.
struct RnnAttributes {
  RnnConfig config;
  bool time_major = true;
};

TfStatus ReadRnnAttributes(::tensorflow::OpKernelConstruction* context, OpVersion version,
                           RnnAttributes* attributes);

struct Model {
  RnnConfig config;
  SequenceShape shape;
  // In the shapes of core/rnn_plan.h; input_c means nothing without LSTM.
  const ::tensorflow::Tensor* input = nullptr;
  const ::tensorflow::Tensor* input_h = nullptr;
  const ::tensorflow::Tensor* input_c = nullptr;
  const ::tensorflow::Tensor* params = nullptr;
  // The first so many of params are those of the model; the rest is not read.
  int64_t params_size = 0;
  // A copy, checked; empty without lengths. Another thread may write into a fed tensor.
  std::vector<int32_t> sequence_lengths;

  std::vector<int64_t> OutputShape() const;
  std::vector<int64_t> HiddenStateShape() const;
  std::vector<int64_t> CellStateShape() const;
  // Names of the axes, for errors.
  const char* OutputAxes() const;
  const char* HiddenStateAxes() const;
  const char* CellStateAxes() const;
};

TfStatus ReadModel(::tensorflow::OpKernelContext* context, OpVersion version,
                   const RnnAttributes& attributes, Model* model);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_RNN_MODEL_H_
