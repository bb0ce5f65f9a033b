// Checks cudnn_types.h against NVIDIA's cuda.h and cudnn.h: this file compiles only if every
// function, constant and structure matches the headers. scripts/check_declarations.sh compiles it;
// nothing is run.

#include <cuda.h>
#include <cudnn.h>

#include <cstddef>
#include <type_traits>

#include "cudnn_rnn/cc/cudnn/cudnn_types.h"

namespace cudnn_rnn {
namespace {

// The type that cudnn_types.h declares for NVIDIA's T: int for enumerations, void* for handles and
// descriptors (pointers to opaque structures), otherwise T.
template <typename T, typename = void>
struct Declared {
  using type = T;
};
template <typename T>
struct Declared<T, typename std::enable_if<std::is_enum<T>::value>::type> {
  static_assert(sizeof(T) == sizeof(int), "enumerations are passed as int");
  using type = int;
};
template <>
struct Declared<CUDA_MEMCPY2D> {
  using type = DriverCopy2d;
};
template <typename T>
struct IsOpaque
    : std::integral_constant<
          bool, std::is_class<T>::value &&
                    !std::is_same<CUDA_MEMCPY2D, typename std::remove_cv<T>::type>::value> {};
template <typename T>
struct Declared<T*, typename std::enable_if<IsOpaque<T>::value>::type> {
  using type = void*;
};
template <typename T>
struct Declared<T*, typename std::enable_if<!IsOpaque<T>::value && !std::is_const<T>::value &&
                                            !std::is_function<T>::value>::type> {
  using type = typename Declared<T>::type*;
};
template <typename T>
struct Declared<const T*, typename std::enable_if<!IsOpaque<T>::value>::type> {
  using type = const typename Declared<T>::type*;
};
template <typename Result, typename... Parameters>
struct Declared<Result(Parameters...)> {
  using type = typename Declared<Result>::type(typename Declared<Parameters>::type...);
};

#define CHECK_FUNCTION(symbol, parameters)                                                        \
  static_assert(std::is_same<typename Declared<decltype(::symbol)>::type, int parameters>::value, \
                #symbol " differs from NVIDIA's header");
CUDNN_RNN_DRIVER_FUNCTIONS(CHECK_FUNCTION)
CUDNN_RNN_CUDNN_FUNCTIONS(CHECK_FUNCTION)
#undef CHECK_FUNCTION
static_assert(std::is_same<decltype(::cudnnGetVersion), size_t()>::value, "cudnnGetVersion");
static_assert(
    std::is_same<typename Declared<decltype(::cudnnGetErrorString)>::type, const char*(int)>::value,
    "cudnnGetErrorString");
#if CUDNN_MAJOR >= 9
static_assert(std::is_same<decltype(::cudnnGetLastErrorString), void(char*, size_t)>::value,
              "cudnnGetLastErrorString");
#endif
static_assert(std::is_same<DeviceAddress, CUdeviceptr>::value, "DeviceAddress");

#define CHECK_VALUE(ours, nvidias) \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(nvidias), #ours)
CHECK_VALUE(kCudaSuccess, CUDA_SUCCESS);
CHECK_VALUE(kCudaErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
CHECK_VALUE(kCudaMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
CHECK_VALUE(kCudaStreamNotCapturing, CU_STREAM_CAPTURE_STATUS_NONE);
CHECK_VALUE(kCudaEventWithoutTime, CU_EVENT_DISABLE_TIMING);
CHECK_VALUE(kCudaMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
CHECK_VALUE(kCudaComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
CHECK_VALUE(kCudaComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);

CHECK_VALUE(kCudnnSuccess, CUDNN_STATUS_SUCCESS);
#if CUDNN_MAJOR >= 9
CHECK_VALUE(kCudnnNotInitialized, CUDNN_STATUS_NOT_INITIALIZED);
CHECK_VALUE(kCudnnSublibraryVersionMismatch, CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH);
CHECK_VALUE(kCudnnLicenseError, CUDNN_STATUS_LICENSE_ERROR);
CHECK_VALUE(kCudnnSublibraryLoadingFailed, CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED);
CHECK_VALUE(kCudnnBadParamGroup * 1000, CUDNN_STATUS_BAD_PARAM);
CHECK_VALUE(kCudnnNotSupportedGroup * 1000, CUDNN_STATUS_NOT_SUPPORTED);
CHECK_VALUE(kCudnnIncompatibleDriver, CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER);
CHECK_VALUE(kCudnnIncompatibleCudart, CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART);
CHECK_VALUE(kCudnnRuntimePrerequisiteMissing,
            CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING);
CHECK_VALUE(kCudnnSublibraryUnavailable, CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE);
CHECK_VALUE(kCudnnHostAllocationFailed, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
CHECK_VALUE(kCudnnDeviceAllocationFailed, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
#else
CHECK_VALUE(kCudnn8NotInitialized, CUDNN_STATUS_NOT_INITIALIZED);
CHECK_VALUE(kCudnn8AllocFailed, CUDNN_STATUS_ALLOC_FAILED);
CHECK_VALUE(kCudnn8BadParam, CUDNN_STATUS_BAD_PARAM);
CHECK_VALUE(kCudnn8InvalidValue, CUDNN_STATUS_INVALID_VALUE);
CHECK_VALUE(kCudnn8ArchMismatch, CUDNN_STATUS_ARCH_MISMATCH);
CHECK_VALUE(kCudnn8NotSupported, CUDNN_STATUS_NOT_SUPPORTED);
CHECK_VALUE(kCudnn8LicenseError, CUDNN_STATUS_LICENSE_ERROR);
CHECK_VALUE(kCudnn8RuntimePrerequisiteMissing, CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING);
CHECK_VALUE(kCudnn8VersionMismatch, CUDNN_STATUS_VERSION_MISMATCH);
#endif
CHECK_VALUE(kCudnnDataFloat, CUDNN_DATA_FLOAT);
CHECK_VALUE(kCudnnDataDouble, CUDNN_DATA_DOUBLE);
CHECK_VALUE(kCudnnDataHalf, CUDNN_DATA_HALF);
CHECK_VALUE(kCudnnDataBfloat16, CUDNN_DATA_BFLOAT16);
CHECK_VALUE(kCudnnDefaultMath, CUDNN_DEFAULT_MATH);
CHECK_VALUE(kCudnnTensorOpMath, CUDNN_TENSOR_OP_MATH);
CHECK_VALUE(kCudnnFmaMath, CUDNN_FMA_MATH);
CHECK_VALUE(kCudnnRnnRelu, CUDNN_RNN_RELU);
CHECK_VALUE(kCudnnRnnTanh, CUDNN_RNN_TANH);
CHECK_VALUE(kCudnnLstm, CUDNN_LSTM);
CHECK_VALUE(kCudnnGru, CUDNN_GRU);
CHECK_VALUE(kCudnnDoubleBias, CUDNN_RNN_DOUBLE_BIAS);
CHECK_VALUE(kCudnnUnidirectional, CUDNN_UNIDIRECTIONAL);
CHECK_VALUE(kCudnnBidirectional, CUDNN_BIDIRECTIONAL);
CHECK_VALUE(kCudnnLinearInput, CUDNN_LINEAR_INPUT);
CHECK_VALUE(kCudnnSkipInput, CUDNN_SKIP_INPUT);
CHECK_VALUE(kCudnnAlgorithmStandard, CUDNN_RNN_ALGO_STANDARD);
CHECK_VALUE(kCudnnAlgorithmPersistStatic, CUDNN_RNN_ALGO_PERSIST_STATIC);
CHECK_VALUE(kCudnnAlgorithmPersistDynamic, CUDNN_RNN_ALGO_PERSIST_DYNAMIC);
CHECK_VALUE(kCudnnAlgorithmPersistStaticSmallH, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H);
CHECK_VALUE(kCudnnLayoutTimeMajorPadded, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED);
CHECK_VALUE(kCudnnLayoutTimeMajorPacked, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED);
CHECK_VALUE(kCudnnLayoutBatchMajorPadded, CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED);
CHECK_VALUE(kCudnnPaddedIoDisabled, CUDNN_RNN_PADDED_IO_DISABLED);
CHECK_VALUE(kCudnnPaddedIoEnabled, CUDNN_RNN_PADDED_IO_ENABLED);
CHECK_VALUE(kCudnnForwardInference, CUDNN_FWD_MODE_INFERENCE);
CHECK_VALUE(kCudnnForwardTraining, CUDNN_FWD_MODE_TRAINING);
CHECK_VALUE(kCudnnWeightGradientAdd, CUDNN_WGRAD_MODE_ADD);
#undef CHECK_VALUE

static_assert(sizeof(DriverCopy2d) == sizeof(CUDA_MEMCPY2D), "CUDA_MEMCPY2D");
static_assert(alignof(DriverCopy2d) == alignof(CUDA_MEMCPY2D), "CUDA_MEMCPY2D");
#define CHECK_MEMBER(ours, nvidias)                                                             \
  static_assert(offsetof(DriverCopy2d, ours) == offsetof(CUDA_MEMCPY2D, nvidias), #ours);       \
  static_assert(std::is_same<decltype(DriverCopy2d::ours),                                      \
                             typename Declared<decltype(CUDA_MEMCPY2D::nvidias)>::type>::value, \
                #ours)
CHECK_MEMBER(source_x_bytes, srcXInBytes);
CHECK_MEMBER(source_y, srcY);
CHECK_MEMBER(source_memory_type, srcMemoryType);
CHECK_MEMBER(source_host, srcHost);
CHECK_MEMBER(source_device, srcDevice);
CHECK_MEMBER(source_array, srcArray);
CHECK_MEMBER(source_pitch, srcPitch);
CHECK_MEMBER(target_x_bytes, dstXInBytes);
CHECK_MEMBER(target_y, dstY);
CHECK_MEMBER(target_memory_type, dstMemoryType);
CHECK_MEMBER(target_host, dstHost);
CHECK_MEMBER(target_device, dstDevice);
CHECK_MEMBER(target_array, dstArray);
CHECK_MEMBER(target_pitch, dstPitch);
CHECK_MEMBER(width_bytes, WidthInBytes);
CHECK_MEMBER(height, Height);
#undef CHECK_MEMBER

}  // namespace
}  // namespace cudnn_rnn
