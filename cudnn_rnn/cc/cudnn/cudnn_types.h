// Declarations of what this library uses of the CUDA driver and cuDNN, so that a build needs no
// CUDA toolkit. Handles and descriptors are void*, enumerations int, device addresses void* (in
// driver functions: DeviceAddress). tests/cudnn/declarations_check.cc checks all of them against
// NVIDIA's headers.
#ifndef CUDNN_RNN_CC_CUDNN_CUDNN_TYPES_H_
#define CUDNN_RNN_CC_CUDNN_CUDNN_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace cudnn_rnn {

using DeviceAddress = unsigned long long;  // NOLINT: CUdeviceptr

// CUDA driver.
constexpr int kCudaSuccess = 0;
constexpr int kCudaErrorOutOfMemory = 2;
constexpr int kCudaMemoryTypeDevice = 2;
constexpr int kCudaStreamNotCapturing = 0;
constexpr unsigned int kCudaEventWithoutTime = 2;
constexpr int kCudaMultiprocessorCount = 16;  // attributes of a device
constexpr int kCudaComputeCapabilityMajor = 75;
constexpr int kCudaComputeCapabilityMinor = 76;

// CUDA_MEMCPY2D.
struct DriverCopy2d {
  size_t source_x_bytes;
  size_t source_y;
  int source_memory_type;
  const void* source_host;
  DeviceAddress source_device;
  void* source_array;
  size_t source_pitch;
  size_t target_x_bytes;
  size_t target_y;
  int target_memory_type;
  void* target_host;
  DeviceAddress target_device;
  void* target_array;
  size_t target_pitch;
  size_t width_bytes;
  size_t height;
};

// X(symbol, parameters) for each libcuda.so.1 function in use; each returns CUresult.
#define CUDNN_RNN_DRIVER_FUNCTIONS(X)                                                             \
  X(cuInit, (unsigned int flags))                                                                 \
  X(cuDriverGetVersion, (int* version))                                                           \
  X(cuGetErrorString, (int error, const char** text))                                             \
  X(cuStreamGetCtx, (void* stream, void** context))                                               \
  X(cuStreamIsCapturing, (void* stream, int* status))                                             \
  X(cuStreamSynchronize, (void* stream))                                                          \
  X(cuStreamWaitEvent, (void* stream, void* event, unsigned int flags))                           \
  X(cuCtxPushCurrent_v2, (void* context))                                                         \
  X(cuCtxPopCurrent_v2, (void** context))                                                         \
  X(cuCtxGetDevice, (int* device))                                                                \
  X(cuDeviceGetName, (char* name, int bytes, int device))                                         \
  X(cuDeviceGetAttribute, (int* value, int attribute, int device))                                \
  X(cuDeviceTotalMem_v2, (size_t * bytes, int device))                                            \
  X(cuMemAlloc_v2, (DeviceAddress * pointer, size_t bytes))                                       \
  X(cuMemFree_v2, (DeviceAddress pointer))                                                        \
  X(cuMemsetD8Async, (DeviceAddress target, unsigned char value, size_t bytes, void* stream))     \
  X(cuMemcpyDtoDAsync_v2,                                                                         \
    (DeviceAddress target, DeviceAddress source, size_t bytes, void* stream))                     \
  X(cuMemcpyHtoDAsync_v2, (DeviceAddress target, const void* source, size_t bytes, void* stream)) \
  X(cuMemcpyDtoHAsync_v2, (void* target, DeviceAddress source, size_t bytes, void* stream))       \
  X(cuMemcpy2DAsync_v2, (const DriverCopy2d* copy, void* stream))                                 \
  X(cuEventCreate, (void** event, unsigned int flags))                                            \
  X(cuEventDestroy_v2, (void* event))                                                             \
  X(cuEventRecord, (void* event, void* stream))                                                   \
  X(cuEventSynchronize, (void* event))                                                            \
  X(cuEventElapsedTime, (float* milliseconds, void* start, void* end))

// cuDNN 8.0, the first version with the RNN API in use.
constexpr size_t kMinCudnnVersion = 8000;
// From this version on, the device copy of the lengths may be null.
constexpr size_t kCudnnVersionWithoutDeviceLengths = 8901;
// cuDNN 9.13, the first version whose RNNs support bfloat16.
constexpr size_t kMinCudnnVersionForBfloat16 = 91300;

