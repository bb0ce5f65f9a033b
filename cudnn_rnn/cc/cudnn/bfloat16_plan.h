// Plan for bfloat16 if cuDNN's RNNs do not support it: converts the buffers in the workspace and
// runs a float plan. In training, the reserve space also holds the float output, so that the
// gradient is that of the computed output, not of the rounded one.
#ifndef CUDNN_RNN_CC_CUDNN_BFLOAT16_PLAN_H_
#define CUDNN_RNN_CC_CUDNN_BFLOAT16_PLAN_H_

#include <memory>
#include <string>

#include "cudnn_rnn/cc/core/arena.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cudnn/gpu_queue.h"

namespace cudnn_rnn {

class Bfloat16Plan : public RnnPlan {
 public:
  // `config` and `shape` must equal those of `float_plan`, except for the data type.
  static Status Create(GpuRuntime* runtime, const RnnConfig& config, const SequenceShape& shape,
                       std::shared_ptr<const RnnPlan> float_plan,
                       std::shared_ptr<const RnnPlan>* plan);

  int64_t ReserveSpaceBytes() const override;
  int64_t ForwardWorkspaceBytes(const CallOptions& options) const override;
  int64_t BackwardWorkspaceBytes(const CallOptions& options) const override;
  Status Forward(const ForwardBuffers& buffers, const CallOptions& options,
                 const Execution& execution) const override;
  Status Backward(const BackwardBuffers& buffers, const CallOptions& options,
                  const Execution& execution) const override;

 private:
  // Number of elements in each kind of buffer.
  struct Sizes {
    int64_t input;
    int64_t output;
    int64_t h;
    int64_t c;
    int64_t params;
  };
  // The caller's buffer, the float plan's pointer to its float copy, and its number of elements.
  template <typename Pointer>
  struct Conversion {
    Pointer buffer;
    Pointer* float_buffer;
    int64_t elements;
  };

  float* OutputIn(void* reserve_space) const;

  Bfloat16Plan(GpuRuntime* runtime, const Sizes& sizes, std::string description,
               std::shared_ptr<const RnnPlan> float_plan)
      : runtime_(runtime),
        sizes_(sizes),
        description_(std::move(description)),
        float_plan_(std::move(float_plan)) {}

  GpuRuntime* const runtime_;
  const Sizes sizes_;
  const std::string description_;
  const std::shared_ptr<const RnnPlan> float_plan_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_BFLOAT16_PLAN_H_
