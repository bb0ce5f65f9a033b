// RnnPlan that runs one cuDNN algorithm. plan_cache.h creates and keeps the plans.
//
// The parameter buffer has the dense layout of core/param_layout.h, whatever the layout of cuDNN's
// weight space (weight_regions.h). cuDNN rejects sequences of length 0, so the plan runs them as
// sequences of length 1 and then overwrites their results with the correct ones. In training, it
// also zeroes their inputs and gradients; a batch with such sequences costs a copy of these.
//
// cuDNN needs weights, reserve space and workspace aligned to kDeviceAlignment. The plan aligns its
// part of the workspace itself. Parameters, their gradient or a reserve space that are not aligned
// cost a copy each (aligned_copies.h). The caller's reserve space always starts at its first byte,
// so a copy of it, aligned differently, is still valid. (Like every copy of a reserve space, this
// relies on cuDNN to store no addresses in it.)
#ifndef CUDNN_RNN_CC_CUDNN_CUDNN_PLAN_H_
#define CUDNN_RNN_CC_CUDNN_CUDNN_PLAN_H_

#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/arena.h"
#include "cudnn_rnn/cc/core/param_layout.h"
#include "cudnn_rnn/cc/core/rnn_config.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/cudnn/algorithm.h"
#include "cudnn_rnn/cc/cudnn/descriptors.h"
#include "cudnn_rnn/cc/cudnn/dropout_state.h"
#include "cudnn_rnn/cc/cudnn/model_descriptor.h"
#include "cudnn_rnn/cc/cudnn/weight_regions.h"

namespace cudnn_rnn {

class CudnnPlan : public RnnPlan {
 public:
  using Choices = ModelDescriptor::Choices;

  // `dropout` is null if and only if UsesDropout() is false. (Backward needs a state, too: nothing
  // in cuDNN's documents allows a descriptor without one, although the pattern of a call is in its
  // reserve space.) `model` is that of a plan that differs only in the number of steps, or null;
  // then Create sets it unless the call is empty. If the algorithm cannot run this model, fails
  // with kUnimplemented or with the error that cuDNN returns.
  static Status Create(const GpuQueue& queue, const RnnConfig& config, const SequenceShape& shape,
                       const Choices& choices, std::shared_ptr<DropoutState> dropout,
                       std::shared_ptr<ModelDescriptor>* model, std::shared_ptr<CudnnPlan>* plan);

  ForwardChoice choice() const override {
    return {static_cast<int32_t>(choices_.algorithm), choices_.allow_tf32,
            UsesDropout(config_, choices_.is_training)};
  }
  int64_t ReserveSpaceBytes() const override { return reserve_space_bytes_; }
  int64_t ForwardWorkspaceBytes(const CallOptions& options) const override;
  int64_t BackwardWorkspaceBytes(const CallOptions& options) const override;
  Status Forward(const ForwardBuffers& buffers, const CallOptions& options,
                 const Execution& execution) const override;
  Status Backward(const BackwardBuffers& buffers, const CallOptions& options,
                  const Execution& execution) const override;

 private:
  // Adjacent rows of the batch whose length is 0.
  struct ZeroRows {
    int64_t first;
    int64_t count;
  };
  struct Lengths {
    std::vector<int> clamped;  // [B], at least 1 each, as cuDNN requires
    bool have_padding = false;
    std::vector<ZeroRows> zero_rows;
  };
  // The parts of the workspace. A part that a call does not need is null.
  struct Workspace {
    void* cudnn;
    void* weights;  // cuDNN's weight space, if the parameter buffer is not already in its layout
    void* weight_gradients;
    int32_t* device_lengths;  // [B]
    void* reserve_space;      // a copy, if the caller's must be kept
    // Copies in which rows of length 0 are zero in the first step.
    void* input;
    void* output_backprop;
    // States in cuDNN's order [L * D, B, *]. In the backward pass, final_* are gradients.
    void* initial_h;
    void* initial_c;
    void* final_h;
    void* final_c;
    void* initial_h_backprop;
    void* initial_c_backprop;
  };
  enum class Pass { kForward, kBackward };

