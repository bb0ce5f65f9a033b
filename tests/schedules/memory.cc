#include "tests/schedules/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace schedules {
namespace {

constexpr size_t kGranuleBytes = 8;
constexpr size_t kMaxLocks = 16;
// How often a thread may read a store that is not the newest. Otherwise a loop might read it for
// ever.
constexpr int kMaxReadsOfOldStore = 2;

bool Acquires(int order) {
  return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order == __ATOMIC_ACQ_REL ||
         order == __ATOMIC_SEQ_CST;
}
bool Releases(int order) {
  return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

uint64_t ValueAt(const void* address, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, address, size);
  return value;
}

}  // namespace

alignas(4096) char tracked_bytes[kTrackedBytes];

void View::Join(const View& other) {
  for (int i = 0; i < kMaxLocations; ++i) store[i] = std::max(store[i], other.store[i]);
  for (int i = 0; i < kMaxThreads; ++i) event[i] = std::max(event[i], other.event[i]);
}

void Memory::Reset(bool hashes_stores) {
  hashes_stores_ = hashes_stores;
  value_hash_ = 0;
  ++execution_;
  if (granules_.empty()) {
    granules_.resize(kTrackedBytes / kGranuleBytes);
    locks_.reserve(kMaxLocks);
  }
  std::memset(views_, 0, sizeof views_);
  for (int thread = 0; thread < kMaxThreads; ++thread) {
    views_[thread].event[thread] = 1;
    rounds_[thread].clear();
    lowest_[thread] = Stack(thread) + kStackBytes;
  }
  num_locations_ = 0;
  std::memset(slots_, -1, sizeof slots_);
  locks_.clear();
}

Memory::Granule* Memory::GranuleAt(const char* address) {
  Granule* granule = &granules_[static_cast<size_t>(address - tracked_bytes) / kGranuleBytes];
  if (granule->execution != execution_) {
    std::memset(granule, 0, sizeof *granule);
    granule->execution = execution_;
    granule->writer = -1;
    const size_t thread = static_cast<size_t>(address - tracked_bytes) / kStackBytes;
    if (thread < kMaxThreads) lowest_[thread] = std::min(lowest_[thread], address);
  }
  return granule;
}

const char* Memory::CheckPlain(int thread, const void* address, size_t size, bool is_write) {
  const char* const begin = static_cast<const char*>(address);
  if (begin < tracked_bytes || begin >= tracked_bytes + kTrackedBytes) return nullptr;
  const View& view = views_[thread];
  const bool is_own_stack = begin >= Stack(thread) && begin < Stack(thread) + kStackBytes;
  const char* const first = tracked_bytes + (begin - tracked_bytes) / kGranuleBytes * kGranuleBytes;
  for (const char* at = first; at < begin + size; at += kGranuleBytes) {
    Granule* granule = GranuleAt(at);
    if (granule->is_dead) {
      if (!is_own_stack) return "accesses an object after the end of its life";
      granule->execution = 0;  // A new frame reuses the bytes.
      granule = GranuleAt(at);
    }
    if (granule->writer >= 0 && granule->writer != thread &&
        granule->write_event > view.event[granule->writer]) {
      return is_write ? "races with another write" : "reads what another thread writes (race)";
    }
    if (granule->is_locked_local && granule->writer != thread) {
      return "accesses lock-guarded data on another thread's stack, which states do not include";
    }
    if (is_write) {
      for (int other = 0; other < kMaxThreads; ++other) {
        if (other != thread && granule->read_event[other] > view.event[other]) {
          return "writes what another thread reads (race)";
        }
        granule->read_event[other] = 0;
      }
      granule->writer = static_cast<int8_t>(thread);
      granule->write_event = view.event[thread];
      if (!hashes_stores_) Guard(thread, at, is_own_stack, granule);
    } else {
      granule->read_event[thread] = view.event[thread];
    }
  }
  return nullptr;
}

// Adds a written granule to those that the thread's locks guard. A granule on the thread's own
// stack needs no hash of its own: the thread's history determines its value.
void Memory::Guard(int thread, const char* address, bool is_own_stack, Granule* granule) {
  granule->is_locked_local = false;
  for (size_t i = 0; i < locks_.size(); ++i) {
    const uint16_t bit = static_cast<uint16_t>(1u << i);
    if (locks_[i].owner != thread) continue;
    if (is_own_stack) {
      granule->is_locked_local = true;
    } else if ((granule->locks & bit) == 0) {
      granule->locks = static_cast<uint16_t>(granule->locks | bit);
      locks_[i].guarded.push_back(address);
    }
  }
}