// Statuses of cuDNN 8, which cuDNN 9 has renumbered.
constexpr int kCudnnSuccess = 0;
constexpr int kCudnn8NotInitialized = 1;
constexpr int kCudnn8AllocFailed = 2;
constexpr int kCudnn8BadParam = 3;
constexpr int kCudnn8InvalidValue = 5;
constexpr int kCudnn8ArchMismatch = 6;
constexpr int kCudnn8NotSupported = 9;
constexpr int kCudnn8LicenseError = 10;
constexpr int kCudnn8RuntimePrerequisiteMissing = 11;
constexpr int kCudnn8VersionMismatch = 14;

// Statuses of cuDNN 9, and groups of statuses: the thousands of their numbers.
constexpr int kCudnnNotInitialized = 1001;
constexpr int kCudnnSublibraryVersionMismatch = 1002;
constexpr int kCudnnLicenseError = 1005;
constexpr int kCudnnSublibraryLoadingFailed = 1008;
constexpr int kCudnnBadParamGroup = 2;
constexpr int kCudnnNotSupportedGroup = 3;
constexpr int kCudnnIncompatibleDriver = 3005;
constexpr int kCudnnIncompatibleCudart = 3006;
constexpr int kCudnnRuntimePrerequisiteMissing = 3008;
constexpr int kCudnnSublibraryUnavailable = 3009;
constexpr int kCudnnHostAllocationFailed = 4003;
constexpr int kCudnnDeviceAllocationFailed = 4004;

constexpr int kCudnnDataFloat = 0;
constexpr int kCudnnDataDouble = 1;
constexpr int kCudnnDataHalf = 2;
constexpr int kCudnnDataBfloat16 = 9;

constexpr int kCudnnDefaultMath = 0;
constexpr int kCudnnTensorOpMath = 1;
constexpr int kCudnnFmaMath = 3;

constexpr int kCudnnRnnRelu = 0;
constexpr int kCudnnRnnTanh = 1;
constexpr int kCudnnLstm = 2;
constexpr int kCudnnGru = 3;

constexpr int kCudnnDoubleBias = 2;
constexpr int kCudnnUnidirectional = 0;
constexpr int kCudnnBidirectional = 1;
constexpr int kCudnnLinearInput = 0;
constexpr int kCudnnSkipInput = 1;

constexpr int kCudnnAlgorithmStandard = 0;
constexpr int kCudnnAlgorithmPersistStatic = 1;
constexpr int kCudnnAlgorithmPersistDynamic = 2;
constexpr int kCudnnAlgorithmPersistStaticSmallH = 3;

constexpr int kCudnnLayoutTimeMajorPadded = 0;   // SEQ_MAJOR_UNPACKED
constexpr int kCudnnLayoutTimeMajorPacked = 1;   // SEQ_MAJOR_PACKED
constexpr int kCudnnLayoutBatchMajorPadded = 2;  // BATCH_MAJOR_UNPACKED

constexpr unsigned int kCudnnPaddedIoDisabled = 0;
constexpr unsigned int kCudnnPaddedIoEnabled = 1;

constexpr int kCudnnForwardInference = 0;
constexpr int kCudnnForwardTraining = 1;
constexpr int kCudnnWeightGradientAdd = 0;

