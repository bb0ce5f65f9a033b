// Tests the mock of CUDA's driver, failure injection, and the mock's shared libraries.

#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "tests/cudnn/mock_model.h"

namespace cudnn_rnn {
namespace mock_test {
namespace {

constexpr int kInvalidContext = 201, kInvalidHandle = 400, kNotReady = 600;

void* Stream() { return FreshMock::stream(); }

TEST(MockRequiresCuInit) {
  mock_restart();
  void* context = nullptr;
  ExpectViolation(cuStreamGetCtx(Stream(), &context), "called before cuInit");
  ExpectViolation(cuInit(1), "flags must be 0");
  mock_set_num_devices(0);
  EXPECT(cuInit(0) == 100, "no device");
  mock_set_num_devices(2);
  EXPECT(cuInit(0) == 0);
  EXPECT(cuStreamGetCtx(Stream(), &context) == 0);
  int version;
  EXPECT(cuDriverGetVersion(&version) == 0 && version == 12080);
  const char* text = nullptr;
  EXPECT(cuGetErrorString(2, &text) == 0 && std::string(text) == "out of memory");
  EXPECT(cuGetErrorString(-5, &text) != 0 && text == nullptr);
  mock_restart();
}

TEST(MockTracksContextsByThreadAndDevice) {
  FreshMock fresh;
  mock_set_num_devices(2);
  void* const other_stream = reinterpret_cast<void*>(uintptr_t{32});
  mock_set_stream_device(other_stream, 1);
  DeviceAddress memory;
  std::thread([&] {
    void* context = nullptr;
    EXPECT(cuStreamGetCtx(nullptr, &context) == kInvalidContext);
    EXPECT(mock_violations() == 0);
    const int status = cuMemAlloc_v2(&memory, 16);
    EXPECT(status == kInvalidContext && mock_violations() == 1, status);
    mock_set_thread_device(0);
    EXPECT(cuStreamGetCtx(nullptr, &context) == 0 && context != nullptr);
    EXPECT(cuMemAlloc_v2(&memory, 16) == 0 && cuMemFree_v2(memory) == 0);
    mock_set_thread_device(-1);
  }).join();
  mock_reset();
  mock_set_num_devices(2);
  mock_set_stream_device(other_stream, 1);
  Allocation here(64);
  void *other, *popped;
  int device;
  EXPECT(cuStreamGetCtx(other_stream, &other) == 0);
  EXPECT(cuCtxPushCurrent_v2(other) == 0 && mock_live("pushed_context") == 2);
  EXPECT(cuCtxGetDevice(&device) == 0 && device == 1);
  EXPECT(cuMemsetD8Async(here.address(), 0, 64, other_stream) != 0);
  EXPECT(cuEventRecord(nullptr, Stream()) == kInvalidHandle);
  EXPECT(mock_violations() == 2, mock_violation_text());
  EXPECT(cuCtxPopCurrent_v2(&popped) == 0 && popped == other);
  mock_reset();
  int owner = -1;
  EXPECT(cuPointerGetAttribute(&owner, kCudaPointerAttributeDeviceOrdinal, here.address()) == 0);
  EXPECT(owner == 0, owner);
  ExpectViolation(cuCtxPushCurrent_v2(&device), "there is no context");
  std::thread([] {
    void* context;
    cuCtxPopCurrent_v2(&context);
  }).join();
  ExpectViolation(-1, "has pushed no context");
}

TEST(MockChecksDeviceMemory) {
  FreshMock fresh;
  char host[64] = "abc";
  DeviceAddress null = 0;
  ExpectViolation(cuMemAlloc_v2(&null, 0), "bytes is 0");
  mock_set_memory_limit(100);
  {
    Allocation buffer(64);
    EXPECT(buffer.address() % 256 == 0);
    EXPECT(std::isnan(*reinterpret_cast<float*>(buffer.data())), "new memory is NaN");
    EXPECT(cuMemAlloc_v2(&null, 37) == kCudaErrorOutOfMemory);
    EXPECT(mock_violations() == 0, "too little memory is no violation");
    EXPECT(cuMemcpyHtoDAsync_v2(buffer.address() + 60, host, 4, Stream()) == 0);
    EXPECT(std::string(buffer.data() + 60) == "abc");
    ExpectViolation(cuMemcpyHtoDAsync_v2(buffer.address() + 61, host, 4, Stream()),
                    "needs 4 bytes, but the allocation has 3");
    ExpectViolation(cuMemcpyHtoDAsync_v2(buffer.address(), buffer.data() + 32, 4, Stream()),
                    "source is device memory");
    ExpectViolation(cuMemcpyDtoDAsync_v2(buffer.address(), buffer.address() + 3, 4, Stream()),
                    "overlap");
    ExpectViolation(cuMemFree_v2(buffer.address() + 1), "is not what cuMemAlloc_v2 gave");
  }
  const DeviceAddress at_host = reinterpret_cast<uintptr_t>(host);
  ExpectViolation(cuMemsetD8Async(at_host, 1, 64, Stream()), "is not device memory");
  mock_register_memory(host, 32);
  EXPECT(cuMemsetD8Async(at_host, 'x', 32, Stream()) == 0 && host[31] == 'x' && host[32] == 0);
  ExpectViolation(cuMemsetD8Async(at_host, 1, 33, Stream()), "is not device memory");
  mock_unregister_memory(host);
  ExpectViolation(cuMemsetD8Async(at_host, 1, 1, Stream()), "is not device memory");
  int device;
  EXPECT(cuPointerGetAttribute(&device, kCudaPointerAttributeDeviceOrdinal, at_host) != 0);
  mock_set_any_memory(1);
  EXPECT(cuMemsetD8Async(at_host, 'y', 64, Stream()) == 0 && host[63] == 'y');
}

TEST(MockCopiesRows) {
  FreshMock fresh;
  const Bytes numbers = [] {
    Bytes bytes(60);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
    return bytes;
  }();
  Allocation source(numbers), target(Bytes(40, '\0'));
  DriverCopy2d copy = DriverCopy2d();
  copy.source_memory_type = copy.target_memory_type = kCudaMemoryTypeDevice;
  copy.source_device = source.address();
  copy.source_pitch = 20;
  copy.source_x_bytes = 2;
  copy.source_y = 1;
  copy.target_device = target.address();
  copy.target_pitch = 12;
  copy.target_x_bytes = 5;
  copy.target_y = 1;
  copy.width_bytes = 7;
  copy.height = 2;
  EXPECT(cuMemcpy2DAsync_v2(&copy, Stream()) == 0);
  Bytes expected(40, '\0');
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 7; ++i) {
      expected[static_cast<size_t>((row + 1) * 12 + 5 + i)] =
          static_cast<char>((row + 1) * 20 + 2 + i);
    }
  }
  EXPECT(target.Read(40) == expected);
  copy.height = 3;
  ExpectViolation(cuMemcpy2DAsync_v2(&copy, Stream()), "source at");
  copy.height = 2;
  copy.target_pitch = 11;
  ExpectViolation(cuMemcpy2DAsync_v2(&copy, Stream()), "target pitch 11 is below x 5 + width 7");
  copy.target_pitch = size_t{1} << 31;
  ExpectViolation(cuMemcpy2DAsync_v2(&copy, Stream()), "target pitch 2147483648 is above");
  copy.target_pitch = 12;
  copy.target_device = source.address() + 10;
  ExpectViolation(cuMemcpy2DAsync_v2(&copy, Stream()), "overlap");
}

TEST(MockEventsReportVirtualTime) {
  FreshMock fresh;
  mock_set_algorithm_time(kCudnnAlgorithmStandard, 3, 8);
  const RnnConfig config;
  MockModel model(config, Shape());
  model.LoadRandom();
  void* events[3];
  float elapsed;
  for (void*& event : events) EXPECT(cuEventCreate(&event, 0) == 0);
  ExpectViolation(cuEventSynchronize(events[0]), "was not recorded");
  mock_set_algorithm_time(kCudnnAlgorithmStandard, 3, 8);
  EXPECT(cuEventRecord(events[0], Stream()) == 0 && model.Forward() == 0);
  EXPECT(cuEventRecord(events[1], Stream()) == 0 && model.BackwardData() == 0);
  EXPECT(model.BackwardWeights() == 0 && cuEventRecord(events[2], Stream()) == 0);
  EXPECT(mock_host_waits() == 0);
  EXPECT(cuEventElapsedTime(&elapsed, events[0], events[1]) == kNotReady);
  ExpectViolation(-1, "nobody has waited for an event");
  EXPECT(cuEventSynchronize(events[1]) == 0 && mock_host_waits() == 1);
  EXPECT(cuEventElapsedTime(&elapsed, events[0], events[1]) == 0 && elapsed == 3, elapsed);
  EXPECT(cuEventSynchronize(events[2]) == 0 && mock_host_waits() == 2);
  EXPECT(cuEventElapsedTime(&elapsed, events[1], events[2]) == 0 && elapsed == 8, elapsed);
  EXPECT(mock_live("event") == 3);
  for (void* event : events) EXPECT(cuEventDestroy_v2(event) == 0);
  ExpectViolation(cuEventDestroy_v2(events[0]), "is destroyed");
  void* untimed;
  EXPECT(cuEventCreate(&untimed, 2) == 0 && cuEventRecord(untimed, Stream()) == 0);
  EXPECT(cuEventSynchronize(untimed) == 0);
  EXPECT(cuEventElapsedTime(&elapsed, untimed, untimed) == kInvalidHandle);
  ExpectViolation(-1, "has no time");
  EXPECT(cuEventDestroy_v2(untimed) == 0);
}

TEST(MockInjectsFailures) {
  FreshMock fresh;
  void* event;
  EXPECT(mock_calls("cuEventCreate") == 0);
  const int64_t before = mock_fallible_calls();
  mock_fail_call(2, MOCK_EXECUTION_FAILED);
  EXPECT(cuEventCreate(&event, 0) == 0);
  EXPECT(cuEventDestroy_v2(event) == 719 && mock_live("event") == 0, "releases and fails");
  EXPECT(cuEventCreate(&event, 0) == 0 && cuEventDestroy_v2(event) == 0, "only the second");
  EXPECT(mock_fallible_calls() == before + 4 && mock_calls("cuEventCreate") == 2);
  EXPECT(std::string(mock_log()).find("cuEventCreate(flags=0)\n") != std::string::npos);

  void* descriptor;
  mock_fail_calls_from(1, MOCK_OUT_OF_MEMORY);
  EXPECT(cudnnCreateRNNDescriptor(&descriptor) == 4004);
  mock_set_version(8905);
  EXPECT(cudnnCreateRNNDescriptor(&descriptor) == 2 && mock_live("rnn_descriptor") == 0);
  mock_fail_call(0, MOCK_NO_FAILURE);
  EXPECT(cudnnCreateRNNDescriptor(&descriptor) == 0 && cudnnDestroyRNNDescriptor(descriptor) == 0);
  mock_fail_calls_from(2, MOCK_INTERNAL_ERROR);
  const char* text;
  EXPECT(cuGetErrorString(999, &text) == 0, "does not count");
  EXPECT(cuEventCreate(&event, 0) == 0 && cuEventDestroy_v2(event) == 999);
  EXPECT(cuEventCreate(&event, 0) == 999 && cudnnCreateRNNDescriptor(&descriptor) == 4);
  mock_fail_call(0, MOCK_NO_FAILURE);
  EXPECT(cuEventCreate(&event, 0) == 0 && cuEventDestroy_v2(event) == 0);
}

TEST(MockLeaksNothingIfACallFails) {
  const RnnConfig config;
  int64_t num_calls = 1;
  for (int64_t n = 0; n <= num_calls; ++n) {  // 0: none fails
    FreshMock fresh;
    const int64_t before = mock_fallible_calls();
    mock_fail_call(n, MOCK_INTERNAL_ERROR);
    MockModel model(config, Shape());
    const bool made = model.status() == 0;
    if (made) std::memset(model.weights, 0, model.weight_space_bytes);
    if (made) std::memset(model.dweights, 0, model.weight_space_bytes);
    const bool ran =
        made && model.Forward() == 0 && model.BackwardData() == 0 && model.BackwardWeights() == 0;
    if (n == 0) num_calls = mock_fallible_calls() - before;
    EXPECT(ran == (n == 0), "call ", n, " of ", num_calls);
    if (n > 0) mock_reset();  // using a half-constructed model is an expected violation
  }
}

struct Library {
  explicit Library(const std::string& name) {
    const char* folder = std::getenv("CUDNN_RNN_MOCK_FOLDER");
    EXPECT(folder != nullptr, "CUDNN_RNN_MOCK_FOLDER is not set");
    if (folder == nullptr) return;
    handle = dlopen((std::string(folder) + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT(handle != nullptr, handle == nullptr ? dlerror() : "");
  }
  bool Has(const char* symbol) const {
    return handle != nullptr && dlsym(handle, symbol) != nullptr;
  }
  size_t Version() const {
    if (!Has("cudnnGetVersion")) return 0;
    return reinterpret_cast<size_t (*)()>(dlsym(handle, "cudnnGetVersion"))();
  }
  void* handle = nullptr;
};

TEST(MockIsBuiltAsSharedLibraries) {
  mock_set_version(8000);  // only affects the mock linked into this program
  const Library library("libmock_cudnn.so"), old("libmock_cudnn_old.so"),
      missing("libmock_cudnn_missing.so");
  EXPECT(library.Version() == 91300, library.Version());
  EXPECT(old.Version() == 7605, old.Version());
  EXPECT(missing.Version() == 91300, missing.Version());
#define CUDNN_RNN_EXPECT(symbol, parameters) EXPECT(library.Has(#symbol), #symbol);
  CUDNN_RNN_DRIVER_FUNCTIONS(CUDNN_RNN_EXPECT)
  CUDNN_RNN_CUDNN_FUNCTIONS(CUDNN_RNN_EXPECT)
#undef CUDNN_RNN_EXPECT
  EXPECT(library.Has("cudnnGetErrorString") && library.Has("mock_reset"));
  EXPECT(!missing.Has("cudnnRNNBackwardWeights_v8") && missing.Has("cudnnRNNBackwardData_v8"));
  mock_restart();
}

}  // namespace
}  // namespace mock_test
}  // namespace cudnn_rnn
