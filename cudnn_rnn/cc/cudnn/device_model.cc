#include "cudnn_rnn/cc/cudnn/device_model.h"

namespace cudnn_rnn {

Status ReadDeviceModel(const GpuQueue& queue, DeviceModel* device) {
  int number = 0;
  char name[256] = "";
  size_t memory_bytes = 0;
  CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(queue, cuCtxGetDevice, &number));
  CUDNN_RNN_RETURN_IF_ERROR(
      CUDNN_RNN_DRIVER_CALL(queue, cuDeviceGetName, name, static_cast<int>(sizeof(name)), number));
  CUDNN_RNN_RETURN_IF_ERROR(
      CUDNN_RNN_DRIVER_CALL(queue, cuDeviceTotalMem_v2, &memory_bytes, number));
  const struct {
    int attribute;
    int* value;
  } attributes[] = {{kCudaComputeCapabilityMajor, &device->compute_capability_major},
                    {kCudaComputeCapabilityMinor, &device->compute_capability_minor},
                    {kCudaMultiprocessorCount, &device->num_multiprocessors}};
  for (const auto& attribute : attributes) {
    CUDNN_RNN_RETURN_IF_ERROR(CUDNN_RNN_DRIVER_CALL(queue, cuDeviceGetAttribute, attribute.value,
                                                    attribute.attribute, number));
  }
  device->name = name;
  device->memory_bytes = static_cast<int64_t>(memory_bytes);
  return Status();
}

}  // namespace cudnn_rnn
