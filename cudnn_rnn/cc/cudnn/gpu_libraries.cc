#include "cudnn_rnn/cc/cudnn/gpu_libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>

namespace cudnn_rnn {
namespace {

constexpr char kInstallationAdvice[] =
    " `python -m cudnn_rnn doctor` reports which GPU libraries are missing or do not fit together.";

std::string LastLoaderError() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

// Returns the loader's record of an open library, null if there is none.
const link_map* MapOf(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map : nullptr;
}

// Returns the path of the file that the loader chose.
std::string PathOf(void* library, const std::string& name) {
  const link_map* const map = MapOf(library);
  return map == nullptr || map->l_name[0] == '\0' ? name : map->l_name;
}

// Returns the SONAME, the name that an open library gives itself; empty without one.
std::string SonameOf(void* library) {
  const link_map* const map = MapOf(library);
  if (map == nullptr || map->l_ld == nullptr) return "";
  uintptr_t strings = 0, soname = 0;
  bool has_soname = false;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) strings = entry->d_un.d_ptr;
    if (entry->d_tag != DT_SONAME) continue;
    soname = entry->d_un.d_val;
    has_soname = true;
  }
  if (!has_soname || strings == 0) return "";
  // Some loaders leave the address of the strings relative to that of the library.
  if (strings < map->l_addr) strings += map->l_addr;
  return reinterpret_cast<const char*>(strings + soname);
}

// Returns 9 for "libcudnn.so.9", and 0 for a name without a number.
int MajorVersionOf(const std::string& soname) {
  const size_t suffix = soname.find(".so.");
  if (suffix == std::string::npos) return 0;
  return static_cast<int>(std::strtol(soname.c_str() + suffix + 4, nullptr, 10));
}

template <typename Function>
Status FindFunction(void* library, const std::string& path, const char* symbol,
                    Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (*function != nullptr) return Status();
  return Status(
      StatusCode::kUnavailable,
      Concatenate(path, " has no function ", symbol, "; it is another library, or it is damaged."));
}

// Returns the non-empty parts of the environment variable LD_LIBRARY_PATH.
std::vector<std::string> FoldersOfTheEnvironment() {
  const char* const text = std::getenv("LD_LIBRARY_PATH");
  std::vector<std::string> folders(1);
  for (const char* c = text == nullptr ? "" : text; *c != '\0'; ++c) {
    if (*c == ':' || *c == ';') {
      folders.emplace_back();
    } else {
      folders.back() += *c;
    }
  }
  folders.erase(std::remove(folders.begin(), folders.end(), ""), folders.end());
  return folders;
}

// Loads the parts of cuDNN that compute RNNs, with everything that they are linked against.
// `major_version` is 0 if it is not known.
Status OpenParts(const std::string& cudnn_path, int major_version) {
  const std::vector<std::string> names =
      major_version == 8
          ? std::vector<std::string>{"libcudnn_adv_infer.so.8", "libcudnn_adv_train.so.8"}
          : std::vector<std::string>{"libcudnn_adv.so.9"};
  for (const std::string& name : names) {
    const std::string beside = cudnn_path.substr(0, cudnn_path.rfind('/') + 1) + name;
    dlerror();
    if (dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) continue;
    const std::string problem = LastLoaderError();
    if (dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) continue;
    return Status(StatusCode::kUnavailable,
                  Concatenate(name, ", which computes RNNs, cannot be opened: ", problem, ".",
                              kInstallationAdvice));
  }
  return Status();
}

}  // namespace

