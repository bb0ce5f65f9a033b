// Calls the functions without a handle with right and wrong arguments in the mock and in the real
// cuDNN, and expects the same answers. Null pointers are left out: they end some versions.

#include <initializer_list>
#include <map>
#include <random>

#include "tests/core/testing.h"
#include "tests/cudnn/host/real_cudnn.h"
#include "tests/cudnn/mock/functions.h"

namespace cudnn_rnn {
namespace {

// A descriptor of the mock and one of the real library.
class DescriptorPair {
 public:
  using Create = int (*GpuLibraries::*)(void**);
  using Destroy = int (*GpuLibraries::*)(void*);

  DescriptorPair(MockGpu* gpu, Create create, Destroy destroy) : gpu_(gpu), destroy_(destroy) {
    EXPECT((gpu->libraries()->*create)(&mock) == 0);
    EXPECT((RealCudnn().*create)(&real) == 0);
  }
  ~DescriptorPair() {
    EXPECT((gpu_->libraries()->*destroy_)(mock) == 0);
    EXPECT((RealCudnn().*destroy_)(real) == 0);
  }
  DescriptorPair(const DescriptorPair&) = delete;
  DescriptorPair& operator=(const DescriptorPair&) = delete;

  void* mock = nullptr;
  void* real = nullptr;

 private:
  MockGpu* const gpu_;
  const Destroy destroy_;
};

// The mock with a context, which it needs to destroy descriptors.
class MockWithContext {
 public:
  MockWithContext() {
    void* context = nullptr;
    EXPECT(cuStreamGetCtx(kStream, &context) == 0 && cuCtxPushCurrent_v2(context) == 0);
    MockRealVersion();
  }
  ~MockWithContext() {
    void* context = nullptr;
    mock_reset();  // forgets violations
    EXPECT(cuCtxPopCurrent_v2(&context) == 0);
  }
  MockGpu* gpu() { return &gpu_; }

 private:
  MockGpu gpu_;
};

// Compares statuses, and counts them. Reports only the first differences.
class Answers {
 public:
  void Add(int mock, int real, const std::string& text) {
    if (mock != real && ++num_differences_ <= 20) {
      EXPECT(false, text, ": the mock returns ", mock, ", cuDNN ",
             CudnnVersionText(RealCudnn().cudnn_version), " ", real);
    }
    ++counts_[real];
    mock_reset();  // the log of calls
    MockRealVersion();
  }
  // Expects `statuses` different statuses, each at least `at_least` times.
  void ExpectAll(size_t statuses, int at_least) const {
    EXPECT(num_differences_ == 0, num_differences_, " differences");
    EXPECT(counts_.size() == statuses, counts_.size(), " statuses");
    for (const auto& count : counts_) {
      EXPECT(count.second >= at_least, "status ", count.first, ": ", count.second);
    }
  }

 private:
  std::map<int, int> counts_;
  int num_differences_ = 0;
};

// Chooses arguments: mostly the first value, so that most calls have few wrong ones.
class Chooser {
 public:
  int operator()(std::initializer_list<int> values) {
    const size_t number = generator_() % 6 < 4 ? 0 : generator_() % values.size();
    return values.begin()[number];
  }

