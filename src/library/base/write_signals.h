// The signals that a write can raise: SIGXFSZ past a limit of file sizes (ulimit -f), SIGPIPE where nobody reads. Each
// ends a program that does not expect it, and our writes are not the program's.
#pragma once

#include <signal.h>

#include <ctime>

namespace commpool::internal {

// While it lives, this thread gets neither signal from its writes: they fail with EFBIG or EPIPE. One that was pending
// before stays so.
class [[nodiscard]] WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() {
    sigset_t pending;
    sigpending(&pending);
    sigemptyset(&raised_);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, signal) == 0) sigaddset(&raised_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &raised_, &before_);
  }
  ~WriteSignalsBlocked() {
    const timespec at_once = {};
    while (sigtimedwait(&raised_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WriteSignalsBlocked(const WriteSignalsBlocked&) = delete;
  WriteSignalsBlocked& operator=(const WriteSignalsBlocked&) = delete;

 private:
  sigset_t raised_;
  sigset_t before_;
};

}  // namespace commpool::internal
