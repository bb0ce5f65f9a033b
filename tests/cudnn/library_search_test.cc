// Tests finding and opening the driver and cuDNN: the search order, the versions, and the messages
// if none is found. The libraries are variants of the mock of cuDNN.

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "cudnn_rnn/cc/cudnn/gpu_libraries.h"
#include "cudnn_rnn/cc/cudnn/gpu_runtime.h"
#include "tests/core/testing.h"

namespace cudnn_rnn {
namespace {

std::string Folder() {
  const char* folder = std::getenv("CUDNN_RNN_MOCK_FOLDER");
  EXPECT(folder != nullptr, "scripts/cpp.sh test sets CUDNN_RNN_MOCK_FOLDER");
  return folder == nullptr ? "" : folder;
}

std::string Mock(const std::string& variant = "") {
  return Folder() + "/libmock_cudnn" + variant + ".so";
}

// The libraries of cuDNN that RNNs need, besides the one that is opened by name.
std::vector<std::string> PartsOf(int major_version) {
  if (major_version == 9) return {"libcudnn_adv.so.9", "libcudnn_graph.so.9", "libcudnn_ops.so.9"};
  return {"libcudnn_adv_infer.so.8", "libcudnn_adv_train.so.8", "libcudnn_ops_infer.so.8",
          "libcudnn_ops_train.so.8"};
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
  // Links the mock as cuDNN, with the parts that RNNs need, except `missing_part`.
  std::string LinkCudnn(const std::string& name, const std::string& variant = "",
                        const std::string& missing_part = "") {
    for (const std::string& part : PartsOf(variant == "_8" ? 8 : 9)) {
      if (part != missing_part) Link(Folder() + "/" + part, part);
    }
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

TEST(AnErrorHasTheReasonThatCudnnTells) {
  GpuLibraries libraries;
  libraries.cudnnGetErrorString = [](int) { return "TEXT"; };
  const Status without = CheckCudnn(libraries, 2000, "cudnnCreate", "trying");
  EXPECT(without.message().find("says") == std::string::npos, without.message());
  libraries.cudnnGetLastErrorString = [](char*, size_t) {};
  EXPECT(CheckCudnn(libraries, 2000, "cudnnCreate", "trying").message() == without.message());
  libraries.cudnnGetLastErrorString = [](char* message, size_t max_bytes) {
    std::memset(message, 'x', max_bytes);  // not terminated
    std::memcpy(message, "xDesc->layout != yDesc->layout", 30);
  };
  EXPECT_ERROR(CheckCudnn(libraries, 2000, "cudnnCreate", "trying"),
               "while trying. cuDNN says: xDesc->layout != yDesc->layoutxxx");
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

// Runs the function in another process, which begins with this one's libraries; returns its result,
// or the signal that ended the process.
std::string InAnotherProcess(const std::function<std::string()>& function) {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string result = function();
    const ssize_t written = write(ends[1], result.data(), result.size());
    _exit(written == static_cast<ssize_t>(result.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string result;
  char buffer[1024];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    result.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? Concatenate("signal ", WTERMSIG(status)) : result;
}

TEST(AnIncompleteCudnnIsRefused) {
  const struct {
    int major_version;
    std::string name;
    std::string variant;
    std::string version;
  } cases[] = {{9, "libcudnn.so.9", "_named", "9.13.0"}, {8, "libcudnn.so.8", "_8", "8.9.7"}};
  for (const auto& test : cases) {
    std::vector<std::string> missing_parts = PartsOf(test.major_version);
    missing_parts.push_back("");
    for (const std::string& missing : missing_parts) {
      const bool is_of_this_machine =
          !missing.empty() && dlopen(missing.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
      if (is_of_this_machine) continue;
      TemporaryFolder folder;
      LibrarySearch search = SearchFor(Mock("_missing"));  // another file than the cuDNN
      search.cudnn_file = folder.LinkCudnn(test.name, test.variant, missing);
      const std::string found = InAnotherProcess([&search] {
        GpuLibraries libraries;
        const Status status = OpenCudnn(search, &libraries);
        return status.ok() ? CudnnVersionText(libraries.cudnn_version) : status.message();
      });
      if (missing.empty()) {
        EXPECT(found == test.version, found);
        continue;
      }
      for (const std::string& part :
           {search.cudnn_file + ": libcudnn_adv", std::string(", which computes RNNs, cannot be"),
            missing + ": cannot open shared object file",
            std::string("python -m cudnn_rnn doctor")}) {
        EXPECT(found.find(part) != std::string::npos, "'", part, "' in: ", found);
      }
    }
  }
}

// Like the real library; the test above would otherwise prove nothing.
TEST(TheMocksVersionNeedsAPart) {
  if (dlopen("libcudnn_graph.so.9", RTLD_NOW | RTLD_LOCAL) != nullptr) return;  // of this machine
  TemporaryFolder folder;
  const std::string file = folder.LinkCudnn("libcudnn.so.9", "_named", "libcudnn_graph.so.9");
  const std::string ended = InAnotherProcess([&file] {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto version = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetVersion"));
    return Concatenate("version ", version());
  });
  EXPECT(ended == Concatenate("signal ", SIGABRT), ended);
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
