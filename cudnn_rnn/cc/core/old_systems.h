// Lets a library compiled with a new g++ and glibc run on Linux distributions as old as those that
// TensorFlow's wheels support. Only wheels for distribution need it: CUDNN_RNN_OLD_SYSTEMS puts it
// in front of every source with `-include`. It is for g++ or clang++, libstdc++ and glibc on
// x86-64 and aarch64.
//
// Symbols that newer glibc and libstdc++ versions moved are bound to their old versions. The few
// that old versions lack are defined here: weak, so that every source may define them, and hidden,
// so that no other library sees them.
#ifndef CUDNN_RNN_CC_CORE_OLD_SYSTEMS_H_
#define CUDNN_RNN_CC_CORE_OLD_SYSTEMS_H_

#define CUDNN_RNN_USE_OLD_VERSION(name, version) __asm__(".symver " #name ", " #name "@" version)
#if defined(__x86_64__)
CUDNN_RNN_USE_OLD_VERSION(dlerror, "GLIBC_2.2.5");
CUDNN_RNN_USE_OLD_VERSION(dlinfo, "GLIBC_2.3.3");
CUDNN_RNN_USE_OLD_VERSION(dlopen, "GLIBC_2.2.5");
CUDNN_RNN_USE_OLD_VERSION(dlsym, "GLIBC_2.2.5");
CUDNN_RNN_USE_OLD_VERSION(memcpy, "GLIBC_2.2.5");
CUDNN_RNN_USE_OLD_VERSION(pthread_once, "GLIBC_2.2.5");
#elif defined(__aarch64__)  // glibc 2.17 is the first for this architecture
CUDNN_RNN_USE_OLD_VERSION(dlerror, "GLIBC_2.17");
CUDNN_RNN_USE_OLD_VERSION(dlinfo, "GLIBC_2.17");
CUDNN_RNN_USE_OLD_VERSION(dlopen, "GLIBC_2.17");
CUDNN_RNN_USE_OLD_VERSION(dlsym, "GLIBC_2.17");
CUDNN_RNN_USE_OLD_VERSION(pthread_once, "GLIBC_2.17");
#else
#error "The old versions of glibc's symbols are known for x86-64 and aarch64 only."
#endif
#undef CUDNN_RNN_USE_OLD_VERSION

#define CUDNN_RNN_OWN_COPY(name) __asm__(name) __attribute__((weak, visibility("hidden")))
namespace std {
void __throw_bad_alloc() __attribute__((noreturn));
}
extern "C" {
// glibc 2.32: whether libstdc++ may count references without atomics. False is always correct.
extern char cudnn_rnn_single_threaded CUDNN_RNN_OWN_COPY("__libc_single_threaded");
char cudnn_rnn_single_threaded = 0;

// libstdc++ of g++ 11: std::__throw_bad_array_new_length().
[[noreturn]] void cudnn_rnn_throw_bad_array_new_length()
    CUDNN_RNN_OWN_COPY("_ZSt28__throw_bad_array_new_lengthv");
void cudnn_rnn_throw_bad_array_new_length() { std::__throw_bad_alloc(); }

// libstdc++ of g++ 11 exports the steps of std::exception_ptr's copy constructor and destructor,
// _M_addref() and _M_release(). Older ones export only the two functions as a whole.
void cudnn_rnn_copy_exception_ptr(void* to, const void* from) __asm__(
    "_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void cudnn_rnn_destroy_exception_ptr(void* pointer) __asm__(
    "_ZNSt15__exception_ptr13exception_ptrD1Ev");
void cudnn_rnn_add_reference(void* pointer)
    CUDNN_RNN_OWN_COPY("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void cudnn_rnn_add_reference(void* pointer) {
  void* copy;  // never destroyed: keeps the reference
  cudnn_rnn_copy_exception_ptr(&copy, pointer);
}
void cudnn_rnn_release_reference(void* pointer)
    CUDNN_RNN_OWN_COPY("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void cudnn_rnn_release_reference(void* pointer) { cudnn_rnn_destroy_exception_ptr(pointer); }

// libstdc++ of g++ 9 exports the default constructor of std::ostringstream. Older versions export
// only the constructor with a mode; std::ios_base::out is 16. The names depend on the C++ ABI.
#if defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
#define CUDNN_RNN_OSTRINGSTREAM "_ZNSt19basic_ostringstreamIcSt11char_traitsIcESaIcEEC1E"
#else
#define CUDNN_RNN_OSTRINGSTREAM "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1E"
#endif
void cudnn_rnn_open_stream(void* stream,
                           int mode) __asm__(CUDNN_RNN_OSTRINGSTREAM "St13_Ios_Openmode");
void cudnn_rnn_construct_stream(void* stream) CUDNN_RNN_OWN_COPY(CUDNN_RNN_OSTRINGSTREAM "v");
void cudnn_rnn_construct_stream(void* stream) { cudnn_rnn_open_stream(stream, 16); }
#undef CUDNN_RNN_OSTRINGSTREAM
}
#undef CUDNN_RNN_OWN_COPY

#endif  // CUDNN_RNN_CC_CORE_OLD_SYSTEMS_H_
