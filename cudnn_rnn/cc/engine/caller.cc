#include "cudnn_rnn/cc/engine/caller.h"

#include <iterator>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "cudnn_rnn/cc/core/team_recruiter.h"

namespace cudnn_rnn {
namespace {

using Task = std::function<void()>;

class CallerMemory : public DeviceMemory {
 public:
  explicit CallerMemory(void (*release)(void*)) : release_(release) {}
  ~CallerMemory() override {
    if (memory_ != nullptr) release_(memory_);
  }
  CallerMemory(const CallerMemory&) = delete;
  CallerMemory& operator=(const CallerMemory&) = delete;

  void* data() override { return AlignUp(data_); }
  void** memory() { return &memory_; }
  void** address() { return &data_; }

 private:
  void (*const release_)(void*);
  void* memory_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace

void CallerThreads::Schedule(std::function<void()> task) {
  const int refused = threads_->schedule(
      threads_->pool, [](void* scheduled) { (*static_cast<Task*>(scheduled))(); },
      [](void* scheduled) { delete static_cast<Task*>(scheduled); }, new Task(std::move(task)));
  if (refused != 0) throw std::bad_alloc();
}

std::shared_ptr<TeamRecruiter> CallerThreads::recruiter() {
  // A recruiter lives on between calls, since it knows when the last one ended. One that neither
  // calls nor tasks use is forgotten when another pool appears; at the address of a destroyed pool
  // it is as good as a new one.
  static std::mutex* const mutex = new std::mutex();
  static auto* const recruiters =
      new std::unordered_map<const void*, std::shared_ptr<TeamRecruiter>>;
  const void* const pool = threads_->pool;
  std::lock_guard<std::mutex> lock(*mutex);
  const auto found = recruiters->find(pool);
  if (found != recruiters->end()) return found->second;
  for (auto entry = recruiters->begin(); entry != recruiters->end();) {
    entry = entry->second.use_count() == 1 ? recruiters->erase(entry) : std::next(entry);
  }
  const auto created = std::make_shared<TeamRecruiter>();
  (*recruiters)[pool] = created;
  return created;
}

Status CallerAllocator::Allocate(int64_t bytes, MemoryNeed need,
                                 std::unique_ptr<DeviceMemory>* memory) {
  std::unique_ptr<CallerMemory> allocated(new CallerMemory(allocator_->release));
  char message[1024] = "";
  // Frameworks align less strictly than kDeviceAlignment.
  const int64_t size = bytes + kDeviceAlignment;
  const int code =
      allocator_->allocate(allocator_->context, size, need == MemoryNeed::kOptional,
                           allocated->memory(), allocated->address(), message, sizeof(message));
  if (code != 0) return Status(static_cast<StatusCode>(code), message);
  *memory = std::move(allocated);
  return Status();
}

}  // namespace cudnn_rnn