// An atomic access must be ordered with the beginning and the end of the object's life, as a read.
const char* Memory::CheckAtomic(int thread, const void* address, size_t size) {
  return CheckPlain(thread, address, size, /*is_write=*/false);
}

const char* Memory::EndLife(int thread, const char* begin, const char* end) {
  if (begin < tracked_bytes || begin >= tracked_bytes + kTrackedBytes) return nullptr;
  const View& view = views_[thread];
  const char* first = begin;
  if (begin == Stack(thread)) first = std::max(first, lowest_[thread]);
  for (const char* at = first; at < end; at += kGranuleBytes) {
    Granule* granule = &granules_[static_cast<size_t>(at - tracked_bytes) / kGranuleBytes];
    if (granule->execution != execution_) continue;
    if (granule->is_dead) continue;
    const bool is_written_elsewhere =
        granule->writer >= 0 && granule->write_event > view.event[granule->writer];
    if (is_written_elsewhere) return "ends the life of an object that another thread may write";
    for (int other = 0; other < kMaxThreads; ++other) {
      if (granule->read_event[other] > view.event[other]) {
        return "ends the life of an object that another thread may use";
      }
    }
    granule->is_dead = true;
  }
  for (int i = 0; i < num_locations_; ++i) {
    const char* const address = static_cast<const char*>(locations_[i].address);
    if (address >= begin && address < end) {
      slots_[Slot(address)] = -2;  // The slot stays taken, for those behind it.
      value_hash_ -= HashNewest(locations_[i]);
      locations_[i].address = nullptr;
    }
  }
  return nullptr;
}

int Memory::Slot(const void* address) const {
  size_t slot = Mix(reinterpret_cast<uintptr_t>(address), 0) % 256;
  while (slots_[slot] != -1 &&
         (slots_[slot] == -2 || locations_[slots_[slot]].address != address)) {
    slot = (slot + 1) % 256;
  }
  return static_cast<int>(slot);
}

int Memory::Locate(const void* address) {
  const int slot = Slot(address);
  if (slots_[slot] >= 0) return slots_[slot];
  if (num_locations_ == kMaxLocations) {
    std::fprintf(stderr, "more than %d atomics: raise kMaxLocations\n", kMaxLocations);
    std::abort();
  }
  slots_[slot] = static_cast<int16_t>(num_locations_);
  Location* location = &locations_[num_locations_];
  location->address = address;
  location->num_stores = 0;
  location->last_sequential = 0;
  std::memset(location->last_read, 0, sizeof location->last_read);
  std::memset(location->num_reads, 0, sizeof location->num_reads);
  return num_locations_++;
}

Memory::StoreRecord* Memory::Append(Location* location, uint64_t value) {
  const size_t index = static_cast<size_t>(location->num_stores++);
  if (location->stores.size() <= index) location->stores.resize(index + 1);
  StoreRecord* store = &location->stores[index];
  store->value = value;
  store->hash = 0;
  store->releases = false;
  return store;
}

// The initial value counts as none, since a location is unknown before the first access.
uint64_t Memory::HashNewest(const Location& location) const {
  if (location.num_stores < 2 || location.address == nullptr) return 0;
  const uint64_t value = location.stores[static_cast<size_t>(location.num_stores - 1)].value;
  return Mix(reinterpret_cast<uintptr_t>(location.address), value);
}

// A sum, since executions find the granules in different orders.
uint64_t Memory::HashGuarded(const Lock& lock) const {
  uint64_t hash = 0;
  for (const char* address : lock.guarded) {
    const Granule& granule =
        granules_[static_cast<size_t>(address - tracked_bytes) / kGranuleBytes];
    if (granule.execution != execution_ || granule.is_dead) continue;
    hash += Mix(reinterpret_cast<uintptr_t>(address), ValueAt(address, kGranuleBytes));
  }
  return hash;
}

uint64_t Memory::HashValues() const {
  uint64_t hash = value_hash_;
  for (const Lock& lock : locks_) {
    hash += Mix(Mix(reinterpret_cast<uintptr_t>(lock.address), HashGuarded(lock)),
                static_cast<uint64_t>(lock.owner + 1));
  }
  return hash;
}

int Memory::NumReadable(int thread, const void* address, size_t size, int order) {
  const int index = Locate(address);
  Location* location = &locations_[index];
  location->is_reference_count = size == 4;
  if (location->num_stores == 0) Append(location, ValueAt(address, size));
  const int newest = location->num_stores - 1;
  int oldest = views_[thread].store[index];
  if (location->last_read[thread] == oldest && location->num_reads[thread] >= kMaxReadsOfOldStore) {
    ++oldest;
  }
  if (order == __ATOMIC_SEQ_CST) oldest = std::max<int>(oldest, location->last_sequential);
  return 1 + std::max(0, newest - oldest);
}

