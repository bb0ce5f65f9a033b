// Waits in their own file, since tests/schedules replaces them: a loop that polls what other
// threads store calls Backoff::Wait in each round, and asks Backoff::IsOver for the time.
#include <thread>

#include "cudnn_rnn/cc/core/team.h"

namespace cudnn_rnn {
namespace {

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");  // Most processors execute `yield` without a pause.
#endif
}

}  // namespace

void Backoff::Wait() {
  constexpr int64_t kPauses = 4000, kYields = 2000;
  ++num_waits_;
  if (pauses_ && num_waits_ <= kPauses) {
    Pause();
  } else if (num_waits_ <= kPauses + kYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

bool Backoff::IsOver(int64_t nanoseconds) {
  constexpr int64_t kWaitsPerReading = 32;  // Reading the clock takes as long as some pauses.
  if (num_waits_ == 0 || num_waits_ % kWaitsPerReading != 0) return false;
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (num_waits_ == kWaitsPerReading) start_ = now;
  return now - start_ > std::chrono::nanoseconds(nanoseconds);
}

}  // namespace cudnn_rnn
