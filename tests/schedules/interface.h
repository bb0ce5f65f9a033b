// The functions that explored code calls, most of them without knowing.
//
// The sources under test are compiled as they are, with -fsanitize=thread, but without the thread
// sanitizer's library: interface.cc defines what such code calls for each atomic operation and each
// access to memory, and passes it to the explorer. The same holds for mutexes (linked with --wrap),
// the clock, new and delete. It also defines Backoff, whose waits would take real time.
#ifndef CUDNN_RNN_TESTS_SCHEDULES_INTERFACE_H_
#define CUDNN_RNN_TESTS_SCHEDULES_INTERFACE_H_

#include <cstdint>

namespace schedules {

// Empties the heaps of all threads.
void ResetHeaps();
// Returns what the next `new` of a thread depends on.
uint64_t HeapState(int thread);
// Returns how many objects in the heaps have not been deleted.
int64_t NumLiveObjects();

// From now on, one `new` of the running thread may fail (as the explorer chooses), if any.
void SetAllocationsMayFail(bool may_fail);

}  // namespace schedules

#endif  // CUDNN_RNN_TESTS_SCHEDULES_INTERFACE_H_
