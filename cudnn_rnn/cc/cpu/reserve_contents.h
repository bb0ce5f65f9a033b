// What the reserve space of a training call holds besides the engine's results.
//
// The reserve space is a tensor, which programs read: they print it, and search it for NaN and
// infinity. Every element of it is therefore defined, finite unless a result of the model is not,
// and equal in equal calls. What the engine leaves unwritten is 0: rows of padding and the gaps
// after rows and buffers. In a 16-bit tensor, the engine's floats are rearranged (MakeHalvesFinite
// in float16.h); a backward pass reads a copy in which they are restored, or restores them in
// place.
#ifndef CUDNN_RNN_CC_CPU_RESERVE_CONTENTS_H_
#define CUDNN_RNN_CC_CPU_RESERVE_CONTENTS_H_

#include <cstdint>

#include "cudnn_rnn/cc/core/team.h"
#include "cudnn_rnn/cc/cpu/engine_model.h"

namespace cudnn_rnn {

// Conversions::make_halves_finite of the tensor's type, or null if the tensor has the engine's
// type.
template <typename T>
using Rearrangement = decltype(Conversions<T>::make_halves_finite);

// Every member of a team calls these. `num_rows` is N, the number of packed rows.

// Follows RunForward, and all that reads the engine's results from the reserve space.
template <typename T>
void FinishReserveSpace(const EngineModel<T>& model, int64_t num_rows, Rearrangement<T> rearrange,
                        void* reserve_space, TeamMember* member);

// Copies the engine's results from a finished reserve space to `target`, which may be the same
// memory.
template <typename T>
void RestoreReserveSpace(const EngineModel<T>& model, int64_t num_rows, Rearrangement<T> rearrange,
                         void* reserve_space, void* target, TeamMember* member);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CPU_RESERVE_CONTENTS_H_
