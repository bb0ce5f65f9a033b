// Tests the mock of CUDA's driver, failure injection, and the mock's shared libraries.

#include <cmath>
#include <functional>
#include <thread>

#include "tests/core/testing.h"
#include "tests/cudnn/mock/functions.h"
#include "tests/cudnn/plan_harness.h"

namespace cudnn_rnn {
namespace {

constexpr int kInvalidContext = 201, kInvalidHandle = 400, kNotReady = 600;

void* Stream() { return kStream; }

// The mock as in a new process, with the driver initialized and a context current.
class FreshMock {
 public:
  FreshMock() {
    EXPECT(cuStreamGetCtx(kStream, &context_) == 0);
    EXPECT(cuCtxPushCurrent_v2(context_) == 0);
  }
  ~FreshMock() { EXPECT(cuCtxPopCurrent_v2(&context_) == 0); }

 private:
  MockGpu gpu_;
  void* context_ = nullptr;
};

// Expects `status` to be an error, and exactly one violation, whose text contains `part`. Then
// resets the mock.
void ExpectViolation(int status, const std::string& part) {
  const std::string text = mock_violation_text();
  EXPECT(status != 0 && mock_violations() == 1, part, ": ", text);
  EXPECT(text.find(part) != std::string::npos, "'", part, "' in: ", text);
  mock_reset();
}

// Device memory from the driver.
class Allocation {
 public:
  explicit Allocation(size_t bytes) { cuMemAlloc_v2(&address_, bytes); }
  ~Allocation() { cuMemFree_v2(address_); }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  DeviceAddress address() const { return address_; }
  char* data() const { return reinterpret_cast<char*>(address_); }

