// Common code of cudnnRNNForward and its two backward functions: checked arguments, the layout of
// the reserve space, and conversion of data to the CPU plan's layout.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_RNN_CALL_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_RNN_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "tests/cudnn/mock/cudnn_call.h"
#include "tests/cudnn/mock/weight_space.h"

namespace cudnn_rnn {
namespace mock {

// The header of the reserve space. It has no pointers, because the caller may copy the space.
struct ReserveHeader {
  uint64_t magic;
  uint64_t stage;    // kAfterForward or kAfterBackwardData
  uint64_t model;    // fingerprint of model, shape, lengths, algorithm and math type
  uint64_t weights;  // fingerprint of the weights
  // Of the dropout pattern, instead of the pattern itself.
  int64_t dropout_seed, dropout_seed2;
};
static_assert(sizeof(ReserveHeader) <= kBufferAlignment, "ReserveLayout");

inline uint64_t FingerprintOf(const std::string& bytes) { return std::hash<std::string>()(bytes); }

constexpr uint64_t kReserveMagic = 0x7374616e64726573;
constexpr uint64_t kAfterForward = 1;
constexpr uint64_t kAfterBackwardData = 2;

// Offsets of the parts after the header; x and y are [T, B, width].
struct ReserveLayout {
  int64_t plan, x, y, hx, cx, hy, weight_gradient, total;
};

// Zeroed memory with the alignment that the CPU plan requires.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : storage_(static_cast<size_t>(bytes) + kBufferAlignment) {}
  char* data() {
    const uintptr_t address = reinterpret_cast<uintptr_t>(storage_.data());
    return storage_.data() + (kBufferAlignment - address % kBufferAlignment) % kBufferAlignment;
  }

 private:
  std::vector<char> storage_;
};

// An argument that is a range of device memory.
struct Operand {
  const char* name;
  const void* data;
  int64_t bytes;
  bool is_written;
  size_t alignment;
};

// Copies `bytes` bytes; the pointers may be null if that is 0.
void Copy(const void* source, int64_t bytes, void* target);

// Copies of the arguments of one call, so that the arithmetic needs no lock.
struct RnnCall {
  void* stream = nullptr;
  RnnDescriptor rnn;
  RnnConfig config;  // with dropout and seeds
  void* dropout_states = nullptr;
  DropoutStates dropout = {};
  RnnDataDescriptor x, y;
  std::unique_ptr<RnnPlan> plan;
  WeightSpace weights;
  ReserveLayout reserve = {};
  int64_t workspace_bytes = 0;
  // The model's plan is made again if its seeds change.
  Status CreatePlan();
  // Sizes of x and y as [T, B, width], and of the states, in bytes.
  int64_t x_bytes = 0, y_bytes = 0, h_bytes = 0, c_bytes = 0;

  int64_t element_size() const { return SizeOf(config.data_type); }
  bool has_cell_state() const { return config.has_cell_state(); }
  SequenceShape shape() const { return {x.num_steps, x.batch_size, true}; }
  // Sizes of x and y in the caller's layout, in bytes.
  int64_t x_memory() const { return x.num_elements().value() * element_size(); }
  int64_t y_memory() const { return y.num_elements().value() * element_size(); }
  uint64_t ModelFingerprint() const;
  // Returns the fault of these results.
  int FaultOf(const State& state, int results) const {
    const Options& options = state.record.options;
    const bool is_wrong =
        config.data_type == DataType::kBfloat16 && options.wrong_bfloat16 == results;
    return is_wrong ? options.bfloat16_fault : MOCK_NO_FAULT;
  }
  bool Behaves(State* state, int support) const {
    return state->Behaves(rnn.algorithm, support, x.num_steps, x.batch_size);
  }
};

// The descriptors as the caller passes them; `c` is null for a function without that parameter.
struct RnnDescriptors {
  void* handle;
  void* rnn;
  const int32_t* device_lengths;
  void* x;
  void* y;
  void* h;
  void* const* c;
};

// The caller's buffers other than the tensors.
struct RnnBuffers {
  size_t weight_space_bytes, workspace_bytes;
  void* workspace;
  size_t reserve_space_bytes;
  void* reserve_space;
};

// Checks the model and the data descriptor of x, and computes the sizes that follow from them.
int PrepareSizes(Call* call, void* handle, void* rnn_descriptor, void* x_descriptor,
                 bool is_training, RnnCall* rnn_call);
// Checks all descriptors and buffer sizes, and fills in `rnn_call`.
int PrepareCall(Call* call, const RnnDescriptors& descriptors, const RnnBuffers& buffers,
                bool is_training, RnnCall* rnn_call);
// Checks the operands, the workspace and the reserve space.
int CheckOperands(Call* call, const RnnCall& rnn_call, const RnnBuffers& buffers,
                  std::vector<Operand> operands);
// Requires the reserve space of a forward call with this model, shape, lengths, algorithm and math
// type, at this stage. Takes over its dropout seeds.
int CheckReserveSpace(Call* call, const void* reserve_space, uint64_t stage, RnnCall* rnn_call,
                      ReserveHeader* header);

// Convert between the caller's layout and [T, B, width]. Unpack writes 0 beyond each length.
void Unpack(const RnnDataDescriptor& descriptor, int64_t element_size, const void* data,
            char* time_major);
enum class Padding { kKept, kAsDescribed };
void Pack(const RnnDataDescriptor& descriptor, int64_t element_size, const char* time_major,
          Padding padding, void* data);

}  // namespace mock
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_RNN_CALL_H_
