#include "src/library/base/start_thread.h"

#include <signal.h>

#include <new>
#include <system_error>
#include <utility>

#include "src/library/base/check.h"
#include "src/library/base/failure.h"

namespace commpool::internal {

namespace {

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

}  // namespace

Result<std::thread> StartThread(const char* name, std::function<void()> body) {
  const SignalsBlocked in_the_thread;
  try {
    return std::thread([name, body = std::move(body)] {
      try {
        body();
      } catch (const std::bad_alloc&) {
        EndWithoutHostMemory(name);
      }
    });
  } catch (const std::system_error& error) {
    return OutOfMemory("the host refused commpool a thread, ", name, " (", error.code().message(),
                       "): a limit on threads (ulimit -u, the cgroup's pids.max) or on memory is reached; raise it and "
                       "call again");
  }
}

}  // namespace commpool::internal
