// CUDA's driver and cuDNN, opened at run time: one table of function pointers.
#ifndef CUDNN_RNN_CC_CUDNN_GPU_LIBRARIES_H_
#define CUDNN_RNN_CC_CUDNN_GPU_LIBRARIES_H_

#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cudnn/cudnn_types.h"

namespace cudnn_rnn {

struct GpuLibraries {
#define CUDNN_RNN_DECLARE(symbol, parameters) int(*symbol) parameters = nullptr;
  CUDNN_RNN_DRIVER_FUNCTIONS(CUDNN_RNN_DECLARE)
  CUDNN_RNN_CUDNN_FUNCTIONS(CUDNN_RNN_DECLARE)
#undef CUDNN_RNN_DECLARE
  size_t (*cudnnGetVersion)() = nullptr;
  const char* (*cudnnGetErrorString)(int status) = nullptr;

  std::string driver_path;  // as the loader found them
  std::string cudnn_path;
  int driver_version = 0;    // 12080: CUDA 12.8
  size_t cudnn_version = 0;  // 8905: 8.9.5; 90300: 9.3.0
};

// Where to look.
struct LibrarySearch {
  // Of the driver, for the loader.
  std::string driver_name = "libcuda.so.1";
  // If not empty, this file and no other is cuDNN.
  std::string cudnn_file;
  // Names of cuDNN in order of preference.
  std::vector<std::string> cudnn_names = {"libcudnn.so.9", "libcudnn.so.8"};
  // Folders of the nvidia-cudnn wheels' libraries.
  std::vector<std::string> wheel_folders;
};

// Opens the driver, then cuDNN: what the process has loaded already, then the wheels' folders, then
// the loader's own path. Fails with kUnavailable and a text that says what was tried where, and
// why each failed: no driver, no library, too old a version, a missing function.
// Only opens: CUDA is not initialised, so the program may still choose devices and fork. Nothing is
// ever unloaded.
Status OpenGpuLibraries(const LibrarySearch& search, std::unique_ptr<GpuLibraries>* libraries);

// cuInit, for programs without a framework that has done it. Fails where there is no GPU.
Status InitializeDriver(const GpuLibraries& libraries);

// "9.3.0"
std::string CudnnVersionText(size_t version);
// "12.8"
std::string DriverVersionText(int version);

// Of a call that returned `status`: names the call, the status and `what` was being done.
Status CheckDriver(const GpuLibraries& libraries, int status, const char* call,
                   const std::string& what);
Status CheckCudnn(const GpuLibraries& libraries, int status, const char* call,
                  const std::string& what);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_GPU_LIBRARIES_H_
