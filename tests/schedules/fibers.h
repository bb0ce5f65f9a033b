// Threads that run one at a time on one thread of the system, and switch where they are told to.
#ifndef CUDNN_RNN_TESTS_SCHEDULES_FIBERS_H_
#define CUDNN_RNN_TESTS_SCHEDULES_FIBERS_H_

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <vector>

namespace schedules {

// Has its own thread_local variables (of the program, not of shared libraries) and its own state of
// exceptions.
class Fiber {
 public:
  // Prepares the fiber to call `entry`, which must not return, at the next switch to it. A fiber
  // that is prepared again forgets where it was; its stack is not unwound.
  void Prepare(char* stack, size_t stack_bytes, void (*entry)());

  // Continues `to`; returns when something switches back to this fiber, the running one.
  void SwitchTo(Fiber* to);

  // As SwitchTo, for a fiber that is never continued.
  [[noreturn]] void LeaveFor(Fiber* to);

 private:
  struct ExceptionState {  // as in the C++ ABI of Itanium
    void* caught;
    unsigned int num_uncaught;
  };

  void Load();

  ucontext_t context_;
  jmp_buf position_;
  bool is_started_ = true;  // as is the fiber that the program begins with
  std::vector<char> thread_locals_;
  ExceptionState exceptions_ = {nullptr, 0};
};

}  // namespace schedules

#endif  // CUDNN_RNN_TESTS_SCHEDULES_FIBERS_H_
