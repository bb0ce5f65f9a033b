#include "tests/cudnn/host/real_cudnn.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/core/testing.h"
#include "tests/cudnn/mock/mock_cudnn.h"

namespace cudnn_rnn {
namespace {

// The real library's descriptors, by the mock's.
std::map<void*, void*>& RealDescriptors() {
  static std::map<void*, void*> descriptors;
  return descriptors;
}

int64_t num_repeated = 0, num_refused = 0;

// Returns the real library's argument. Addresses of the mock's descriptors point to no memory, so
// they differ from all other pointers.
template <typename T>
T RealArgument(T argument) {
  return argument;
}
void* RealArgument(void* argument) {
  const auto found = RealDescriptors().find(argument);
  return found == RealDescriptors().end() ? argument : found->second;
}

template <typename... Arguments>
void Compare(const char* function, int mock_status, int real_status,
             const Arguments&... arguments) {
  ++num_repeated;
  if (real_status != kCudnnSuccess) ++num_refused;
  if (mock_status == real_status) return;
  std::string text;
  for (const std::string& argument : {Concatenate(arguments)...}) {
    text += (text.empty() ? "" : ", ") + argument;
  }
  EXPECT(false, function, "(", text, ") returns ", mock_status, " in the mock, but ", real_status,
         " in cuDNN ", CudnnVersionText(RealCudnn().cudnn_version));
}

// The functions that replace those of the mock in its table. `member`: of which function.
template <typename Member, Member member>
struct Repeated;

template <typename... Parameters, int (*GpuLibraries::*member)(Parameters...)>
struct Repeated<int (*GpuLibraries::*)(Parameters...), member> {
  static int (*mock)(Parameters...);
  static const char* name;

  static int Set(Parameters... arguments) {
    const int status = mock(arguments...);
    Compare(name, status, (RealCudnn().*member)(RealArgument(arguments)...), arguments...);
    return status;
  }
  static int Create(void** descriptor) {
    const int status = mock(descriptor);
    void* real = nullptr;
    Compare(name, status, (RealCudnn().*member)(&real), descriptor);
    if (status == kCudnnSuccess) RealDescriptors()[*descriptor] = real;
    return status;
  }
  static int Destroy(void* descriptor) {
    const int status = mock(descriptor);
    Compare(name, status, (RealCudnn().*member)(RealArgument(descriptor)), descriptor);
    RealDescriptors().erase(descriptor);
    return status;
  }
};
template <typename... Parameters, int (*GpuLibraries::*member)(Parameters...)>
int (*Repeated<int (*GpuLibraries::*)(Parameters...), member>::mock)(Parameters...);
template <typename... Parameters, int (*GpuLibraries::*member)(Parameters...)>
const char* Repeated<int (*GpuLibraries::*)(Parameters...), member>::name;

void RepeatCalls(GpuLibraries* table) {
#define CUDNN_RNN_REPEAT(kind, symbol)                                                 \
  {                                                                                    \
    using Function = Repeated<decltype(&GpuLibraries::symbol), &GpuLibraries::symbol>; \
    Function::mock = table->symbol;                                                    \
    Function::name = #symbol;                                                          \
    table->symbol = Function::kind;                                                    \
  }
  CUDNN_RNN_REPEAT(Create, cudnnCreateTensorDescriptor)
  CUDNN_RNN_REPEAT(Create, cudnnCreateDropoutDescriptor)
  CUDNN_RNN_REPEAT(Create, cudnnCreateRNNDescriptor)
  CUDNN_RNN_REPEAT(Create, cudnnCreateRNNDataDescriptor)
  CUDNN_RNN_REPEAT(Destroy, cudnnDestroyTensorDescriptor)
  CUDNN_RNN_REPEAT(Destroy, cudnnDestroyDropoutDescriptor)
  CUDNN_RNN_REPEAT(Destroy, cudnnDestroyRNNDescriptor)
  CUDNN_RNN_REPEAT(Destroy, cudnnDestroyRNNDataDescriptor)
  CUDNN_RNN_REPEAT(Set, cudnnSetTensorNdDescriptor)
  CUDNN_RNN_REPEAT(Set, cudnnSetRNNDescriptor_v8)
  CUDNN_RNN_REPEAT(Set, cudnnSetRNNDataDescriptor)
#undef CUDNN_RNN_REPEAT
}

}  // namespace

std::string RealCudnnPath() {
  const char* const path = std::getenv("CUDNN_RNN_REAL_CUDNN");
  return path == nullptr ? "" : path;
}

const GpuLibraries& RealCudnn() {
  static const GpuLibraries* const opened = [] {
    GpuLibraries* const libraries = new GpuLibraries();
    LibrarySearch search;
    search.cudnn_file = RealCudnnPath();
    const Status status =
        search.cudnn_file.empty()
            ? InvalidArgument(
                  "Set CUDNN_RNN_REAL_CUDNN to the path of a real libcudnn.so.*, as "
                  "scripts/run_host_cudnn_tests.sh does.")
            : OpenCudnn(search, libraries);
    if (!status.ok()) {
      std::printf("FAILED: %s\n", status.message().c_str());
      std::fflush(stdout);
      std::_Exit(1);
    }
    return libraries;
  }();
  return *opened;
}

bool RealCudnnHasBfloat16() { return RealCudnn().cudnn_version >= kMinCudnnVersionForBfloat16; }

void MockRealVersion() { mock_set_version(static_cast<int64_t>(RealCudnn().cudnn_version)); }

ComparedGpu::ComparedGpu() {
  MockRealVersion();
  gpu_.Reopen();
  RepeatCalls(gpu_.libraries());
  num_repeated = num_refused = 0;
}

ComparedGpu::~ComparedGpu() {
  EXPECT(RealDescriptors().empty(), RealDescriptors().size(), " descriptors left");
}

int64_t ComparedGpu::num_calls() const { return num_repeated; }
int64_t ComparedGpu::num_refusals() const { return num_refused; }

}  // namespace cudnn_rnn
