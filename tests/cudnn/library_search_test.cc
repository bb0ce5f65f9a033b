// Tests finding and opening the driver and cuDNN: the search order, the versions, and the messages
// if none is found. The libraries are variants of the mock of cuDNN.

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "cudnn_rnn/cc/cudnn/gpu_libraries.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

std::string Folder() {
  const char* folder = std::getenv("CUDNN_RNN_MOCK_FOLDER");
  EXPECT(folder != nullptr, "scripts/run_cudnn_tests.sh sets CUDNN_RNN_MOCK_FOLDER");
  return folder == nullptr ? "" : folder;
}

std::string Mock(const std::string& variant = "") {
  return Folder() + "/libmock_cudnn" + variant + ".so";
}

LibrarySearch SearchFor(const std::string& driver_name) {
  LibrarySearch search;
  search.driver_name = driver_name;
  search.cudnn_names = {"libcudnn_of_no_machine.so.9"};
  return search;
}

// A temporary folder, removed by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/cudnn_rnn_test_XXXXXX";
    EXPECT(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    for (const std::string& file : files_) unlink(file.c_str());
    rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }

  std::string Link(const std::string& target, const std::string& name) {
    files_.push_back(path_ + "/" + name);
    EXPECT(symlink(target.c_str(), files_.back().c_str()) == 0);
    return files_.back();
  }
  // Links the mock as cuDNN, with the part that computes RNNs.
  std::string LinkCudnn(const std::string& name, const std::string& variant = "") {
    Link(Folder() + "/libcudnn_adv.so.9", "libcudnn_adv.so.9");
    return Link(Mock(variant), name);
  }
  std::string Write(const std::string& text, const std::string& name) {
    files_.push_back(path_ + "/" + name);
    std::ofstream(files_.back()) << text;
    return files_.back();
  }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

TEST(VersionsAsText) {
  EXPECT(CudnnVersionText(8000) == "8.0.0" && CudnnVersionText(8907) == "8.9.7");
  EXPECT(CudnnVersionText(90300) == "9.3.0" && CudnnVersionText(91001) == "9.10.1");
  EXPECT(CudnnVersionText(7605) == "7.6.5");
  EXPECT(DriverVersionText(12080) == "12.8" && DriverVersionText(13000) == "13.0");
}

TEST(CudnnStatusesBecomeCodes) {
  const struct {
    StatusCode code;
    std::vector<int> statuses;  // of cuDNN 8 and 9
  } cases[] = {
      {StatusCode::kInvalidArgument, {3, 5, 2000, 2001, 2003, 2010}},
      {StatusCode::kResourceExhausted, {2, 4003, 4004}},
      {StatusCode::kFailedPrecondition,
       {1, 10, 11, 14, 1001, 1002, 1005, 1008, 3005, 3006, 3008, 3009}},
      {StatusCode::kUnimplemented, {6, 9, 3000, 3002, 3007, 3012}},
      {StatusCode::kInternal, {4, 7, 8, 12, 13, 1003, 1007, 4000, 4002, 5000, 5003}},
  };
  for (const auto& test : cases) {
    for (const int status : test.statuses) {
      EXPECT(StatusCodeOfCudnn(status) == test.code, "status ", status, " became ",
             static_cast<int>(StatusCodeOfCudnn(status)));
    }
  }
}

TEST(AnErrorOfTheInstallationNamesTheDoctor) {
  GpuLibraries libraries;
  libraries.cudnnGetErrorString = [](int) { return "TEXT"; };
  libraries.cudnn_version = 90300;
  EXPECT(CheckCudnn(libraries, 0, "cudnnCreate", "trying").ok());
  EXPECT_ERROR(CheckCudnn(libraries, 1008, "cudnnCreate", "trying"), "cudnnCreate failed with",
               "status 1008 (TEXT) in cuDNN 9.3.0", "while trying", "python -m cudnn_rnn doctor");
  const Status internal = CheckCudnn(libraries, 5000, "cudnnCreate", "trying");
  EXPECT(internal.message().find("doctor") == std::string::npos, internal.message());
}

