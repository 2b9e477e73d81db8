#include "src/adapters/audit/signal_watch.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>

#include <string>

#include "src/adapters/audit/audit.h"
#include "src/adapters/preload/process_name.h"

namespace commpool::audit {

namespace {

sem_t& Wanted() {
  static sem_t wanted;
  static const int made = sem_init(&wanted, 0, 0);
  static_cast<void>(made);
  return wanted;
}

void Want(int) {
  const int before = errno;
  sem_post(&Wanted());
  errno = before;
}

void* Serve(void* signal) {
  const int number = static_cast<int>(reinterpret_cast<intptr_t>(signal));
  for (;;) {
    if (sem_wait(&Wanted()) == 0) Audit::Get().Report(std::string("signal ") + strsignal(number));
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

}  // namespace

void ReportOnSignal(int signal) {
  struct sigaction present = {};
  sigaction(signal, nullptr, &present);
  if (present.sa_handler != SIG_DFL) {
    return preload::Say("audit", std::string("the program handles ") + strsignal(signal) + " itself: no reports on it");
  }
  Wanted();  // made before a handler may ask for it
  if (!StartServing(signal)) return preload::Say("audit", "no thread for reports on a signal");
  struct sigaction ours = {};
  ours.sa_handler = &Want;
  ours.sa_flags = SA_RESTART;
  sigaction(signal, &ours, nullptr);
}

}  // namespace commpool::audit
