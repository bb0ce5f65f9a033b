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
#include <thread>
#include <vector>

#include "tests/core/buffers.h"

namespace {

// The widest vector that the compiler keeps in a register.
#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif
typedef int64_t Vector __attribute__((vector_size(kVectorBytes), aligned(kVectorBytes), may_alias));
constexpr size_t kBlockBytes = 4 * kVectorBytes;  // read at a time

// Sums the vectors, a multiple of four, so that the compiler cannot skip the reads. With one sum,
// each addition would wait for the previous one.
int64_t ReadAll(const Vector* vectors, size_t count) {
  Vector sums[4] = {};
  for (size_t i = 0; i < count; i += 4) {
    sums[0] += vectors[i];
    sums[1] += vectors[i + 1];
    sums[2] += vectors[i + 2];
    sums[3] += vectors[i + 3];
  }
  const Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  int64_t total = 0;
  for (size_t lane = 0; lane < kVectorBytes / sizeof(int64_t); ++lane) total += sum[lane];
  return total;
}

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Returns the seconds until every thread has read its slice, whole blocks, `passes` times.
double Measure(int num_threads, size_t slice_bytes, int64_t passes) {
  std::atomic<int> ready{0};
  std::vector<double> seconds(static_cast<size_t>(num_threads));
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      const size_t count = slice_bytes / kVectorBytes;
      cudnn_rnn::Memory memory(static_cast<int64_t>(slice_bytes));
      const Vector* vectors = reinterpret_cast<const Vector*>(memory.data());
      int64_t sum = ReadAll(vectors, count);
      ++ready;
      while (ready.load() < num_threads) std::this_thread::yield();
      const double begin = Now();
      for (int64_t pass = 0; pass < passes; ++pass) {
        sum += ReadAll(vectors, count);
        // To the compiler, uses the sum, and may change the memory.
        __asm__ volatile("" : : "r"(vectors), "r"(sum) : "memory");
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
  const size_t blocks = static_cast<size_t>(bytes / num_threads) / kBlockBytes;
  const size_t slice = std::max<size_t>(1, blocks) * kBlockBytes;
  const double read_at_once = static_cast<double>(slice) * num_threads;
  const int64_t passes = std::max<int64_t>(1, static_cast<int64_t>(4e8 / read_at_once));
  double best = 0;
  for (int trial = 0; trial < 5; ++trial) {
    const double seconds = Measure(num_threads, slice, passes);
    best = std::max(best, read_at_once * static_cast<double>(passes) / seconds * 1e-9);
  }
  std::printf("%.2f\n", best);
}
