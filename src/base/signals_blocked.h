// Keeps signals from a thread of ours: they are for the program.
#ifndef COMMPOOL_SRC_BASE_SIGNALS_BLOCKED_H_
#define COMMPOOL_SRC_BASE_SIGNALS_BLOCKED_H_

#include <signal.h>

namespace commpool::internal {

// While it lives, this thread gets no signals, and neither does a thread that it starts.
class [[nodiscard]] SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_SIGNALS_BLOCKED_H_
