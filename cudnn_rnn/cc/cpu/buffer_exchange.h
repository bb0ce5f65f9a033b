// Converts between the caller's buffers and the engine's.
//
// The engine's buffers have its own real type, are time-major and hold packed sequences (see
// packed_sequences.h). A caller's buffer that already has this form is used in place; any other is
// copied to or from the workspace.
#ifndef CUDNN_RNN_CC_CPU_BUFFER_EXCHANGE_H_
#define CUDNN_RNN_CC_CPU_BUFFER_EXCHANGE_H_

#include <cstdint>
#include <type_traits>

#include "cudnn_rnn/cc/core/arena.h"
#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/kernels.h"
#include "cudnn_rnn/cc/cpu/packed_sequences.h"

namespace cudnn_rnn {

// The 16-bit storage types. float and double are their own storage types.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

// Maps a row of an engine buffer to its row in the caller's buffer.
//
// Engine rows are numbered as in a time-major [outer, B]. `permutation` [period] maps each group of
// `period` rows to the caller's order; a batch-major caller stores the rows as [B, outer].
struct RowMap {
  int64_t outer;
  int64_t batch_size;
  bool time_major;
  const int64_t* permutation;  // null: none
  int64_t period;

  bool IsIdentity() const {
    return permutation == nullptr && (time_major || outer <= 1 || batch_size <= 1);
  }
  int64_t operator()(int64_t row) const {
    if (permutation != nullptr) row = row / period * period + permutation[row % period];
    return time_major ? row : row % batch_size * outer + row / batch_size;
  }
};

// The shape of a buffer: [num_rows, width]. The engine uses the first engine_rows rows; the others
// are padding.
struct BufferShape {
  RowMap map;
  int64_t num_rows;
  int64_t engine_rows;
  int64_t width;
};

template <typename Storage, typename Real>
class BufferExchange {
 public:
  // Allocates copies from `copies`.
  BufferExchange(const Kernels<Real>& kernels, Arena* copies, TeamMember* member)
      : kernels_(kernels), copies_(copies), member_(member) {}

  // Called before the engine runs: Read returns an input in the engine's form, OutputMemory the
  // memory that the engine writes an output to. Null buffers are empty.
  const Real* Read(const void* buffer, const BufferShape& shape) const;
  Real* OutputMemory(void* buffer, const BufferShape& shape) const;
  // Called after the engine: stores its output in the caller's buffer; padding becomes 0.
  void Store(const Real* values, const BufferShape& shape, void* buffer) const;

 private:
  static bool NeedsCopy(const BufferShape& shape) {
    return !std::is_same<Storage, Real>::value || !shape.map.IsIdentity();
  }

  const Kernels<Real>& kernels_;
  Arena* const copies_;
  TeamMember* const member_;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_BUFFER_EXCHANGE_H_
