// The memory of an explored execution: what each thread may read, and whether accesses are ordered.
//
// Atomics follow the operational ("view") model of C++'s release and acquire orders. An atomic
// location keeps all its stores. A view says, for each location, which store a thread knows of, and
// for each thread, which of its events have happened before. A release store keeps the view of its
// thread; an acquire load that reads the store joins it to the view of the reader. A load may
// return any store that is not older than the newest that its thread knows of. Read-modify-writes
// read the newest store. A seq_cst operation counts as acquire and release, and a seq_cst load
// reads nothing older than the last seq_cst store of the location.
//
// Plain accesses are checked with vector clocks: two accesses of which one writes must be ordered.
// The end of life of an object counts as a write. Granules of 8 bytes count as one variable.
//
// Not covered: orders of stores that differ from the order of execution, and loads that read a
// store that is executed later.
#ifndef CUDNN_RNN_TESTS_SCHEDULES_MEMORY_H_
#define CUDNN_RNN_TESTS_SCHEDULES_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace schedules {

constexpr int kMaxThreads = 6;
constexpr int kMaxLocations = 122;
constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kHeapBytes = 64 << 10;

// Returns a hash of a and b that differs from that of b and a.
inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 32)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 29);
}

struct View {
  int16_t store[kMaxLocations];  // newest known store of each location
  int16_t event[kMaxThreads];    // newest known event of each thread

  void Join(const View& other);
};

// A mutex, or anything else that is locked in explored code.
struct Lock {
  const void* address;
  int owner;      // -1: free
  uint64_t hash;  // what the last owner had done, if loads add to the hash which store they read
  View view;      // of the last owner
  // The granules outside the owners' stacks that were written while it was locked: what it guards.
  std::vector<const char*> guarded;
};

// The stacks and heaps of all threads; accesses elsewhere are not checked.
extern char tracked_bytes[];
inline char* Stack(int thread) { return tracked_bytes + thread * kStackBytes; }
// Heap kMaxThreads is of the thread that sets up the execution.
inline char* Heap(int thread) {
  return tracked_bytes + kMaxThreads * kStackBytes + thread * kHeapBytes;
}
constexpr size_t kTrackedBytes = kMaxThreads * kStackBytes + (kMaxThreads + 1) * kHeapBytes;

class Memory {
 public:
  // Forgets everything: another execution begins. `hashes_stores`: loads add to the hash which
  // store they have read; otherwise, only its value.
  void Reset(bool hashes_stores);

  // Each of the following is by `thread`. Those that return a text return what is wrong, or null.

  const char* CheckPlain(int thread, const void* address, size_t size, bool is_write);
  const char* CheckAtomic(int thread, const void* address, size_t size);
  // Ends the life of what the bytes hold. Other threads' accesses must have happened before.
  const char* EndLife(int thread, const char* begin, const char* end);

  // Returns the number of stores that a load may read; option 0 is the newest.
  int NumReadable(int thread, const void* address, size_t size, int order);
  // Returns the value of an option, and adds what was read to the hash.
  uint64_t Load(int thread, const void* address, int option, int order, uint64_t* hash);
  // Replaces the value; `order` of the whole operation. `is_update`: a read-modify-write.
  void Store(int thread, const void* address, uint64_t value, int order, bool is_update,
             uint64_t* hash);

  Lock* FindLock(const void* address);
  void Acquire(int thread, Lock* lock, uint64_t* hash);
  void Release(int thread, Lock* lock, uint64_t hash);

  // A thread that waits sleeps until a location that it has read since BeginRound has a store that
  // it has not read.
  void BeginRound(int thread) { rounds_[thread].clear(); }
  bool HasNews(int thread) const;
  // Returns a hash of what the thread knows of all memory.
  uint64_t HashView(int thread) const;
  // Returns a hash of the newest values of all atomics and of all that locks guard.
  uint64_t HashValues() const;

 private:
  struct StoreRecord {
    uint64_t value, hash;
    bool releases;
    View view;
  };
  struct Location {
    const void* address;
    bool is_reference_count;
    int16_t last_sequential;  // last seq_cst store
    int num_stores;
    std::vector<StoreRecord> stores;
    int16_t last_read[kMaxThreads];
    int8_t num_reads[kMaxThreads];  // of the store last_read
  };
  struct Read {
    int location;
    int16_t store;
  };
  struct Granule {
    uint32_t execution;  // the other members are valid only in this one
    int8_t writer;       // -1: none
    bool is_dead;
    bool is_locked_local;  // on the writer's stack, written while it had a lock
    uint16_t locks;        // a bit for each lock whose `guarded` lists it
    int16_t write_event;
    int16_t read_event[kMaxThreads];
  };

  int Locate(const void* address);
  int Slot(const void* address) const;
  Granule* GranuleAt(const char* address);
  StoreRecord* Append(Location* location, uint64_t value);
  uint64_t HashNewest(const Location& location) const;
  static uint64_t Learned(const Location& location, uint64_t value);
  void Guard(int thread, const char* address, bool is_own_stack, Granule* granule);
  uint64_t HashGuarded(const Lock& lock) const;

  uint32_t execution_ = 0;
  bool hashes_stores_ = true;
  uint64_t value_hash_ = 0;  // the sum of the hashes of all locations
  View views_[kMaxThreads];
  int num_locations_ = 0;
  Location locations_[kMaxLocations];
  int16_t slots_[256];  // of locations, by hash of the address; -1: free
  std::vector<Lock> locks_;
  std::vector<Read> rounds_[kMaxThreads];
  std::vector<Granule> granules_;
  const char* lowest_[kMaxThreads];  // the lowest byte of each stack that has been accessed
};

}  // namespace schedules

#endif  // CUDNN_RNN_TESTS_SCHEDULES_MEMORY_H_
