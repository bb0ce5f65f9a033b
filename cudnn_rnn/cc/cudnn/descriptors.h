// Owners of cuDNN's descriptors, which destroy them. Creating and setting a descriptor is work on
// the host only, except for cudnnSetDropoutDescriptor with states. Destroying one may release what
// belongs to a device, such as compiled kernels, and happens on any thread.
#ifndef CUDNN_RNN_CC_CUDNN_DESCRIPTORS_H_
#define CUDNN_RNN_CC_CUDNN_DESCRIPTORS_H_

#include "cudnn_rnn/cc/cudnn/gpu_queue.h"

namespace cudnn_rnn {

// `create` and `destroy` are the members of GpuLibraries that create and destroy the descriptor.
template <int (*GpuLibraries::*create)(void**), int (*GpuLibraries::*destroy)(void*)>
class Descriptor {
 public:
  Descriptor() = default;
  ~Descriptor() {
    if (descriptor_ == nullptr) return;
    const ContextForRelease context(*libraries_, context_);
    if (context.is_current()) (libraries_->*destroy)(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Status Create(const GpuQueue& queue, const char* function) {
    libraries_ = &queue.libraries();
    context_ = queue.context();
    return queue.CheckCudnnStatus((libraries_->*create)(&descriptor_), function);
  }
  void* get() const { return descriptor_; }

 private:
  const GpuLibraries* libraries_ = nullptr;
  void* context_ = nullptr;
  void* descriptor_ = nullptr;
};

using TensorDescriptor = Descriptor<&GpuLibraries::cudnnCreateTensorDescriptor,
                                    &GpuLibraries::cudnnDestroyTensorDescriptor>;
using DropoutDescriptor = Descriptor<&GpuLibraries::cudnnCreateDropoutDescriptor,
                                     &GpuLibraries::cudnnDestroyDropoutDescriptor>;
using RnnDescriptor =
    Descriptor<&GpuLibraries::cudnnCreateRNNDescriptor, &GpuLibraries::cudnnDestroyRNNDescriptor>;
using RnnDataDescriptor = Descriptor<&GpuLibraries::cudnnCreateRNNDataDescriptor,
                                     &GpuLibraries::cudnnDestroyRNNDataDescriptor>;

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_DESCRIPTORS_H_
