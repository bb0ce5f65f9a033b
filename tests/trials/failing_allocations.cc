// For LD_PRELOAD: lets chosen allocations of the op library, which is the engine and its adapter to
// TensorFlow, fail, and counts those that live.
//
// Counted are calls of operator new from the op library's code, directly or through the C++
// standard library, and tensors that TensorFlow allocates for it. Others never fail: TensorFlow
// ends the process if its own operator new does.

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);
}

namespace {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool Has(const void* address) const {
    const uintptr_t value = reinterpret_cast<uintptr_t>(address);
    return value >= begin && value < end;
  }
};

Range adapter, engine, standard_library;
std::atomic<bool> is_armed{false}, all_follow{false}, all_fail{false};
std::atomic<long> num_until_failure{0};
thread_local bool is_inside = false;

// The counted allocations that live: a hash table with linear probing.
constexpr size_t kSlots = size_t(1) << 16;
void* live[kSlots];
void* const kErased = &live;
std::atomic<long> num_live{0};
pthread_mutex_t live_mutex = PTHREAD_MUTEX_INITIALIZER;

size_t FirstSlot(void* memory) { return (reinterpret_cast<uintptr_t>(memory) >> 4) % kSlots; }

void Remember(void* memory) {
  pthread_mutex_lock(&live_mutex);
  size_t slot = FirstSlot(memory);
  while (live[slot] != nullptr && live[slot] != kErased) slot = (slot + 1) % kSlots;
  live[slot] = memory;
  ++num_live;
  pthread_mutex_unlock(&live_mutex);
}

void Forget(void* memory) {
  if (memory == nullptr || num_live.load() == 0) return;
  pthread_mutex_lock(&live_mutex);
  size_t slot = FirstSlot(memory);
  while (live[slot] != nullptr && live[slot] != memory) slot = (slot + 1) % kSlots;
  if (live[slot] == memory) {
    live[slot] = kErased;
    --num_live;
  }
  pthread_mutex_unlock(&live_mutex);
}

int FindLibraries(dl_phdr_info* info, size_t, void*) {
  Range* range = nullptr;
  if (std::strstr(info->dlpi_name, "_libraries/ops_tf") != nullptr) range = &adapter;
  if (std::strstr(info->dlpi_name, "libcudnn_rnn_engine.so") != nullptr) range = &engine;
  if (std::strstr(info->dlpi_name, "libstdc++.so") != nullptr) range = &standard_library;
  if (range == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    range->begin = info->dlpi_addr + segment.p_vaddr;
    range->end = range->begin + segment.p_memsz;
  }
  return 0;
}

bool IsInOpLibrary(const void* address) { return adapter.Has(address) || engine.Has(address); }

// Whether the op library calls operator new; `caller` is the address of the call.
bool IsFromOpLibrary(const void* caller) {
  if (IsInOpLibrary(caller)) return true;
  if (!standard_library.Has(caller) || is_inside) return false;
  void* frames[32];
  is_inside = true;
  const int num_frames = backtrace(frames, 32);
  is_inside = false;
  int i = 0;
  while (i < num_frames && !standard_library.Has(frames[i])) ++i;
  while (i < num_frames && standard_library.Has(frames[i])) ++i;
  return i < num_frames && IsInOpLibrary(frames[i]);
}

// Whether any of the callers is the op library.
bool IsForOpLibrary() {
  if (is_inside) return false;
  void* frames[32];
  is_inside = true;
  const int num_frames = backtrace(frames, 32);
  is_inside = false;
  for (int i = 0; i < num_frames; ++i) {
    if (IsInOpLibrary(frames[i])) return true;
  }
  return false;
}

// Counts an allocation; returns whether it must fail.
bool CountAndFail() {
  if (all_fail) return true;
  if (num_until_failure.load() <= 0 || num_until_failure.fetch_sub(1) != 1) return false;
  all_fail = all_follow.load();
  return true;
}

void* New(std::size_t size, const void* caller) {
  const bool is_counted = is_armed && IsFromOpLibrary(caller);
  if (is_counted && CountAndFail()) throw std::bad_alloc();
  void* const memory = __libc_malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  if (is_counted) Remember(memory);
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return New(size, __builtin_return_address(0)); }
void* operator new[](std::size_t size) { return New(size, __builtin_return_address(0)); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, std::size_t) noexcept { free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { free(memory); }

extern "C" {

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  const bool is_counted = is_armed && IsForOpLibrary();
  if (is_counted && CountAndFail()) return ENOMEM;
  void* const allocated = __libc_memalign(alignment, size);
  if (allocated == nullptr) return ENOMEM;
  if (is_counted) Remember(allocated);
  *memory = allocated;
  return 0;
}

void free(void* memory) noexcept {
  Forget(memory);
  __libc_free(memory);
}

// Lets the n-th counted allocation from now on fail, and with `and_all_after` those that follow;
// with n = 0 none. Call it first when the op library is loaded.
void fail_allocation(long n, int and_all_after) {
  if (engine.begin == 0) {
    void* frames[2];
    backtrace(frames, 2);  // loads what it needs
    dl_iterate_phdr(FindLibraries, nullptr);
  }
  all_fail = false;
  all_follow = and_all_after != 0;
  num_until_failure = n;
  is_armed = engine.begin != 0;
}

// Lets no allocation fail any more; returns whether one did.
int stop_failing() {
  const bool has_failed = num_until_failure.load() <= 0;
  num_until_failure = 0;
  all_fail = false;
  return has_failed;
}

// The counted allocations that have not been given back.
long live_allocations() { return num_live; }
}
