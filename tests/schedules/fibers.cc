#include "tests/schedules/fibers.h"

#include <cxxabi.h>
#include <link.h>

#include <cstring>

namespace schedules {
namespace {

struct ThreadLocals {
  char* begin = nullptr;
  size_t size = 0;
  std::vector<char> initial;

  ThreadLocals() {
    dl_iterate_phdr(&Find, this);
    if (size > 0) initial.assign(begin, begin + size);
  }
  // Visits the program first.
  static int Find(dl_phdr_info* info, size_t, void* result) {
    ThreadLocals* const locals = static_cast<ThreadLocals*>(result);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
      locals->begin = static_cast<char*>(info->dlpi_tls_data);
      locals->size = info->dlpi_phdr[i].p_memsz;
    }
    return 1;
  }
};

const ThreadLocals& Locals() {
  static const ThreadLocals locals;
  return locals;
}

}  // namespace

void Fiber::Prepare(char* stack, size_t stack_bytes, void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = stack_bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
  is_started_ = false;
  thread_locals_ = Locals().initial;
  exceptions_ = {nullptr, 0};
}

void Fiber::Load() {
  if (Locals().size > 0) {
    thread_locals_.resize(Locals().size);
    std::memcpy(Locals().begin, thread_locals_.data(), Locals().size);
  }
  std::memcpy(static_cast<void*>(abi::__cxa_get_globals()), &exceptions_, sizeof exceptions_);
}

void Fiber::SwitchTo(Fiber* to) {
  thread_locals_.assign(Locals().begin, Locals().begin + Locals().size);
  std::memcpy(&exceptions_, static_cast<void*>(abi::__cxa_get_globals()), sizeof exceptions_);
  if (_setjmp(position_) == 0) LeaveFor(to);
}

void Fiber::LeaveFor(Fiber* to) {
  to->Load();
  if (to->is_started_) _longjmp(to->position_, 1);
  to->is_started_ = true;
  setcontext(&to->context_);
  __builtin_unreachable();
}

}  // namespace schedules
