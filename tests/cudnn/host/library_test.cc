// Tests that OpenCudnn, and what reads statuses and errors, fit the real cuDNN.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/core/testing.h"
#include "tests/cudnn/host/real_cudnn.h"
#include "tests/cudnn/mock/functions.h"

namespace cudnn_rnn {
namespace {

bool IsCudnn8() { return RealCudnn().cudnn_version < 90000; }

TEST(ARealLibraryWithoutItsPartsIsAnError) {  // and does not end the process
  const std::string path = RealCudnnPath();
  const std::string file = path.substr(path.rfind('/') + 1);
  const bool is_cudnn_8 = file == "libcudnn.so.8";
  EXPECT(dlopen(is_cudnn_8 ? "libcudnn_adv_infer.so.8" : "libcudnn_adv.so.9",
                RTLD_NOW | RTLD_NOLOAD) == nullptr,
         "a test of this process has opened the parts; run this one with --only");
  char folder[] = "/tmp/cudnn_without_parts_XXXXXX";
  EXPECT(mkdtemp(folder) != nullptr);
  const std::string copy = std::string(folder) + "/" + file;
  std::ofstream(copy, std::ios::binary) << std::ifstream(path, std::ios::binary).rdbuf();
  LibrarySearch search;
  search.cudnn_file = copy;
  GpuLibraries libraries;
  const Status status = OpenCudnn(search, &libraries);
  EXPECT(status.code() == StatusCode::kUnavailable, static_cast<int>(status.code()));
  EXPECT_ERROR(status, copy.c_str(), "libcudnn_adv", "which computes RNNs, cannot be opened",
               "doctor");
  std::remove(copy.c_str());
  rmdir(folder);
}

TEST(TheRealVersionIsThatOfTheWheel) {
  const std::string version = CudnnVersionText(RealCudnn().cudnn_version);
  EXPECT(RealCudnnPath().find("/" + version + ".") != std::string::npos, version, " in ",
         RealCudnnPath());
  EXPECT((RealCudnn().cudnnGetLastErrorString == nullptr) == IsCudnn8());
}

TEST(StatusesHaveTheRealNames) {
  const struct {
    int cudnn_8, cudnn_9;  // -1: only in the other version
    const char* name;
  } statuses[] = {
      {kCudnnSuccess, kCudnnSuccess, "SUCCESS"},
      {kCudnn8NotInitialized, kCudnnNotInitialized, "NOT_INITIALIZED"},
      {kCudnn8AllocFailed, -1, "ALLOC_FAILED"},
      {kCudnn8BadParam, 1000 * kCudnnBadParamGroup, "BAD_PARAM"},
      {kCudnn8InvalidValue, -1, "INVALID_VALUE"},
      {kCudnn8ArchMismatch, -1, "ARCH_MISMATCH"},
      {kCudnn8NotSupported, 1000 * kCudnnNotSupportedGroup, "NOT_SUPPORTED"},
      {kCudnn8LicenseError, kCudnnLicenseError, "LICENSE_ERROR"},
      {kCudnn8RuntimePrerequisiteMissing, -1, "RUNTIME_PREREQUISITE_MISSING"},
      {kCudnn8VersionMismatch, -1, "VERSION_MISMATCH"},
      {-1, kCudnnSublibraryVersionMismatch, "SUBLIBRARY_VERSION_MISMATCH"},
      {-1, kCudnnSublibraryLoadingFailed, "SUBLIBRARY_LOADING_FAILED"},
      {-1, kCudnnIncompatibleDriver, "NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER"},
      {-1, kCudnnIncompatibleCudart, "NOT_SUPPORTED_INCOMPATIBLE_CUDART"},
      {-1, kCudnnRuntimePrerequisiteMissing, "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING"},
      {-1, kCudnnSublibraryUnavailable, "NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"},
      {-1, kCudnnHostAllocationFailed, "INTERNAL_ERROR_HOST_ALLOCATION_FAILED"},
      {-1, kCudnnDeviceAllocationFailed, "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"},
  };
  for (const auto& test : statuses) {
    const int status = IsCudnn8() ? test.cudnn_8 : test.cudnn_9;
    if (status < 0) continue;
    // Unknown to cuDNN 9.1.
    if (status == kCudnnSublibraryLoadingFailed && RealCudnn().cudnn_version < 90300) continue;
    const std::string name = RealCudnn().cudnnGetErrorString(status);
    EXPECT(name == std::string("CUDNN_STATUS_") + test.name, status, " is ", name);
  }
}

TEST(TheMockNamesItsStatusesLikeTheRealLibrary) {
  MockRealVersion();
  for (const int failure :
       {MOCK_OUT_OF_MEMORY, MOCK_NOT_SUPPORTED, MOCK_EXECUTION_FAILED, MOCK_INTERNAL_ERROR}) {
    void* descriptor;
    mock_fail_call(1, failure);
    const int status = cudnnCreateRNNDescriptor(&descriptor);
    EXPECT(status != 0);
    EXPECT(std::string(cudnnGetErrorString(status)) == RealCudnn().cudnnGetErrorString(status),
           status, " is ", RealCudnn().cudnnGetErrorString(status));
  }
  const int bad_parameter = cudnnCreateRNNDescriptor(nullptr);
  EXPECT(std::string(RealCudnn().cudnnGetErrorString(bad_parameter)) == "CUDNN_STATUS_BAD_PARAM");
  EXPECT(std::string(cudnnGetErrorString(bad_parameter)) == "CUDNN_STATUS_BAD_PARAM");
  mock_reset();
}

TEST(ErrorsHaveTheRealReason) {
  void* descriptor = nullptr;
  const GpuLibraries& real = RealCudnn();
  EXPECT(real.cudnnCreateRNNDataDescriptor(&descriptor) == 0);
  const int lengths[] = {5, 6};
  const int refused = real.cudnnSetRNNDataDescriptor(
      descriptor, kCudnnDataFloat, kCudnnLayoutTimeMajorPadded, 5, 2, 3, lengths, nullptr);
  const Status status = CheckCudnn(real, refused, "cudnnSetRNNDataDescriptor", "testing");
  EXPECT(status.code() == StatusCode::kInvalidArgument, static_cast<int>(status.code()));
  const std::string version = CudnnVersionText(real.cudnn_version);
  EXPECT_ERROR(status, "CUDNN_STATUS_BAD_PARAM", version.c_str());
  const bool has_reason = status.message().find(" cuDNN says: ") != std::string::npos;
  EXPECT(has_reason == !IsCudnn8(), status.message());
  EXPECT(real.cudnnDestroyRNNDataDescriptor(descriptor) == 0);
}

}  // namespace
}  // namespace cudnn_rnn