Status OpenDriver(const LibrarySearch& search, GpuLibraries* libraries) {
  dlerror();
  void* driver = dlopen(search.driver_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return Status(StatusCode::kUnavailable,
                  Concatenate("No NVIDIA driver was found: ", LastLoaderError(), "."));
  }
  libraries->driver_path = PathOf(driver, search.driver_name);
#define CUDNN_RNN_FIND(symbol, parameters) \
  CUDNN_RNN_RETURN_IF_ERROR(               \
      FindFunction(driver, libraries->driver_path, #symbol, &libraries->symbol));
  CUDNN_RNN_DRIVER_FUNCTIONS(CUDNN_RNN_FIND)
#undef CUDNN_RNN_FIND
  return CheckDriver(*libraries, libraries->cuDriverGetVersion(&libraries->driver_version),
                     "cuDriverGetVersion", "opening the driver");
}

namespace {

// Tries cuDNN libraries and collects the failures for the error message.
class CudnnSearch {
 public:
  // Returns whether `name` is a usable cuDNN.
  bool Try(const std::string& where, const std::string& name, int flags, GpuLibraries* libraries) {
    dlerror();
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    if (library == nullptr) {
      const std::string problem = (flags & RTLD_NOLOAD) ? "not loaded" : LastLoaderError();
      Note(where, name, problem);
      return false;
    }
    const Status status = Use(library, name, libraries);
    if (status.ok()) return true;
    Note(where, libraries->cudnn_path, status.message());
    return false;
  }

  Status NotFound() const {
    return Status(StatusCode::kUnavailable,
                  Concatenate("No cuDNN ", CudnnVersionText(kMinCudnnVersion),
                              " or newer was found. Tried:", tried_,
                              "\nInstall cuDNN where TensorFlow finds it (pip install "
                              "nvidia-cudnn-cu12), or specify the path of the file in "
                              "CUDNN_RNN_CUDNN_LIBRARY."));
  }

 private:
  void Note(const std::string& where, const std::string& name, const std::string& problem) {
    tried_ += Concatenate("\n  ", where, ": ", name, ": ", problem);
  }

  static Status Use(void* library, const std::string& name, GpuLibraries* libraries) {
    libraries->cudnn_path = PathOf(library, name);
    const std::string& path = libraries->cudnn_path;
    const int major_version = MajorVersionOf(SonameOf(library));
    CUDNN_RNN_RETURN_IF_ERROR(
        FindFunction(library, path, "cudnnGetVersion", &libraries->cudnnGetVersion));
    // Before the first call: cudnnGetVersion, too, needs a part of cuDNN 8 and newer, and ends the
    // process if it cannot load it. cuDNN 7 has no parts.
    const bool has_parts = major_version == 0 || major_version >= 8;
    if (has_parts) CUDNN_RNN_RETURN_IF_ERROR(OpenParts(path, major_version));
    libraries->cudnn_version = libraries->cudnnGetVersion();
    if (libraries->cudnn_version < kMinCudnnVersion) {
      return Status(
          StatusCode::kUnavailable,
          Concatenate("version ", CudnnVersionText(libraries->cudnn_version), " is too old; ",
                      CudnnVersionText(kMinCudnnVersion), " or newer is required"));
    }
    CUDNN_RNN_RETURN_IF_ERROR(
        FindFunction(library, path, "cudnnGetErrorString", &libraries->cudnnGetErrorString));
    libraries->cudnnGetLastErrorString =
        reinterpret_cast<void (*)(char*, size_t)>(dlsym(library, "cudnnGetLastErrorString"));
#define CUDNN_RNN_FIND(symbol, parameters) \
  CUDNN_RNN_RETURN_IF_ERROR(FindFunction(library, path, #symbol, &libraries->symbol));
    CUDNN_RNN_CUDNN_FUNCTIONS(CUDNN_RNN_FIND)
#undef CUDNN_RNN_FIND
    return Status();
  }

  std::string tried_;
};

}  // namespace

Status OpenCudnn(const LibrarySearch& search, GpuLibraries* libraries) {
  CudnnSearch tries;
  if (!search.cudnn_file.empty()) {
    if (tries.Try("the named file", search.cudnn_file, 0, libraries)) return Status();
    return tries.NotFound();
  }
  for (const std::string& name : search.cudnn_names) {
    if (tries.Try("loaded already", name, RTLD_NOLOAD, libraries)) return Status();
  }
  const struct {
    const char* where;
    std::vector<std::string> paths;
  } places[] = {{"LD_LIBRARY_PATH", FoldersOfTheEnvironment()}, {"wheel", search.wheel_folders}};
  for (const auto& place : places) {
    for (const std::string& folder : place.paths) {
      for (const std::string& name : search.cudnn_names) {
        if (tries.Try(place.where, folder + "/" + name, 0, libraries)) return Status();
      }
    }
  }
  for (const std::string& name : search.cudnn_names) {
    if (tries.Try("the loader's path", name, 0, libraries)) return Status();
  }
  return tries.NotFound();
}

Status OpenGpuLibraries(const LibrarySearch& search, std::unique_ptr<GpuLibraries>* libraries) {
  std::unique_ptr<GpuLibraries> opened(new GpuLibraries());
  CUDNN_RNN_RETURN_IF_ERROR(OpenDriver(search, opened.get()));
  CUDNN_RNN_RETURN_IF_ERROR(OpenCudnn(search, opened.get()));
  *libraries = std::move(opened);
  return Status();
}

Status InitializeDriver(const GpuLibraries& libraries) {
  return CheckDriver(libraries, libraries.cuInit(0), "cuInit", "looking for a GPU");
}

std::string CudnnVersionText(size_t version) {
  // cuDNN 8: major * 1000 + minor * 100 + patch; from 9 on: major * 10000 + minor * 100 + patch.
  const size_t unit = version >= 90000 ? 10000 : 1000;
  return Concatenate(version / unit, ".", version % unit / 100, ".", version % 100);
}

std::string DriverVersionText(int version) {
  return Concatenate(version / 1000, ".", version % 1000 / 10);
}

Status CheckDriver(const GpuLibraries& libraries, int status, const char* call,
                   const std::string& what) {
  if (status == kCudaSuccess) return Status();
  const char* text = nullptr;
  if (libraries.cuGetErrorString(status, &text) != kCudaSuccess || text == nullptr) {
    text = "unknown error";
  }
  const bool out_of_memory = status == kCudaErrorOutOfMemory;
  return Status(
      out_of_memory ? StatusCode::kResourceExhausted : StatusCode::kInternal,
      Concatenate(call, " failed with CUDA error ", status, " (", text, ") while ", what, "."));
}

StatusCode StatusCodeOfCudnn(int status) {
  // cuDNN 9 numbers its groups of statuses by thousands, cuDNN 8 its statuses from 1.
  switch (status) {
    case kCudnn8AllocFailed:
    case kCudnnHostAllocationFailed:
    case kCudnnDeviceAllocationFailed:
      return StatusCode::kResourceExhausted;
    case kCudnn8BadParam:
    case kCudnn8InvalidValue:
      return StatusCode::kInvalidArgument;
    case kCudnn8ArchMismatch:
    case kCudnn8NotSupported:
      return StatusCode::kUnimplemented;
    case kCudnn8NotInitialized:
    case kCudnn8LicenseError:
    case kCudnn8RuntimePrerequisiteMissing:
    case kCudnn8VersionMismatch:
    case kCudnnNotInitialized:
    case kCudnnSublibraryVersionMismatch:
    case kCudnnLicenseError:
    case kCudnnSublibraryLoadingFailed:
    case kCudnnIncompatibleDriver:
    case kCudnnIncompatibleCudart:
    case kCudnnRuntimePrerequisiteMissing:
    case kCudnnSublibraryUnavailable:
      return StatusCode::kFailedPrecondition;
    default:
      break;
  }
  if (status / 1000 == kCudnnBadParamGroup) return StatusCode::kInvalidArgument;
  if (status / 1000 == kCudnnNotSupportedGroup) return StatusCode::kUnimplemented;
  return StatusCode::kInternal;
}

namespace {

// Returns " cuDNN says: ..." or "" if cuDNN tells no reason.
std::string ReasonOf(const GpuLibraries& libraries) {
  if (libraries.cudnnGetLastErrorString == nullptr) return "";
  char reason[1024] = "";
  libraries.cudnnGetLastErrorString(reason, sizeof(reason));
  reason[sizeof(reason) - 1] = '\0';
  return reason[0] == '\0' ? "" : Concatenate(" cuDNN says: ", reason);
}

}  // namespace

Status CheckCudnn(const GpuLibraries& libraries, int status, const char* call,
                  const std::string& what) {
  if (status == kCudnnSuccess) return Status();
  const char* text = libraries.cudnnGetErrorString(status);
  const StatusCode code = StatusCodeOfCudnn(status);
  return Status(
      code,
      Concatenate(call, " failed with status ", status, " (", text == nullptr ? "unknown" : text,
                  ") in cuDNN ", CudnnVersionText(libraries.cudnn_version), " while ", what, ".",
                  ReasonOf(libraries),
                  code == StatusCode::kFailedPrecondition ? kInstallationAdvice : ""));
}

}  // namespace cudnn_rnn
