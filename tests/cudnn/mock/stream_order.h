// The order of work on streams: finds work that may run at the same time as other work on the same
// memory, although the mock runs all work at once.
//
// Work on one stream runs in order. Work on another stream comes later only if that stream waits
// for an event recorded after the first, or if the host has waited before it queued the second.
#ifndef CUDNN_RNN_TESTS_CUDNN_MOCK_STREAM_ORDER_H_
#define CUDNN_RNN_TESTS_CUDNN_MOCK_STREAM_ORDER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace cudnn_rnn {
namespace mock {

class StreamOrder {
 public:
  // For each stream, the number of its operations that are known to be done.
  using Clock = std::map<const void*, int64_t>;

  // Records that an operation queued on `stream` uses this memory. Returns "", or a description of
  // an earlier operation on the memory that may still be running.
  std::string Use(const void* stream, const void* data, int64_t bytes, bool is_written);

  // Returns the clock of an event recorded on `stream`.
  Clock Record(const void* stream) { return ClockOf(stream); }
  void StreamWaits(const void* stream, const Clock& clock) { Merge(clock, &clocks_[stream]); }
  void HostWaits(const Clock& clock) { Merge(clock, &host_); }
  void HostWaitsForAll();

 private:
  struct Access {
    const void* stream;
    int64_t time;
    uintptr_t begin;
    uintptr_t end;
    bool is_written;
  };

  static void Merge(const Clock& source, Clock* target);
  Clock& ClockOf(const void* stream);

  std::map<const void*, Clock> clocks_;
  Clock host_;
  std::deque<Access> accesses_;  // the latest ones
};

}  // namespace mock
}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_TESTS_CUDNN_MOCK_STREAM_ORDER_H_
