#include "tests/schedules/interface.h"

#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cudnn_rnn/cc/core/team.h"
#include "tests/schedules/explorer.h"

namespace schedules {
namespace {

size_t heap_sizes[kMaxThreads + 1];
int64_t num_live = 0;
int may_fail_thread = -1;

// In front of each object of a heap.
struct Header {
  size_t size;
  size_t padding;
};

bool IsInHeap(const void* address) {
  const char* const at = static_cast<const char*>(address);
  return at >= Heap(0) && at < Heap(kMaxThreads + 1);
}

void* Allocate(size_t size) {
  if (explorer.is_active() && may_fail_thread == explorer.running() &&
      explorer.Choose(2, "new fails") == 1) {
    may_fail_thread = -1;
    throw std::bad_alloc();
  }
  const int heap = explorer.heap();
  if (heap < 0) return std::malloc(size);
  const size_t bytes = (size + sizeof(Header) + 15) / 16 * 16;
  if (heap_sizes[heap] + bytes > kHeapBytes) std::abort();
  char* const at = Heap(heap) + heap_sizes[heap];
  heap_sizes[heap] += bytes;
  ++num_live;
  std::memset(at, 0, bytes);  // Bytes that nothing writes must not tell executions apart.
  reinterpret_cast<Header*>(at)->size = size;
  return at + sizeof(Header);
}

// Bytes are used only once in an execution, so that late accesses are noticed.
void Free(void* address) {
  if (!IsInHeap(address)) return std::free(address);
  --num_live;
  if (!explorer.is_active()) return;
  char* const at = static_cast<char*>(address);
  explorer.EndLife(at, at + reinterpret_cast<Header*>(at - sizeof(Header))->size);
}

// A read-modify-write: `change` sets the new value, or returns false if nothing is stored.
template <typename T, typename Change>
T Update(volatile void* address, int order, int failure_order, const void* site,
         const Change& change) {
  T* const target = const_cast<T*>(static_cast<volatile T*>(address));
  const bool is_active = explorer.is_active();
  if (is_active) explorer.BeginUpdate(target, sizeof(T), site);
  const T before = *target;  // the newest store
  T after = before;
  const bool stores = change(&after);
  if (is_active) explorer.LoadNewest(target, sizeof(T), stores ? order : failure_order);
  if (!stores) return before;
  *target = after;
  if (is_active) explorer.EndUpdate(target, static_cast<uint64_t>(after), order);
  return before;
}

}  // namespace

void ResetHeaps() {
  for (size_t& size : heap_sizes) size = 0;
  num_live = 0;
  may_fail_thread = -1;
}

uint64_t HeapState(int thread) { return heap_sizes[thread] * 2 + (may_fail_thread == thread); }

int64_t NumLiveObjects() { return num_live; }

void SetAllocationsMayFail(bool may_fail) { may_fail_thread = may_fail ? explorer.running() : -1; }

}  // namespace schedules

using schedules::explorer;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define DEFINE_ACCESS(name, is_write)                                      \
  void __tsan_##name(void* address, size_t size) {                         \
    if (!explorer.is_active()) return;                                     \
    explorer.Access(address, size, is_write, __builtin_return_address(0)); \
  }
#define DEFINE_SIZED_ACCESS(name, size, is_write)                          \
  void __tsan_##name##size(void* address) {                                \
    if (!explorer.is_active()) return;                                     \
    explorer.Access(address, size, is_write, __builtin_return_address(0)); \
  }
#define DEFINE_ACCESSES(size)                      \
  DEFINE_SIZED_ACCESS(read, size, false)           \
  DEFINE_SIZED_ACCESS(write, size, true)           \
  DEFINE_SIZED_ACCESS(unaligned_read, size, false) \
  DEFINE_SIZED_ACCESS(unaligned_write, size, true) \
  DEFINE_SIZED_ACCESS(volatile_read, size, false)  \
  DEFINE_SIZED_ACCESS(volatile_write, size, true)

DEFINE_ACCESS(read_range, false)
DEFINE_ACCESS(write_range, true)
DEFINE_ACCESSES(1)
DEFINE_ACCESSES(2)
DEFINE_ACCESSES(4)
DEFINE_ACCESSES(8)
DEFINE_ACCESSES(16)