// X(symbol, parameters) for each libcudnn function in use that returns cudnnStatus_t. GpuLibraries
// also has cudnnGetVersion and cudnnGetErrorString, which return other types.
#define CUDNN_RNN_CUDNN_FUNCTIONS(X)                                                               \
  X(cudnnCreate, (void** handle))                                                                  \
  X(cudnnDestroy, (void* handle))                                                                  \
  X(cudnnSetStream, (void* handle, void* stream))                                                  \
  X(cudnnCreateTensorDescriptor, (void** descriptor))                                              \
  X(cudnnDestroyTensorDescriptor, (void* descriptor))                                              \
  X(cudnnSetTensorNdDescriptor, (void* descriptor, int data_type, int num_dimensions,              \
                                 const int* dimensions, const int* strides))                       \
  X(cudnnGetTensorNdDescriptor, (void* descriptor, int max_dimensions, int* data_type,             \
                                 int* num_dimensions, int* dimensions, int* strides))              \
  X(cudnnCreateDropoutDescriptor, (void** descriptor))                                             \
  X(cudnnDestroyDropoutDescriptor, (void* descriptor))                                             \
  X(cudnnDropoutGetStatesSize, (void* handle, size_t* bytes))                                      \
  X(cudnnSetDropoutDescriptor, (void* descriptor, void* handle, float dropout, void* states,       \
                                size_t states_bytes, unsigned long long seed))                     \
  X(cudnnRestoreDropoutDescriptor, (void* descriptor, void* handle, float dropout, void* states,   \
                                    size_t states_bytes, unsigned long long seed))                 \
  X(cudnnCreateRNNDescriptor, (void** descriptor))                                                 \
  X(cudnnDestroyRNNDescriptor, (void* descriptor))                                                 \
  X(cudnnSetRNNDescriptor_v8,                                                                      \
    (void* descriptor, int algorithm, int cell_mode, int bias_mode, int direction_mode,            \
     int input_mode, int data_type, int math_precision, int math_type, int32_t input_size,         \
     int32_t hidden_size, int32_t projection_size, int32_t num_layers, void* dropout_descriptor,   \
     uint32_t auxiliary_flags))                                                                    \
  X(cudnnBuildRNNDynamic, (void* handle, void* rnn_descriptor, int batch_size))                    \
  X(cudnnCreateRNNDataDescriptor, (void** descriptor))                                             \
  X(cudnnDestroyRNNDataDescriptor, (void* descriptor))                                             \
  X(cudnnSetRNNDataDescriptor,                                                                     \
    (void* descriptor, int data_type, int layout, int max_length, int batch_size, int vector_size, \
     const int* lengths, void* padding_fill))                                                      \
  X(cudnnGetRNNTempSpaceSizes,                                                                     \
    (void* handle, void* rnn_descriptor, int forward_mode, void* x_descriptor,                     \
     size_t* workspace_bytes, size_t* reserve_space_bytes))                                        \
  X(cudnnGetRNNWeightSpaceSize, (void* handle, void* rnn_descriptor, size_t* bytes))               \
  X(cudnnGetRNNWeightParams,                                                                       \
    (void* handle, void* rnn_descriptor, int32_t pseudo_layer, size_t weight_space_bytes,          \
     const void* weight_space, int32_t linear_layer, void* matrix_descriptor,                      \
     void** matrix_address, void* bias_descriptor, void** bias_address))                           \
  X(cudnnRNNForward,                                                                               \
    (void* handle, void* rnn_descriptor, int forward_mode, const int32_t* device_lengths,          \
     void* x_descriptor, const void* x, void* y_descriptor, void* y, void* h_descriptor,           \
     const void* hx, void* hy, void* c_descriptor, const void* cx, void* cy,                       \
     size_t weight_space_bytes, const void* weight_space, size_t workspace_bytes, void* workspace, \
     size_t reserve_space_bytes, void* reserve_space))                                             \
  X(cudnnRNNBackwardData_v8,                                                                       \
    (void* handle, void* rnn_descriptor, const int32_t* device_lengths, void* y_descriptor,        \
     const void* y, const void* dy, void* x_descriptor, void* dx, void* h_descriptor,              \
     const void* hx, const void* dhy, void* dhx, void* c_descriptor, const void* cx,               \
     const void* dcy, void* dcx, size_t weight_space_bytes, const void* weight_space,              \
     size_t workspace_bytes, void* workspace, size_t reserve_space_bytes, void* reserve_space))    \
  X(cudnnRNNBackwardWeights_v8,                                                                    \
    (void* handle, void* rnn_descriptor, int gradient_mode, const int32_t* device_lengths,         \
     void* x_descriptor, const void* x, void* h_descriptor, const void* hx, void* y_descriptor,    \
     const void* y, size_t weight_space_bytes, void* weight_space_gradient,                        \
     size_t workspace_bytes, void* workspace, size_t reserve_space_bytes, void* reserve_space))

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_CUDNN_TYPES_H_