TEST(NoDriver) {
  std::unique_ptr<GpuLibraries> libraries;
  const Status status = OpenGpuLibraries(SearchFor("libcuda_of_no_machine.so.1"), &libraries);
  EXPECT(status.code() == StatusCode::kUnavailable && libraries == nullptr);
  EXPECT_ERROR(status, "No NVIDIA driver", "libcuda_of_no_machine.so.1");
}

TEST(ALibraryThatIsNotADriver) {
  std::unique_ptr<GpuLibraries> libraries;
  EXPECT_ERROR(OpenGpuLibraries(SearchFor("libm.so.6"), &libraries), "has no function cuInit");
}

TEST(MissingCudnnListsWhatWasTried) {
  TemporaryFolder wheel;
  LibrarySearch search = SearchFor(Mock());
  search.wheel_folders = {wheel.path()};
  std::unique_ptr<GpuLibraries> libraries;
  const Status status = OpenGpuLibraries(search, &libraries);
  EXPECT(status.code() == StatusCode::kUnavailable && libraries == nullptr);
  EXPECT_ERROR(status, "No cuDNN 8.0.0 or newer", "loaded already: libcudnn_of_no_machine.so.9",
               "wheel: ", "the loader's path: ", "pip install", "path of the file");
  EXPECT(status.message().find(wheel.path()) != std::string::npos);
}

TEST(TheWheelsFolderIsSearched) {
  TemporaryFolder empty, wheel;
  wheel.LinkCudnn("libcudnn_of_no_machine.so.9");
  LibrarySearch search = SearchFor(Mock());
  search.wheel_folders = {empty.path(), wheel.path()};
  std::unique_ptr<GpuLibraries> libraries;
  const Status status = OpenGpuLibraries(search, &libraries);
  EXPECT(status.ok(), status.message());
  if (libraries == nullptr) return;
  EXPECT(libraries->cudnn_version == 91300 && libraries->driver_version == 12080);
  EXPECT(!libraries->cudnn_path.empty() && !libraries->driver_path.empty());
  // The function table is complete and belongs to that library.
  EXPECT(libraries->cudnnRNNForward != nullptr && libraries->cuMemAlloc_v2 != nullptr);
  EXPECT(libraries->cudnnGetVersion() == 91300);
}