void __tsan_vptr_update(void** address, void*) {
  if (!explorer.is_active()) return;
  explorer.Access(address, sizeof *address, true, __builtin_return_address(0));
}
void __tsan_vptr_read(void** address) {
  if (!explorer.is_active()) return;
  explorer.Access(address, sizeof *address, false, __builtin_return_address(0));
}

#define DEFINE_UPDATE(bits, name, expression)                                                   \
  int##bits##_t __tsan_atomic##bits##_##name(volatile void* address, int##bits##_t operand,     \
                                             int order) {                                       \
    return schedules::Update<int##bits##_t>(address, order, order, __builtin_return_address(0), \
                                            [operand](int##bits##_t* value) {                   \
                                              *value = static_cast<int##bits##_t>(expression);  \
                                              return true;                                      \
                                            });                                                 \
  }
#define DEFINE_COMPARE_EXCHANGE(bits, kind)                                                 \
  int __tsan_atomic##bits##_compare_exchange_##kind(volatile void* address, void* expected, \
                                                    int##bits##_t desired, int order,       \
                                                    int failure_order) {                    \
    int##bits##_t* const wanted = static_cast<int##bits##_t*>(expected);                    \
    const int##bits##_t before = schedules::Update<int##bits##_t>(                          \
        address, order, failure_order, __builtin_return_address(0),                         \
        [wanted, desired](int##bits##_t* value) {                                           \
          if (*value != *wanted) return false;                                              \
          *value = desired;                                                                 \
          return true;                                                                      \
        });                                                                                 \
    const bool is_equal = before == *wanted;                                                \
    *wanted = before;                                                                       \
    return is_equal;                                                                        \
  }
#define DEFINE_ATOMIC(bits)                                                                  \
  int##bits##_t __tsan_atomic##bits##_load(const volatile void* address, int order) {        \
    const void* const source = const_cast<const void*>(address);                             \
    if (!explorer.is_active()) return *static_cast<const int##bits##_t*>(source);            \
    return static_cast<int##bits##_t>(                                                       \
        explorer.LoadAtomic(source, bits / 8, order, __builtin_return_address(0)));          \
  }                                                                                          \
  void __tsan_atomic##bits##_store(volatile void* address, int##bits##_t value, int order) { \
    void* const target = const_cast<void*>(address);                                         \
    if (explorer.is_active()) {                                                              \
      explorer.StoreAtomic(target, bits / 8, static_cast<uint64_t>(value), order,            \
                           __builtin_return_address(0));                                     \
    }                                                                                        \
    *static_cast<int##bits##_t*>(target) = value;                                            \
  }                                                                                          \
  DEFINE_UPDATE(bits, exchange, operand)                                                     \
  DEFINE_UPDATE(bits, fetch_add, *value + operand)                                           \
  DEFINE_UPDATE(bits, fetch_sub, *value - operand)                                           \
  DEFINE_UPDATE(bits, fetch_and, *value& operand)                                            \
  DEFINE_UPDATE(bits, fetch_or, *value | operand)                                            \
  DEFINE_UPDATE(bits, fetch_xor, *value ^ operand)                                           \
  DEFINE_COMPARE_EXCHANGE(bits, strong)                                                      \
  DEFINE_COMPARE_EXCHANGE(bits, weak)

DEFINE_ATOMIC(8)
DEFINE_ATOMIC(32)
DEFINE_ATOMIC(64)

int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (explorer.is_active()) explorer.LockMutex(mutex);
  return 0;
}
int __wrap_pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (explorer.is_active()) explorer.UnlockMutex(mutex);
  return 0;
}

}  // extern "C"

extern "C" std::chrono::steady_clock::time_point WrappedNow() asm(
    "__wrap__ZNSt6chrono3_V212steady_clock3nowEv");
std::chrono::steady_clock::time_point WrappedNow() {
  const int64_t seconds = explorer.is_active() ? explorer.ReadClock() : 0;
  return std::chrono::steady_clock::time_point(std::chrono::seconds(seconds));
}

void* operator new(size_t size) { return schedules::Allocate(size); }
void operator delete(void* address) noexcept { schedules::Free(address); }
void operator delete(void* address, size_t) noexcept { schedules::Free(address); }

namespace cudnn_rnn {

void Backoff::Wait() {
  if (explorer.is_active()) return explorer.Wait();
  std::abort();  // There is nobody to wait for.
}

bool Backoff::IsOver(int64_t nanoseconds) {
  return explorer.IsOver(nanoseconds < std::numeric_limits<int64_t>::max());
}

}  // namespace cudnn_rnn
