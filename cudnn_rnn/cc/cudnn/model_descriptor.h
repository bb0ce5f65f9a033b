// cuDNN's descriptor of a model, shared by the plans that differ only in the number of steps.
#ifndef CUDNN_RNN_CC_CUDNN_MODEL_DESCRIPTOR_H_
#define CUDNN_RNN_CC_CUDNN_MODEL_DESCRIPTOR_H_

#include <cstdint>
#include <memory>
#include <mutex>

#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/cudnn/algorithm.h"
#include "cudnn_rnn/cc/cudnn/descriptors.h"
#include "cudnn_rnn/cc/cudnn/dropout_state.h"

namespace cudnn_rnn {

int CudnnDataType(DataType data_type);

class ModelDescriptor {
 public:
  struct Choices {
    Algorithm algorithm = Algorithm::kStandard;  // not kAuto
    bool is_training = false;
    // Sequences may end before the last step. Always true for batch-major shapes.
    bool is_padded = false;
    bool allow_tf32 = false;
  };

  // Compiles kernels for the batch size if the algorithm is kPersistDynamic, which takes seconds.
  // `dropout` is null if dropout has no effect.
  static Status Create(const GpuQueue& queue, const RnnConfig& config, const Choices& choices,
                       int64_t batch_size, std::shared_ptr<DropoutState> dropout,
                       std::shared_ptr<ModelDescriptor>* descriptor);

  void* get() const { return rnn_.get(); }
  // Locked while a call of any plan that shares the descriptor is queued.
  std::mutex& mutex() const { return mutex_; }

 private:
  ModelDescriptor() = default;
  Status Set(const GpuQueue& queue, const RnnConfig& config, const Choices& choices);

  std::shared_ptr<DropoutState> dropout_;  // its memory must outlive the descriptor
  DropoutDescriptor dropout_descriptor_;
  RnnDescriptor rnn_;
  mutable std::mutex mutex_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_MODEL_DESCRIPTOR_H_