TEST(LoadedLibrariesComeFirst) {
  void* loaded = dlopen(Mock().c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT(loaded != nullptr);
  TemporaryFolder wheel;
  LibrarySearch search = SearchFor(Mock());
  search.cudnn_names = {Mock()};  // loaded libraries are found by name
  wheel.Link(Mock("_old"), "libcudnn.so.9");
  search.wheel_folders = {wheel.path()};
  std::unique_ptr<GpuLibraries> libraries;
  EXPECT(OpenGpuLibraries(search, &libraries).ok());
  EXPECT(libraries != nullptr && libraries->cudnn_path == Mock());
}

TEST(AnOldCudnnIsSkipped) {
  TemporaryFolder old, current;
  old.Link(Mock("_old"), "libcudnn_of_no_machine.so.9");
  LibrarySearch search = SearchFor(Mock());
  search.wheel_folders = {old.path()};
  std::unique_ptr<GpuLibraries> libraries;
  EXPECT_ERROR(OpenGpuLibraries(search, &libraries), "version 7.6.5 is too old", "8.0.0");
  current.LinkCudnn("libcudnn_of_no_machine.so.9");
  search.wheel_folders.push_back(current.path());
  EXPECT(OpenGpuLibraries(search, &libraries).ok());
}

TEST(TheEnvironmentComesBeforeTheWheels) {
  TemporaryFolder first, second, wheel;
  for (TemporaryFolder* folder : {&second, &wheel}) {
    folder->LinkCudnn("libcudnn_of_no_machine.so.9");
  }
  setenv("LD_LIBRARY_PATH", (":" + first.path() + ";" + second.path() + "::").c_str(), 1);
  LibrarySearch search = SearchFor(Mock("_missing"));  // another file than the cuDNN
  search.wheel_folders = {wheel.path()};
  std::unique_ptr<GpuLibraries> libraries;
  EXPECT(OpenGpuLibraries(search, &libraries).ok());
  const std::string found = libraries == nullptr ? "" : libraries->cudnn_path;
  EXPECT(found == second.path() + "/libcudnn_of_no_machine.so.9", found);
  unsetenv("LD_LIBRARY_PATH");
}

TEST(ACudnnWithoutThePartForRnnsIsRefused) {
  if (dlopen("libcudnn_adv.so.9", RTLD_NOW | RTLD_LOCAL) != nullptr) return;  // of this machine
  TemporaryFolder folder;
  LibrarySearch search = SearchFor(Mock("_missing"));  // another file than the cuDNN
  search.cudnn_file = folder.Link(Mock(), "libcudnn.so.9");
  std::unique_ptr<GpuLibraries> libraries;
  EXPECT_ERROR(OpenGpuLibraries(search, &libraries), "libcudnn_adv.so.9, which computes RNNs",
               "cannot open shared object file", "python -m cudnn_rnn doctor");
  folder.Link(Folder() + "/libcudnn_adv.so.9", "libcudnn_adv.so.9");
  EXPECT(OpenGpuLibraries(search, &libraries).ok());
}

TEST(TheProcessOpensCudnnInASecondStep) {
  GpuRuntime* runtime = nullptr;
  EXPECT_ERROR(OpenProcessGpu(&runtime), "have not been opened");
  TemporaryFolder folder;
  LibrarySearch search = SearchFor(Mock("_missing"));  // another file than the cuDNN
  search.cudnn_file = folder.LinkCudnn("libcudnn.so.9");
  EXPECT(OpenProcessDriver(search).ok());
  EXPECT(dlopen(search.cudnn_file.c_str(), RTLD_NOW | RTLD_NOLOAD) == nullptr);
  EXPECT(ProcessGpuReport().find("cuDNN: not opened yet") != std::string::npos);
  EXPECT(OpenProcessGpu(&runtime).ok() && runtime != nullptr);
  EXPECT(runtime != nullptr && runtime->libraries->cudnn_path == search.cudnn_file);
  EXPECT(ProcessGpuReport().find("cuDNN 9.13.0: " + search.cudnn_file) != std::string::npos);
  GpuRuntime* again = nullptr;
  EXPECT(OpenProcessGpu(LibrarySearch(), &again).ok() && again == runtime, "the first counts");
}

TEST(ASpecifiedFileIsTheOnlyOneTried) {
  TemporaryFolder folder;
  const std::string broken = folder.Write("no library", "broken.so");
  LibrarySearch search = SearchFor(Mock());
  std::unique_ptr<GpuLibraries> libraries;
  search.cudnn_file = Mock();
  EXPECT(OpenGpuLibraries(search, &libraries).ok());
  search.cudnn_file = Mock("_old");
  EXPECT_ERROR(OpenGpuLibraries(search, &libraries), "the named file", "7.6.5");
  search.cudnn_file = Mock("_missing");
  EXPECT_ERROR(OpenGpuLibraries(search, &libraries), "cudnnRNNBackwardWeights_v8");
  search.cudnn_file = broken;
  EXPECT_ERROR(OpenGpuLibraries(search, &libraries), "broken.so", "the named file");
  search.cudnn_file = folder.path() + "/none.so";
  EXPECT_ERROR(OpenGpuLibraries(search, &libraries), "none.so");
}

TEST(OpeningDoesNotInitializeCuda) {
  using Calls = int64_t (*)(const char*);
  using SetNumDevices = void (*)(int);
  void* driver = dlopen(Mock().c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT(driver != nullptr);
  if (driver == nullptr) return;
  const auto calls = reinterpret_cast<Calls>(dlsym(driver, "mock_calls"));
  const auto set_num_devices =
      reinterpret_cast<SetNumDevices>(dlsym(driver, "mock_set_num_devices"));
  const int64_t before = calls("cuInit");
  LibrarySearch search = SearchFor(Mock());
  search.cudnn_file = Mock();
  std::unique_ptr<GpuLibraries> libraries;
  EXPECT(OpenGpuLibraries(search, &libraries).ok());
  EXPECT(calls("cuInit") == before, "the program may yet choose devices or fork");
  if (libraries == nullptr) return;
  set_num_devices(0);
  EXPECT_ERROR(InitializeDriver(*libraries), "cuInit", "no CUDA-capable device",
               "looking for a GPU");
  set_num_devices(1);
  EXPECT(InitializeDriver(*libraries).ok());
}

}  // namespace
}  // namespace cudnn_rnn
