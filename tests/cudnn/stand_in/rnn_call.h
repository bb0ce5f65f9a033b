// What cudnnRNNForward and its two gradients have in common: their arguments found and checked,
// the layout of the reserve space, data in the CPU plan's order.
#ifndef CUDNN_RNN_TESTS_CUDNN_STAND_IN_RNN_CALL_H_
#define CUDNN_RNN_TESTS_CUDNN_STAND_IN_RNN_CALL_H_

#include <memory>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "tests/cudnn/stand_in/cudnn_call.h"
#include "tests/cudnn/stand_in/weight_space.h"

namespace cudnn_rnn {
namespace stand_in {

// The reserve space begins with this. No pointers: the caller may copy the space.
struct ReserveHeader {
  uint64_t magic;
  uint64_t stage;  // one of the two below
  uint64_t model;  // fingerprint of model, shape and lengths
  uint64_t weights;
};
constexpr uint64_t kReserveMagic = 0x7374616e64726573;
constexpr uint64_t kAfterForward = 1;
constexpr uint64_t kAfterBackwardData = 2;

// Offsets of what follows the header; x and y as [T, B, width].
struct ReserveLayout {
  int64_t plan, x, y, hx, cx, hy, weight_gradient, total;
};

// Zeroed memory, aligned as the CPU plan wants it.
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
  bool may_be_null;
  size_t alignment;
};

// The arguments of one call, copied, so that the arithmetic needs no lock.
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
  // Bytes of x and y as [T, B, width], and of the states.
  int64_t x_bytes = 0, y_bytes = 0, h_bytes = 0, c_bytes = 0;

  int64_t element_size() const { return SizeOf(config.data_type); }
  bool has_cell_state() const { return config.has_cell_state(); }
  SequenceShape shape() const { return {x.num_steps, x.batch_size, true}; }
  // Of the caller's memory.
  int64_t x_memory() const { return x.size().value() * element_size(); }
  int64_t y_memory() const { return y.size().value() * element_size(); }
  uint64_t ModelFingerprint() const;
};

// The descriptors as the caller passes them; those of states are null where a function has none.
struct RnnDescriptors {
  void* handle;
  void* rnn;
  const int32_t* device_lengths;
  void* x;
  void* y;
  void* h;
  void* c;
};

// The caller's buffers beside the tensors.
struct RnnBuffers {
  size_t weight_space_bytes, workspace_bytes;
  void* workspace;
  size_t reserve_space_bytes;
  void* reserve_space;
};

// Model, data descriptor of x and the sizes that follow from them.
int PrepareSizes(Call* call, void* handle, void* rnn_descriptor, void* x_descriptor,
                 bool is_training, RnnCall* rnn_call);
// All that descriptors and sizes say.
int PrepareCall(Call* call, const RnnDescriptors& descriptors, const RnnBuffers& buffers,
                bool is_training, RnnCall* rnn_call);
int CheckOperands(Call* call, const std::vector<Operand>& operands);
// The reserve space is that of a forward call of this model, shape and lengths, at this stage.
int CheckReserveSpace(Call* call, const RnnCall& rnn_call, const void* reserve_space,
                      uint64_t stage, ReserveHeader* header);

// From the caller's layout to [T, B, width], 0 beyond each length, and back.
void Unpack(const RnnDataDescriptor& descriptor, int64_t element_size, const void* data,
            char* time_major);
enum class Padding { kZero, kAsDescribed };
void Pack(const RnnDataDescriptor& descriptor, int64_t element_size, const char* time_major,
          Padding padding, void* data);

}  // namespace stand_in
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_STAND_IN_RNN_CALL_H_