 private:
  std::mt19937 generator_{17};
};

TEST(RnnDescriptorsAnswerAlike) {
  MockWithContext context;
  const DescriptorPair rnn(context.gpu(), &GpuLibraries::cudnnCreateRNNDescriptor,
                           &GpuLibraries::cudnnDestroyRNNDescriptor);
  const DescriptorPair dropout(context.gpu(), &GpuLibraries::cudnnCreateDropoutDescriptor,
                               &GpuLibraries::cudnnDestroyDropoutDescriptor);
  void* handle = nullptr;
  EXPECT(cudnnCreate(&handle) == 0 && cudnnSetStream(handle, kStream) == 0);
  EXPECT(cudnnSetDropoutDescriptor(dropout.mock, handle, 0, nullptr, 0, 0) == 0);
  Chooser choose;
  Answers answers;
  for (int i = 0; i < 200000; ++i) {
    const int arguments[] = {
        choose({0, -1, 1, 2, 3, 4}),           // algorithm
        choose({2, -1, 0, 1, 3, 4}),           // cell mode
        choose({2, -1, 0, 1, 3, 4}),           // bias mode
        choose({0, -1, 1, 2}),                 // direction
        choose({0, -1, 1, 2}),                 // input mode
        choose({0, -1, 1, 2, 3, 5, 9, 99}),    // data type
        choose({0, 1, 2, 9}),                  // precision
        choose({3, -1, 0, 1, 2, 4}),           // math type
        choose({6, -1, 0, 5, 1 << 30}),        // input size
        choose({6, -1, 0, 7, 2000, 1 << 30}),  // hidden size
        choose({6, -1, 0, 4, 2000, 1 << 30}),  // projection size
        choose({1, -1, 0, 3, 1 << 30}),        // layers
        choose({0, 1, 2, 3}),                  // auxiliary flags
    };
    const int* a = arguments;
    std::string text = "cudnnSetRNNDescriptor_v8";
    for (const int argument : arguments) text += Concatenate(" ", argument);
    const uint32_t flags = static_cast<uint32_t>(a[12]);
    answers.Add(
        cudnnSetRNNDescriptor_v8(rnn.mock, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8],
                                 a[9], a[10], a[11], dropout.mock, flags),
        RealCudnn().cudnnSetRNNDescriptor_v8(rnn.real, a[0], a[1], a[2], a[3], a[4], a[5], a[6],
                                             a[7], a[8], a[9], a[10], a[11], dropout.real, flags),
        text);
  }
  answers.ExpectAll(3, 1000);
  EXPECT(cudnnDestroy(handle) == 0);
}

TEST(RnnDataDescriptorsAnswerAlike) {
  MockWithContext context;
  const DescriptorPair data(context.gpu(), &GpuLibraries::cudnnCreateRNNDataDescriptor,
                            &GpuLibraries::cudnnDestroyRNNDataDescriptor);
  Chooser choose;
  Answers answers;
  for (int i = 0; i < 100000; ++i) {
    const int data_type = choose({0, -1, 1, 2, 3, 5, 9, 99}), layout = choose({1, 0, 2, -1, 3});
    const int num_steps = choose({5, 0, -1, 65535, 65536, 1 << 30});
    const int batch_size = choose({4, 1, 0, -1}), width = choose({3, 0, -1, 1 << 30});
    int lengths[4];
    std::string text = Concatenate("cudnnSetRNNDataDescriptor ", data_type, " ", layout, " ",
                                   num_steps, " ", batch_size, " ", width, " lengths");
    // Few arrays are sorted by chance.
    const bool is_even = choose({1, 0}) == 1;
    for (int b = 0; b < 4; ++b) {
      lengths[b] = is_even && b > 0 ? lengths[b - 1]
                                    : choose({num_steps, num_steps, 3, 1, 0, num_steps + 1, -1});
      text += Concatenate(" ", lengths[b]);
    }
    answers.Add(cudnnSetRNNDataDescriptor(data.mock, data_type, layout, num_steps, batch_size,
                                          width, lengths, nullptr),
                RealCudnn().cudnnSetRNNDataDescriptor(data.real, data_type, layout, num_steps,
                                                      batch_size, width, lengths, nullptr),
                text);
  }
  answers.ExpectAll(3, 1000);
}

// Returns the shape and the strides that cudnnGetTensorNdDescriptor reports.
std::vector<int> Read(int (*get)(void*, int, int*, int*, int*, int*), void* descriptor) {
  int data_type = -1, num_dimensions = -1, dimensions[8] = {}, strides[8] = {};
  EXPECT(get(descriptor, 8, &data_type, &num_dimensions, dimensions, strides) == 0);
  std::vector<int> values = {data_type, num_dimensions};
  values.insert(values.end(), dimensions, dimensions + 8);
  values.insert(values.end(), strides, strides + 8);
  return values;
}

TEST(TensorDescriptorsAnswerAlike) {
  MockWithContext context;
  const DescriptorPair tensor(context.gpu(), &GpuLibraries::cudnnCreateTensorDescriptor,
                              &GpuLibraries::cudnnDestroyTensorDescriptor);
  Chooser choose;
  Answers answers;
  for (int i = 0; i < 100000; ++i) {
    const int data_type = choose({0, -1, 1, 2, 3, 5, 9, 99});
    const int num_dimensions = choose({3, -1, 0, 1, 2, 4, 8, 9});
    int dimensions[9], strides[9];
    std::string text = Concatenate("cudnnSetTensorNdDescriptor ", data_type, " ", num_dimensions);
    const bool is_packed = choose({1, 1, 0}) == 1;
    for (int d = 8; d >= 0; --d) {
      dimensions[d] = choose({2, 1, 3, 5, 0, -1, 1 << 10, 1 << 15, 1 << 16, 1 << 30});
      const int64_t packed =
          d == 8 || d >= num_dimensions - 1 ? 1 : int64_t{strides[d + 1]} * dimensions[d + 1];
      const bool fits = packed > 0 && packed < int64_t{1} << 31;
      strides[d] =
          is_packed && fits ? static_cast<int>(packed) : choose({1, 2, 7, 0, 1 << 15, 1 << 30});
    }
    for (int d = 0; d < 9; ++d) text += Concatenate(", ", dimensions[d], ":", strides[d]);
    const int mock =
        cudnnSetTensorNdDescriptor(tensor.mock, data_type, num_dimensions, dimensions, strides);
    const int real = RealCudnn().cudnnSetTensorNdDescriptor(tensor.real, data_type, num_dimensions,
                                                            dimensions, strides);
    answers.Add(mock, real, text);
    if (mock != 0 || real != 0) continue;
    EXPECT(Read(cudnnGetTensorNdDescriptor, tensor.mock) ==
               Read(RealCudnn().cudnnGetTensorNdDescriptor, tensor.real),
           text);
  }
  answers.ExpectAll(3, 1000);
}

}  // namespace
}  // namespace cudnn_rnn
