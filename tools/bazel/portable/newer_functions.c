// What this system's headers and libstdc++.a ask of the C library and older systems have not. Linked hidden into each
// portable library and program (portable.bzl), so that nothing of the system's own is replaced.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

// Since 2.33; the kernel's structure is the C library's on 64-bit machines.
HIDDEN int stat(const char* path, struct stat* status) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

HIDDEN int lstat(const char* path, struct stat* status) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

HIDDEN int fstat(int file, struct stat* status) { return (int)syscall(SYS_fstat, file, status); }

// Since 2.30.
HIDDEN pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

// Since 2.36: random bits, for what libstdc++.a has of std::random_device.
HIDDEN unsigned arc4random(void) {
  unsigned bits = 0;
  syscall(SYS_getrandom, &bits, sizeof(bits), 0);
  return bits;
}

// Since 2.32: whether atomic operations may be left out. Never.
HIDDEN char __libc_single_threaded = 0;

// Since 2.38: what newer headers call strtol and its like.
#define OLDER(type, name)                                                                                       \
  extern type older_##name(const char*, char**, int) __asm__(#name);                                            \
  HIDDEN type __isoc23_##name(const char* text, char** end, int base) { return older_##name(text, end, base); } \
  type __isoc23_##name(const char*, char**, int)
OLDER(long, strtol);
OLDER(long long, strtoll);
OLDER(unsigned long, strtoul);
OLDER(unsigned long long, strtoull);

// No library of an older system has it for others: each program and library has a copy that names itself, so that its
// functions are forgotten when it is closed.
extern void* __dso_handle __attribute__((visibility("hidden")));
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void* dso);
HIDDEN int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  return __register_atfork(prepare, parent, child, __dso_handle);
}

#define NANOSECONDS 1000000000L

// The moment on the clock that condition variables use unless told otherwise.
static struct timespec OnTheRealClock(clockid_t clock, const struct timespec* moment) {
  struct timespec now;
  struct timespec real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  real.tv_sec += moment->tv_sec - now.tv_sec;
  real.tv_nsec += moment->tv_nsec - now.tv_nsec;
  for (; real.tv_nsec < 0; real.tv_nsec += NANOSECONDS) --real.tv_sec;
  for (; real.tv_nsec >= NANOSECONDS; real.tv_nsec -= NANOSECONDS) ++real.tv_sec;
  return real;
}

// Since 2.30: the system's own where it has one, for it does not depend on the time of day.
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* moment) {
  typedef int Wait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static Wait* volatile known;
  Wait* wait = known;
  if (wait == NULL) {
    wait = (Wait*)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    known = wait;
  }
  if (wait != NULL) return wait(condition, mutex, clock, moment);
  const struct timespec real = OnTheRealClock(clock, moment);
  return pthread_cond_timedwait(condition, mutex, &real);
}
