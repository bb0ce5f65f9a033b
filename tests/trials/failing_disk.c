// For LD_PRELOAD: lets system calls on files in a folder fail, as on a full disk or a lost server.
//
// A call counts if it changes the disk (kind 'w': opening to write, writing, truncating, creating
// folders, renaming, synchronizing, closing), or reads from it (kind 'r'). Removing never fails.
// Kind 'l' loses data: writes succeed without writing, and synchronizing fails, as when a server
// is lost after it has accepted them.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static int folder_length;
static char kind;
static int error_number;
static int all_follow;
static long num_calls, first_failing;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Lets call `n` of the kind fail with `error`, and with `and_all_after` those that follow; n = 0:
// none, only counts. `path` has no symbolic links.
void fail_disk(const char* path, char failing_kind, long n, int error, int and_all_after) {
  pthread_mutex_lock(&mutex);
  folder_length = (int)strlen(path);
  memcpy(folder, path, (size_t)folder_length + 1);
  kind = failing_kind;
  first_failing = n;
  error_number = error;
  all_follow = and_all_after;
  num_calls = 0;
  pthread_mutex_unlock(&mutex);
}

// Lets no call fail any more; returns how many calls of the kind there were.
long stop_failing_disk(void) {
  pthread_mutex_lock(&mutex);
  folder_length = 0;
  const long calls = num_calls;
  pthread_mutex_unlock(&mutex);
  return calls;
}

static int is_watched(const char* path) {
  return folder_length > 0 && path != NULL && strncmp(path, folder, (size_t)folder_length) == 0;
}

static int is_watched_fd(int fd) {
  if (folder_length == 0) return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return is_watched(path);
}

// Counts a call of a kind; returns whether it must fail, with errno set.
static int fails(int watched, char kind_of_call) {
  if (!watched || kind != kind_of_call) return 0;
  pthread_mutex_lock(&mutex);
  ++num_calls;
  const int failing = first_failing > 0 &&
                      (num_calls == first_failing || (all_follow && num_calls > first_failing));
  pthread_mutex_unlock(&mutex);
  if (failing) errno = error_number;
  return failing;
}

// Whether a write must pretend to have written.
static int loses(int watched) { return watched && kind == 'l'; }
static int fails_to_synchronize(int watched) { return fails(watched, kind == 'l' ? 'l' : 'w'); }

#define REAL(name)               \
  static __typeof__(&name) real; \
  if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static char kind_of_flags(int flags) { return (flags & O_ACCMODE) == O_RDONLY ? 'r' : 'w'; }
static char kind_of_mode(const char* mode) {
  return mode[0] == 'r' && !strchr(mode, '+') ? 'r' : 'w';
}

#define MODE_ARGUMENT                    \
  mode_t mode = 0;                       \
  if (flags & (O_CREAT | __O_TMPFILE)) { \
    va_list arguments;                   \
    va_start(arguments, flags);          \
    mode = va_arg(arguments, mode_t);    \
    va_end(arguments);                   \
  }

int open(const char* path, int flags, ...) {
  REAL(open);
  MODE_ARGUMENT
  return fails(is_watched(path), kind_of_flags(flags)) ? -1 : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  REAL(open64);
  MODE_ARGUMENT
  return fails(is_watched(path), kind_of_flags(flags)) ? -1 : real(path, flags, mode);
}
int openat(int at, const char* path, int flags, ...) {
  REAL(openat);
  MODE_ARGUMENT
  return fails(is_watched(path), kind_of_flags(flags)) ? -1 : real(at, path, flags, mode);
}
int openat64(int at, const char* path, int flags, ...) {
  REAL(openat64);
  MODE_ARGUMENT
  return fails(is_watched(path), kind_of_flags(flags)) ? -1 : real(at, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  REAL(fopen);
  return fails(is_watched(path), kind_of_mode(mode)) ? NULL : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  REAL(fopen64);
  return fails(is_watched(path), kind_of_mode(mode)) ? NULL : real(path, mode);
}

ssize_t write(int fd, const void* data, size_t size) {
  REAL(write);
  const int watched = is_watched_fd(fd);
  if (loses(watched)) return (ssize_t)size;
  return fails(watched, 'w') ? -1 : real(fd, data, size);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  REAL(pwrite);
  const int watched = is_watched_fd(fd);
  if (loses(watched)) return (ssize_t)size;
  return fails(watched, 'w') ? -1 : real(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  REAL(pwrite64);
  const int watched = is_watched_fd(fd);
  if (loses(watched)) return (ssize_t)size;
  return fails(watched, 'w') ? -1 : real(fd, data, size, offset);
}
ssize_t sendfile(int out, int in, off_t* offset, size_t size) {
  REAL(sendfile);
  return fails(is_watched_fd(out), 'w') || fails(is_watched_fd(in), 'r')
             ? -1
             : real(out, in, offset, size);
}
ssize_t sendfile64(int out, int in, off64_t* offset, size_t size) {
  REAL(sendfile64);
  return fails(is_watched_fd(out), 'w') || fails(is_watched_fd(in), 'r')
             ? -1
             : real(out, in, offset, size);
}
size_t fwrite(const void* data, size_t size, size_t count, FILE* file) {
  REAL(fwrite);
  const int watched = is_watched_fd(fileno(file));
  if (loses(watched)) return count;
  return fails(watched, 'w') ? 0 : real(data, size, count, file);
}
int fflush(FILE* file) {
  REAL(fflush);
  return file != NULL && fails(is_watched_fd(fileno(file)), 'w') ? EOF : real(file);
}
int ftruncate(int fd, off_t size) {
  REAL(ftruncate);
  return fails(is_watched_fd(fd), 'w') ? -1 : real(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  REAL(ftruncate64);
  return fails(is_watched_fd(fd), 'w') ? -1 : real(fd, size);
}
int fsync(int fd) {
  REAL(fsync);
  return fails_to_synchronize(is_watched_fd(fd)) ? -1 : real(fd);
}
int fdatasync(int fd) {
  REAL(fdatasync);
  return fails_to_synchronize(is_watched_fd(fd)) ? -1 : real(fd);
}

// A file that cannot be closed is closed all the same.
static int is_open_for_writing(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}
int close(int fd) {
  REAL(close);
  if (is_watched_fd(fd) && is_open_for_writing(fd) && fails(1, 'w')) {
    real(fd);
    errno = error_number;
    return -1;
  }
  return real(fd);
}
int fclose(FILE* file) {
  REAL(fclose);
  const int fd = fileno(file);
  if (is_watched_fd(fd) && is_open_for_writing(fd) && fails(1, 'w')) {
    real(file);
    errno = error_number;
    return EOF;
  }
  return real(file);
}

int rename(const char* from, const char* to) {
  REAL(rename);
  return fails(is_watched(from) || is_watched(to), 'w') ? -1 : real(from, to);
}
int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  return fails(is_watched(path), 'w') ? -1 : real(path, mode);
}

ssize_t read(int fd, void* data, size_t size) {
  REAL(read);
  return fails(is_watched_fd(fd), 'r') ? -1 : real(fd, data, size);
}
ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  REAL(pread);
  return fails(is_watched_fd(fd), 'r') ? -1 : real(fd, data, size, offset);
}
ssize_t pread64(int fd, void* data, size_t size, off64_t offset) {
  REAL(pread64);
  return fails(is_watched_fd(fd), 'r') ? -1 : real(fd, data, size, offset);
}
size_t fread(void* data, size_t size, size_t count, FILE* file) {
  REAL(fread);
  return fails(is_watched_fd(fileno(file)), 'r') ? 0 : real(data, size, count, file);
}
