// Measures how fast threads can repeatedly read their own slices of a block of memory:
//
//   read_bandwidth THREADS BYTES
//
// prints gigabytes per second of all threads together. This rate limits a recurrent network in
// which each thread reads its own slice of the weights at every step.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/core/buffers.h"

namespace {

// A cache line.
typedef int64_t Line __attribute__((vector_size(64), aligned(64), may_alias));

// Sums the lines, so that the compiler cannot skip the reads.
int64_t ReadAll(const Line* lines, size_t count) {
  Line sum = {};
  for (size_t i = 0; i < count; ++i) sum += lines[i];
  return std::accumulate(&sum[0], &sum[0] + 8, int64_t{0});
}

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Returns the seconds until every thread has read its slice `passes` times.
double Measure(int num_threads, size_t slice_bytes, int64_t passes) {
  std::atomic<int> ready{0};
  std::vector<double> seconds(static_cast<size_t>(num_threads));
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      const size_t count = std::max<size_t>(1, slice_bytes / sizeof(Line));
      cudnn_rnn::Memory memory(static_cast<int64_t>(count * sizeof(Line)));
      const Line* lines = reinterpret_cast<const Line*>(memory.data());
      int64_t sum = ReadAll(lines, count);
      ++ready;
      while (ready.load() < num_threads) std::this_thread::yield();
      const double begin = Now();
      for (int64_t pass = 0; pass < passes; ++pass) {
        sum += ReadAll(lines, count);
        // To the compiler, uses the sum, and may change the memory.
        __asm__ volatile("" : : "r"(lines), "r"(sum) : "memory");
      }
      seconds[static_cast<size_t>(t)] = Now() - begin;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

int main(int argc, char** argv) {
  const int num_threads = argc == 3 ? std::atoi(argv[1]) : 0;
  const double bytes = argc == 3 ? std::atof(argv[2]) : 0;
  if (num_threads < 1 || !(bytes >= 1)) {
    std::fprintf(stderr, "Usage: read_bandwidth THREADS BYTES\n");
    return 2;
  }
  const size_t slice = static_cast<size_t>(bytes / num_threads);
  const double read_at_once = static_cast<double>(std::max<size_t>(slice, 64)) * num_threads;
  const int64_t passes = std::max<int64_t>(1, static_cast<int64_t>(4e8 / read_at_once));
  double best = 0;
  for (int trial = 0; trial < 5; ++trial) {
    const double seconds = Measure(num_threads, slice, passes);
    best = std::max(best, read_at_once * static_cast<double>(passes) / seconds * 1e-9);
  }
  std::printf("%.2f\n", best);
}
