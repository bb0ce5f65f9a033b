// Reads the inputs that describe the model, which all versions of CudnnRNN and their gradients have
// in common, and checks them against one another.
#ifndef CUDNN_RNN_CC_TF_RNN_MODEL_H_
#define CUDNN_RNN_CC_TF_RNN_MODEL_H_

#include <cstdint>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/tf/compat.h"

namespace cudnn_rnn {

// CudnnRNN, CudnnRNNV2 and CudnnRNNV3.
enum class OpVersion { k1, k2, k3 };

inline bool HasHostReserved(OpVersion version) { return version != OpVersion::k1; }
inline bool HasSequenceLengths(OpVersion version) { return version == OpVersion::k3; }

// The op's attributes.
struct RnnAttributes {
  RnnConfig config;
  bool time_major = true;
};

TfStatus ReadRnnAttributes(::tensorflow::OpKernelConstruction* context, OpVersion version,
                           RnnAttributes* attributes);

struct Model {
  RnnConfig config;
  SequenceShape shape;
  // Shapes are those of core/rnn_plan.h; input_c is meaningful only for LSTM.
  const ::tensorflow::Tensor* input = nullptr;
  const ::tensorflow::Tensor* input_h = nullptr;
  const ::tensorflow::Tensor* input_c = nullptr;
  const ::tensorflow::Tensor* params = nullptr;
  // Number of leading elements of params that the model uses; the rest are not read.
  int64_t params_size = 0;
  // A checked copy, since another thread may write into a fed tensor; empty without lengths.
  std::vector<int32_t> sequence_lengths;

  std::vector<int64_t> OutputShape() const;
  std::vector<int64_t> HiddenStateShape() const;
  std::vector<int64_t> CellStateShape() const;
  // Names of the axes, for error messages.
  const char* OutputAxes() const;
  const char* HiddenStateAxes() const;
  const char* CellStateAxes() const;
};

TfStatus ReadModel(::tensorflow::OpKernelContext* context, OpVersion version,
                   const RnnAttributes& attributes, Model* model);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_RNN_MODEL_H_
