#include "src/interpose/audit/signal_watch.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "src/interpose/audit/audit.h"
#include "src/interpose/preload/process_name.h"

namespace commpool::audit {

namespace {

constexpr int kEnding[] = {SIGTERM, SIGINT, SIGHUP, SIGABRT};
// How long a thread that a signal ends waits for the report: it may hold a lock that the report needs.
constexpr int kWaitSeconds = 5;

// What handlers and the thread tell each other. Made before a handler is there.
struct Exchange {
  sem_t wanted;
  sem_t written;                // the process may end
  std::atomic<int> ending = 0;  // the signal that ends the process
};

Exchange& Told() {
  static Exchange told;
  static const int made = sem_init(&told.wanted, 0, 0) + sem_init(&told.written, 0, 0);
  static_cast<void>(made);
  return told;
}

void Want(int) {
  const int before = errno;
  sem_post(&Told().wanted);
  errno = before;
}

bool WaitForReport() {
  timespec until = {};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kWaitSeconds;
  for (;;) {
    if (sem_timedwait(&Told().written, &until) == 0) return true;
    if (errno != EINTR) return false;
  }
}

// Nothing of this thread's runs any more, as without an audit: the signal comes again here, with its usual action.
// Where there is no report in time, an abort ends all the same; other signals let the thread go on, so that it gives
// its locks back, and the process ends once there is a report.
void End(int signal) {
  const int before = errno;
  Exchange& told = Told();
  // A handler of the program's that calls this one has the signal for itself.
  ::signal(signal, SIG_DFL);
  const bool forked = preload::IsForked();  // a forked child has no thread
  bool ends = forked || signal == SIGABRT;
  if (!forked) {
    told.ending = signal;
    sem_post(&told.wanted);
    ends = WaitForReport() || ends;
  }
  if (ends) raise(signal);
  errno = before;
}

void* Serve(void* signal) {
  const int asked = static_cast<int>(reinterpret_cast<intptr_t>(signal));
  Exchange& told = Told();
  for (;;) {
    if (sem_wait(&told.wanted) != 0) continue;
    const int ending = told.ending;
    Audit::Get().Report(std::string("signal ") + strsignal(ending != 0 ? ending : asked));
    if (ending == 0) continue;
    sem_post(&told.written);
    kill(getpid(), ending);
  }
  return nullptr;
}

// Without signals, which are the program's threads' to handle.
bool StartServing(int signal) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int failure = pthread_create(&thread, nullptr, &Serve, reinterpret_cast<void*>(intptr_t{signal}));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure == 0) pthread_detach(thread);
  return failure == 0;
}

bool IsHandled(int signal) {
  struct sigaction present = {};
  sigaction(signal, nullptr, &present);
  return present.sa_handler != SIG_DFL;
}

void Handle(int signal, void (*handler)(int), int flags) {
  struct sigaction ours = {};
  ours.sa_handler = handler;
  ours.sa_flags = SA_RESTART | flags;
  sigaction(signal, &ours, nullptr);
}

}  // namespace

void ReportOnSignals(int signal) {
  Told();  // a handler could not make it
  const bool asked = signal != 0 && !IsHandled(signal);
  if (signal != 0 && !asked) {
    preload::Say("audit", std::string("the program handles ") + strsignal(signal) + " itself: no reports on it");
  }
  if (!StartServing(signal)) return preload::Say("audit", "no thread for reports on signals");
  if (asked) Handle(signal, &Want, 0);
  for (const int ending : kEnding) {
    // A second one, or the one that End raises, comes at once.
    if (ending != signal && !IsHandled(ending)) Handle(ending, &End, static_cast<int>(SA_RESETHAND | SA_NODEFER));
  }
}

}  // namespace commpool::audit
