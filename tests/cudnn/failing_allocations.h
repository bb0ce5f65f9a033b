// Makes allocations of host memory fail.
#ifndef CUDNN_RNN_TESTS_CUDNN_FAILING_ALLOCATIONS_H_
#define CUDNN_RNN_TESTS_CUDNN_FAILING_ALLOCATIONS_H_

#include <cstdint>

namespace cudnn_rnn {

// Makes the n-th allocation of this thread fail (1: the next one), alone or with all later ones.
// Allocations of the mock that is linked into this program neither count nor fail.
void FailAllocation(int64_t n, bool all_later);

// Returns whether an allocation has failed.
bool StopFailingAllocations();

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_FAILING_ALLOCATIONS_H_