  CudnnPlan(GpuRuntime* runtime, const RnnConfig& config, const SequenceShape& shape,
            const Choices& choices, const ParamLayout& layout,
            std::shared_ptr<DropoutState> dropout);

  Status CheckSizes() const;
  Status CheckLimitsOfCudnn() const;
  // Must follow CreateDescriptors, which asks cuDNN for its workspace size.
  Status CheckWorkspace() const;
  Status TooLarge() const;
  Status CreateDescriptors(const GpuQueue& queue);
  Status SetStateDescriptor(const GpuQueue& queue, int64_t width, const TensorDescriptor& target);
  Status SetLengths(const GpuQueue& queue, const std::vector<int>& lengths) const;

  Lengths ReadLengths(const CallOptions& options) const;
  CheckedSize DescribeWorkspace(Pass pass, const CallOptions& options, bool has_zero_lengths,
                                void* memory, Workspace* workspace) const;
  int64_t WorkspaceBytes(Pass pass, const CallOptions& options) const;

  Status QueueForward(const GpuQueue& queue, const ForwardBuffers& buffers,
                      const CallOptions& options, const Lengths& lengths) const;
  Status QueueBackward(const GpuQueue& queue, const BackwardBuffers& buffers,
                       const CallOptions& options, const Lengths& lengths) const;
  Status QueueBackwardData(const GpuQueue& queue, const BackwardBuffers& buffers,
                           const Lengths& lengths, const Workspace& workspace, void* reserve_space,
                           const void** input, const void** initial_h) const;
  Status QueueBackwardWeights(const GpuQueue& queue, const BackwardBuffers& buffers,
                              const Workspace& workspace, void* reserve_space, const void* input,
                              const void* initial_h) const;

  // Stage* prepare an operand of cuDNN and return its address in `result`: `source` if `staging` is
  // null, otherwise `staging`, which they fill. UnstageState copies the state that cuDNN wrote to
  // `staging`, if not null, to `target`.
  Status StageSequence(const GpuQueue& queue, const Lengths& lengths, const void* source,
                       int64_t width, void* staging, const void** result) const;
  Status StageState(const GpuQueue& queue, const Lengths& lengths, const void* source,
                    int64_t width, void* staging, const void** result) const;
  Status StageWeights(const GpuQueue& queue, const void* params, void* staging,
                      const void** result) const;
  Status StageLengths(const GpuQueue& queue, const Lengths& lengths, int32_t* staging) const;
  Status UnstageState(const GpuQueue& queue, int64_t width, const void* staging,
                      void* target) const;

  // For rows of length 0: ClearFirstStep zeroes the first step of `sequence`; PassThroughState
  // copies the state from `source` to `target`.
  Status ClearFirstStep(const GpuQueue& queue, const Lengths& lengths, int64_t width,
                        void* sequence) const;
  Status PassThroughState(const GpuQueue& queue, const Lengths& lengths, int64_t width,
                          const void* source, void* target) const;

  bool is_empty() const { return IsEmpty(shape_); }
  // Returns whether the caller's states are in a different order from cuDNN's.
  bool transposes_states() const { return !shape_.time_major && num_states_ > 1; }
  int64_t state_bytes(int64_t width) const { return num_states_ * shape_.batch_size * width; }

  GpuRuntime* const runtime_;
  const RnnConfig config_;
  const SequenceShape shape_;
  const Choices choices_;
  const ParamLayout layout_;
  const std::shared_ptr<DropoutState> dropout_;
  const std::string description_;
  const int64_t num_states_;  // L * D
  // Bytes of one row of each buffer.
  const int64_t input_width_;
  const int64_t output_width_;
  const int64_t h_width_;
  const int64_t c_width_;

  std::shared_ptr<ModelDescriptor> model_;  // null for an empty call
  RnnDataDescriptor x_;
  RnnDataDescriptor y_;
  TensorDescriptor h_;
  TensorDescriptor c_;
  WeightRegions weights_;
  int64_t cudnn_workspace_bytes_ = 0;
  int64_t reserve_space_bytes_ = 0;

  mutable std::vector<int> lengths_;  // that x_ and y_ are set to; guarded by model_->mutex()
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_CUDNN_PLAN_H_
