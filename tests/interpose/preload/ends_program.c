/* Uses the driver and NCCL, and ends as its first argument says; the second is a signal. It says so where it goes on.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { kStatus = 45, kWentOn = 46, kBytes = 1 << 20 };

static int number = 0;
static void (*former)(int) = SIG_DFL;

static void Use(void) {
  CUcontext context;
  CUdeviceptr memory = 0;
  void* buffer = NULL;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  if (cuMemAlloc(&memory, kBytes) != CUDA_SUCCESS || ncclMemAlloc(&buffer, kBytes) != ncclSuccess) _exit(9);
}

static void* Raise(void* unused) {
  pthread_kill(pthread_self(), number);
  return unused;
}

static void Abort(int signal) {
  (void)signal;
  abort();
}

static void Leave(int signal) {
  (void)signal;
  _exit(kStatus);
}

static void RaiseAgain(int again) {
  signal(again, SIG_DFL);
  raise(again);
}

/* As libraries do that put a handler of theirs in front. */
static void Chain(int chained) {
  if (former != SIG_DFL) return former(chained);
  RaiseAgain(chained);
}

static void RaiseBlocked(void) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, number);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  raise(number);
  sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

static void RaiseOnThread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, &Raise, NULL);
  pthread_join(thread, NULL);
}

static void RaiseInFork(void) {
  if (fork() != 0) _exit(kStatus);
  raise(number);
}

static void RaiseWith(void (*handler)(int)) {
  former = signal(number, handler);
  raise(number);
}

static void EndBySignal(const char* way) {
  if (strcmp(way, "raise") == 0) raise(number);
  if (strcmp(way, "kill") == 0) kill(getpid(), number);
  if (strcmp(way, "thread") == 0) RaiseOnThread();
  if (strcmp(way, "blocked") == 0) RaiseBlocked();
  if (strcmp(way, "abort-in-handler") == 0) RaiseWith(&Abort);
  if (strcmp(way, "exit-in-handler") == 0) RaiseWith(&Leave);
  if (strcmp(way, "again-in-handler") == 0) RaiseWith(&RaiseAgain);
  if (strcmp(way, "chained") == 0) RaiseWith(&Chain);
  if (strcmp(way, "ignored") == 0) RaiseWith(SIG_IGN);
  if (strcmp(way, "fork") == 0) RaiseInFork();
}

static void End(const char* way) {
  if (strcmp(way, "exit") == 0) exit(kStatus);
  if (strcmp(way, "_exit") == 0) _exit(kStatus);
  if (strcmp(way, "quick_exit") == 0) quick_exit(kStatus);
  if (strcmp(way, "abort") == 0) abort();
  if (strcmp(way, "exec") == 0) execl("/bin/sh", "sh", "-c", "exit 45", NULL);
  if (strcmp(way, "exec-kill") == 0) execl("/bin/sh", "sh", "-c", "kill -ABRT $$; exit 46", NULL);
  if (strcmp(way, "no-files") == 0) {
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_FSIZE, &none);
    exit(kStatus);
  }
  if (strcmp(way, "abort-at-exit") == 0) {
    atexit(&abort);
    exit(kStatus);
  }
  if (strcmp(way, "wait") == 0) {
    puts("waits");
    fflush(stdout);
    pause();
  }
  if (number != 0) EndBySignal(way);
}

int main(int count, char** words) {
  number = count > 2 ? atoi(words[2]) : 0;
  Use();
  if (count > 1 && strcmp(words[1], "return") == 0) return kStatus;
  if (count > 1) End(words[1]);
  puts("went on");
  return kWentOn;
}
