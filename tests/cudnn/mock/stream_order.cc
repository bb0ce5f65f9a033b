#include "tests/cudnn/mock/stream_order.h"

#include <algorithm>

#include "cudnn_rnn/cc/core/status.h"

namespace cudnn_rnn {
namespace mock {
namespace {

constexpr size_t kMaxAccesses = 4096;

}  // namespace

void StreamOrder::Merge(const Clock& source, Clock* target) {
  for (const auto& entry : source) {
    int64_t& time = (*target)[entry.first];
    time = std::max(time, entry.second);
  }
}

StreamOrder::Clock& StreamOrder::ClockOf(const void* stream) {
  Clock& clock = clocks_[stream];
  Merge(host_, &clock);
  return clock;
}

void StreamOrder::HostWaitsForAll() {
  for (const auto& entry : clocks_) Merge(entry.second, &host_);
}

std::string StreamOrder::Use(const void* stream, const void* data, int64_t bytes, bool is_written) {
  if (bytes <= 0) return "";
  Clock& clock = ClockOf(stream);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  const Access access = {stream, ++clock[stream], begin, begin + static_cast<uintptr_t>(bytes),
                         is_written};
  std::string conflict;
  for (const Access& earlier : accesses_) {
    const bool overlaps = earlier.begin < access.end && access.begin < earlier.end;
    if (!overlaps || !(earlier.is_written || is_written)) continue;
    const auto known = clock.find(earlier.stream);
    if (known != clock.end() && known->second >= earlier.time) continue;
    conflict = Concatenate("stream ", stream, (is_written ? " writes " : " reads "), data,
                           ", but does not wait for stream ", earlier.stream, ", which ",
                           (earlier.is_written ? "writes" : "reads"), " that memory");
    break;
  }
  accesses_.push_back(access);
  if (accesses_.size() > kMaxAccesses) accesses_.pop_front();
  return conflict;
}

}  // namespace mock
}  // namespace cudnn_rnn