// Returns what a thread learns from a value. A reference count only tells whether it is 0, 1 or
// more.
uint64_t Memory::Learned(const Location& location, uint64_t value) {
  return location.is_reference_count ? std::min<uint64_t>(value, 2) : value;
}

uint64_t Memory::Load(int thread, const void* address, int option, int order, uint64_t* hash) {
  const int index = Locate(address);
  Location* location = &locations_[index];
  View* view = &views_[thread];
  const int16_t read = static_cast<int16_t>(location->num_stores - 1 - option);
  const StoreRecord& store = location->stores[static_cast<size_t>(read)];
  int8_t* num_reads = &location->num_reads[thread];
  if (location->last_read[thread] != read) *num_reads = 0;
  if (*num_reads < kMaxReadsOfOldStore) ++*num_reads;
  location->last_read[thread] = read;
  view->store[index] = read;
  if (Acquires(order) && store.releases) view->Join(store.view);
  rounds_[thread].push_back({index, read});
  const uint64_t what = hashes_stores_ ? store.hash : Learned(*location, store.value);
  *hash = Mix(*hash, Mix(reinterpret_cast<uintptr_t>(address), what));
  return store.value;
}

void Memory::Store(int thread, const void* address, uint64_t value, int order, bool is_update,
                   uint64_t* hash) {
  const int index = Locate(address);
  Location* location = &locations_[index];
  if (location->num_stores == 0) Append(location, 0);  // never read: Load comes first in updates
  View* view = &views_[thread];
  value_hash_ -= HashNewest(*location);
  StoreRecord* store = Append(location, value);
  value_hash_ += HashNewest(*location);
  const StoreRecord& before = location->stores[static_cast<size_t>(location->num_stores - 2)];
  const uint64_t what = hashes_stores_ ? before.hash : location->is_reference_count ? 0 : value;
  *hash = Mix(*hash, Mix(reinterpret_cast<uintptr_t>(address), what) + 1);
  store->hash = *hash;
  view->store[index] = static_cast<int16_t>(location->num_stores - 1);
  if (order == __ATOMIC_SEQ_CST) location->last_sequential = view->store[index];
  const bool continues = is_update && before.releases;  // a release sequence
  store->releases = Releases(order) || continues;
  if (Releases(order)) {
    store->view = *view;
    if (continues) store->view.Join(before.view);
    ++view->event[thread];
  } else if (continues) {
    store->view = before.view;
  }
}

Lock* Memory::FindLock(const void* address) {
  for (Lock& lock : locks_) {
    if (lock.address == address) return &lock;
  }
  if (locks_.size() == locks_.capacity()) std::abort();  // Pointers to locks must stay valid.
  locks_.push_back(Lock());
  locks_.back().address = address;
  locks_.back().owner = -1;
  locks_.back().hash = 0;
  return &locks_.back();
}

void Memory::Acquire(int thread, Lock* lock, uint64_t* hash) {
  lock->owner = thread;
  views_[thread].Join(lock->view);
  const uint64_t what = hashes_stores_ ? lock->hash : HashGuarded(*lock);
  *hash = Mix(*hash, Mix(reinterpret_cast<uintptr_t>(lock->address), what));
}

void Memory::Release(int thread, Lock* lock, uint64_t hash) {
  lock->owner = -1;
  lock->view = views_[thread];
  lock->hash = hash;
  ++views_[thread].event[thread];
}

bool Memory::HasNews(int thread) const {
  for (const Read& read : rounds_[thread]) {
    if (locations_[read.location].num_stores - 1 > read.store) return true;
  }
  return false;
}

uint64_t Memory::HashView(int thread) const {
  const View& view = views_[thread];
  uint64_t sum = 0;
  for (int i = 0; i < num_locations_; ++i) {
    if (view.store[i] == 0 && locations_[i].num_reads[thread] == 0) continue;
    const uint64_t state =
        static_cast<uint64_t>(view.store[i] * 4 + locations_[i].num_reads[thread]);
    sum += Mix(reinterpret_cast<uintptr_t>(locations_[i].address), state);
  }
  for (int other = 0; other < kMaxThreads; ++other) {
    if (other != thread) sum = Mix(sum, static_cast<uint64_t>(view.event[other]));
  }
  return sum;
}

}  // namespace schedules
