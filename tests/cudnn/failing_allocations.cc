#include "tests/cudnn/failing_allocations.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "tests/cudnn/mock/state.h"

namespace {

thread_local int64_t allocations_until_failure = 0;  // 0: none fails
thread_local bool all_later_allocations_fail = false;
thread_local bool has_failed = false;

void* Allocate(std::size_t bytes) {
  const bool counts = cudnn_rnn::mock::InMock::depth == 0;
  if (counts && allocations_until_failure > 0 && --allocations_until_failure == 0) {
    if (all_later_allocations_fail) allocations_until_failure = 1;
    has_failed = true;
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Replace the program's global allocation functions.
void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace cudnn_rnn {

void FailAllocation(int64_t n, bool all_later) {
  has_failed = false;
  all_later_allocations_fail = all_later;
  allocations_until_failure = n;
}

bool StopFailingAllocations() {
  allocations_until_failure = 0;
  return has_failed;
}

}  // namespace cudnn_rnn