 private:
  DeviceAddress address_ = 0;
};

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
  mock_set_any_memory(1);
  EXPECT(cuMemsetD8Async(at_host, 'y', 64, Stream()) == 0 && host[63] == 'y');
}

TEST(MockChecksCopiesOfRows) {
  FreshMock fresh;
  Allocation source(60), target(40);
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
  for (char i = 0; i < 60; ++i) source.data()[static_cast<int>(i)] = i;
  EXPECT(cuMemcpy2DAsync_v2(&copy, Stream()) == 0);
  EXPECT(target.data()[12 + 5] == 20 + 2 && target.data()[2 * 12 + 5 + 6] == 2 * 20 + 2 + 6);
  EXPECT(target.data()[12 + 4] == -1 && target.data()[2 * 12 + 5 + 7] == -1, "only the rows");
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

TEST(MockChecksEvents) {
  FreshMock fresh;
  void *first, *second, *untimed;
  float elapsed;
  EXPECT(cuEventCreate(&first, 0) == 0 && cuEventCreate(&second, 0) == 0);
  ExpectViolation(cuEventSynchronize(first), "was not recorded");
  EXPECT(cuEventRecord(first, Stream()) == 0 && cuEventRecord(second, Stream()) == 0);
  EXPECT(mock_host_waits() == 0);
  EXPECT(cuEventElapsedTime(&elapsed, first, second) == kNotReady);
  ExpectViolation(-1, "nobody has waited for an event");
  EXPECT(cuEventSynchronize(second) == 0 && mock_host_waits() == 1);
  EXPECT(cuEventElapsedTime(&elapsed, first, second) == 0 && elapsed == 0, elapsed);
  EXPECT(mock_live("event") == 2);
  for (void* event : {first, second}) EXPECT(cuEventDestroy_v2(event) == 0);
  ExpectViolation(cuEventDestroy_v2(first), "is destroyed");
  EXPECT(cuEventCreate(&untimed, 2) == 0 && cuEventRecord(untimed, Stream()) == 0);
  EXPECT(cuEventSynchronize(untimed) == 0);
  EXPECT(cuEventElapsedTime(&elapsed, untimed, untimed) == kInvalidHandle);
  ExpectViolation(-1, "has no time");
  EXPECT(cuEventDestroy_v2(untimed) == 0);
}

TEST(MockFindsUsesOfMemoryThatNoEventOrders) {
  FreshMock fresh;
  void* const other = reinterpret_cast<void*>(uintptr_t{0x70});
  Allocation source(64), target(64);
  const auto copy = [&](void* stream) {
    return cuMemcpyDtoDAsync_v2(target.address(), source.address(), 64, stream);
  };
  void* event;
  EXPECT(cuEventCreate(&event, 2) == 0 && copy(Stream()) == 0 && copy(Stream()) == 0);
  ExpectViolation(cuStreamWaitEvent(other, event, 0), "was not recorded");
  ExpectViolation(copy(other), "which writes that memory");
  EXPECT(cuEventRecord(event, Stream()) == 0 && cuStreamWaitEvent(other, event, 0) == 0);
  EXPECT(copy(other) == 0, mock_violation_text());
  ExpectViolation(cuMemsetD8Async(source.address(), 0, 1, Stream()), "which reads that memory");
  EXPECT(cuStreamSynchronize(other) == 0 && copy(Stream()) == 0, mock_violation_text());
  EXPECT(cuEventRecord(event, Stream()) == 0 && cuEventSynchronize(event) == 0);
  EXPECT(copy(other) == 0 && cuEventDestroy_v2(event) == 0, mock_violation_text());
}

TEST(MockFindsMemoryThatIsReusedInFlight) {
  FreshMock fresh;
  void* const other = reinterpret_cast<void*>(uintptr_t{0x70});
  char memory[64];
  const DeviceAddress address = reinterpret_cast<uintptr_t>(memory);
  const auto reuse_on = [&](void* stream) {
    mock_unregister_memory(memory);
    mock_register_memory(memory, sizeof(memory));
    return cuMemsetD8Async(address, 0, sizeof(memory), stream);
  };
  mock_register_memory(memory, sizeof(memory));
  EXPECT(cuMemsetD8Async(address, 1, sizeof(memory), Stream()) == 0);
  EXPECT(reuse_on(Stream()) == 0, "the stream's later work comes later");
  ExpectViolation(reuse_on(other), "does not wait for stream");
  EXPECT(cuStreamSynchronize(Stream()) == 0 && reuse_on(other) == 0, mock_violation_text());
  mock_unregister_memory(memory);
}

TEST(MockFindsCallsThatAGraphCannotRecord) {
  FreshMock fresh;
  void* handle;
  DeviceAddress memory = 0;
  int status = 7;
  EXPECT(cuStreamIsCapturing(Stream(), &status) == 0 && status == 0);
  mock_set_capturing(Stream(), 1);
  EXPECT(cuStreamIsCapturing(Stream(), &status) == 0 && status == 1);
  for (const auto& call : {std::function<int()>([&] { return cudnnCreate(&handle); }),
                           std::function<int()>([&] { return cuMemAlloc_v2(&memory, 16); }),
                           std::function<int()>([&] { return cuStreamSynchronize(Stream()); })}) {
    ExpectViolation(call(), "while a stream records a CUDA graph");
    mock_set_capturing(Stream(), 1);
  }
}

TEST(MockFindsDescriptorsThatAreNotSetOrDestroyed) {
  FreshMock fresh;
  void *handle, *descriptor;
  size_t bytes;
  EXPECT(cudnnCreate(&handle) == 0 && cudnnCreateRNNDescriptor(&descriptor) == 0);
  ExpectViolation(cudnnGetRNNWeightSpaceSize(handle, descriptor, &bytes), "created, but not set");
  int status = 0;
  std::thread([&] { status = cudnnDestroyRNNDescriptor(descriptor); }).join();
  ExpectViolation(status, "no context is current");
  EXPECT(cudnnDestroyRNNDescriptor(descriptor) == 0 && cudnnDestroy(handle) == 0);
  ExpectViolation(cudnnDestroyRNNDescriptor(descriptor), "is destroyed");
}

TEST(MockFindsAHandleThatTwoThreadsUse) {
  FreshMock fresh;
  void *first, *second;
  EXPECT(cudnnCreate(&first) == 0 && cudnnCreate(&second) == 0);
  const auto use_at_once = [](void* one, void* other) {
    mock_let_calls_meet(2);
    std::thread thread([=] {
      mock_set_thread_device(0);
      cudnnSetStream(other, Stream());
    });
    cudnnSetStream(one, Stream());
    thread.join();
  };
  use_at_once(first, second);
  EXPECT(mock_violations() == 0, mock_violation_text());
  use_at_once(first, first);
  ExpectViolation(-1, "is in use by another thread");
  EXPECT(cudnnDestroy(first) == 0 && cudnnDestroy(second) == 0);
}

TEST(MockDescribesDevices) {
  FreshMock fresh;
  mock_set_num_devices(2);
  mock_set_device(1, 86, 84, 1000);
  const struct {
    int device, major, minor, multiprocessors;
    const char* name;
    size_t memory_bytes;
  } devices[] = {{0, 8, 0, 108, "Mock sm_80", size_t{16} << 30}, {1, 8, 6, 84, "Mock sm_86", 1000}};
  for (const auto& expected : devices) {
    char name[32];
    size_t bytes;
    int major, minor, multiprocessors;
    EXPECT(cuDeviceGetName(name, sizeof(name), expected.device) == 0);
    EXPECT(cuDeviceTotalMem_v2(&bytes, expected.device) == 0 && bytes == expected.memory_bytes);
    EXPECT(cuDeviceGetAttribute(&major, 75, expected.device) == 0 && major == expected.major);
    EXPECT(cuDeviceGetAttribute(&minor, 76, expected.device) == 0 && minor == expected.minor);
    EXPECT(cuDeviceGetAttribute(&multiprocessors, 16, expected.device) == 0);
    EXPECT(multiprocessors == expected.multiprocessors && std::string(name) == expected.name);
  }
  int value;
  ExpectViolation(cuDeviceGetAttribute(&value, 75, 2), "there is no device 2");
  ExpectViolation(cuDeviceGetAttribute(&value, 1, 0), "attribute 1 is not known");
}

TEST(MockReportsErrorsOfKernelsAtTheNextWait) {
  Problem problem;
  problem.config.num_units = problem.config.input_size = 2;
  problem.shape = {1, 1, true};
  for (const int way : {0, 1, 2}) {
    MockGpu gpu;
    mock_set_algorithm_support(kCudnnAlgorithmStandard, MOCK_FAILS_LATER);
    GpuModel model(gpu.runtime());
    EXPECT(model.Run(problem, problem.Options(false), CallBuffers(problem, 1)).ok());
    void *context, *event;
    EXPECT(cuStreamGetCtx(kStream, &context) == 0 && cuCtxPushCurrent_v2(context) == 0);
    EXPECT(cuEventCreate(&event, 0) == 0 && cuEventRecord(event, kStream) == 0);
    const auto wait = [&] {
      DeviceAddress memory;
      if (way == 0) return cuStreamSynchronize(kStream);
      if (way == 1) return cuEventSynchronize(event);
      const int status = cuMemAlloc_v2(&memory, 16);
      if (status == 0) cuMemFree_v2(memory);
      return status;
    };
    EXPECT(wait() == 719, "way ", way);
    EXPECT(wait() == 0, "the error is reported once");
    EXPECT(cuEventDestroy_v2(event) == 0 && cuCtxPopCurrent_v2(&context) == 0);
  }
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
  EXPECT(std::string(mock_log()).find("cuEventCreate\n") != std::string::npos);

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

}  // namespace
}  // namespace cudnn_rnn
