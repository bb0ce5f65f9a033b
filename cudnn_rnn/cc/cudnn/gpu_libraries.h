// The CUDA driver and cuDNN, opened at run time: one table of function pointers.
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
  // The reason of this thread's last error; from cuDNN 9.0 on, null before.
  void (*cudnnGetLastErrorString)(char* message, size_t max_bytes) = nullptr;

  std::string driver_path;  // paths that the loader chose
  std::string cudnn_path;
  int driver_version = 0;    // 12080: CUDA 12.8
  size_t cudnn_version = 0;  // 8905: 8.9.5; 90300: 9.3.0
};

// Where OpenGpuLibraries looks.
struct LibrarySearch {
  // Name of the driver library.
  std::string driver_name = "libcuda.so.1";
  // If not empty, the only file to try as cuDNN.
  std::string cudnn_file;
  // Names of the cuDNN library, in order of preference.
  std::vector<std::string> cudnn_names = {"libcudnn.so.9", "libcudnn.so.8"};
  // Library folders of the nvidia-cudnn wheels.
  std::vector<std::string> wheel_folders;
};

// Both fail with kUnavailable and never unload a library. Neither initializes CUDA, so that the
// program may still choose devices and fork.

Status OpenDriver(const LibrarySearch& search, GpuLibraries* libraries);

// Opens the library that the process has already loaded, one in a folder of LD_LIBRARY_PATH, one in
// the wheels' folders, or the one that the loader finds, in this order. The message of an error
// lists each attempt and why it failed: no library, a version that is too old, a missing function,
// a missing part of cuDNN. (cuDNN itself loads its parts at the first call that needs them, and
// ends the process if one is missing. Even cudnnGetVersion does, so the parts are opened first.)
//
// A cuDNN that this function loads is also what later dlopen calls for its name return, in the
// whole process. A framework that is to choose its cuDNN itself must have loaded it before.
Status OpenCudnn(const LibrarySearch& search, GpuLibraries* libraries);

Status OpenGpuLibraries(const LibrarySearch& search, std::unique_ptr<GpuLibraries>* libraries);

// Calls cuInit, for programs without a framework that does. Fails if there is no GPU.
Status InitializeDriver(const GpuLibraries& libraries);

// Returns text such as "9.3.0".
std::string CudnnVersionText(size_t version);
// Returns text such as "12.8".
std::string DriverVersionText(int version);

// Returns the code for an error status of cuDNN 8 or 9.
StatusCode StatusCodeOfCudnn(int status);

// Convert the `status` that `call` returned; the error message names the call, the status and the
// activity `what`.
Status CheckDriver(const GpuLibraries& libraries, int status, const char* call,
                   const std::string& what);
Status CheckCudnn(const GpuLibraries& libraries, int status, const char* call,
                  const std::string& what);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CUDNN_GPU_LIBRARIES_H_
