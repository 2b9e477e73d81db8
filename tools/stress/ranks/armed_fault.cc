#include "tools/stress/ranks/armed_fault.h"

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <thread>
#include <utility>

namespace commpool::cli::stress_ranks {

namespace {

constexpr unsigned kOrphanSeconds = 30;  // longer than any schedule

thread_local Caller caller_of_thread = Caller::kLibrary;
std::atomic<ArmedFault*> fault_of_process{nullptr};

}  // namespace

Caller CallerOfThread() { return caller_of_thread; }
void DeclareThread(Caller caller) { caller_of_thread = caller; }

ArmedFault* ArmedFault::OfProcess() { return fault_of_process.load(std::memory_order_acquire); }

ArmedFault::ArmedFault(Effects effects) : effects_(std::move(effects)) {
  fault_of_process.store(this, std::memory_order_release);
}
ArmedFault::~ArmedFault() { fault_of_process.store(nullptr, std::memory_order_release); }

void ArmedFault::Arm(const Fault& fault) {
  fault_ = fault;
  skip_.store(fault.skip, std::memory_order_relaxed);
  armed_.store(true, std::memory_order_release);
}

bool ArmedFault::Waits(Point point) {
  if (!armed_.load(std::memory_order_acquire) || fault_.point != point) return false;
  return skip_.fetch_sub(1, std::memory_order_relaxed) <= 0;
}

void ArmedFault::AwaitLibrary() const {
  constexpr auto kMoment = std::chrono::milliseconds(200);
  const auto end = std::chrono::steady_clock::now() + kMoment;
  while (armed_.load() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void ArmedFault::ActNow() {
  if (armed_.load(std::memory_order_acquire) && fault_.point == Point::kPublish) AwaitLibrary();
  // A flood needs its port and a refusal needs its segment: without them there is nothing to do.
  const bool needs_point = fault_.kind == Kind::kFlood || fault_.kind == Kind::kRefuse;
  if (armed_.load(std::memory_order_acquire) && !needs_point) Act(Point::kBetween);
  armed_.store(false, std::memory_order_release);
}

void ArmedFault::Act(Point point) {
  if (!armed_.exchange(false, std::memory_order_acq_rel)) return;
  effects_.at_point(point);
  switch (fault_.kind) {
    case Kind::kOrphan:
      if (fork() == 0) {
        alarm(kOrphanSeconds);
        while (true) pause();
      }
      [[fallthrough]];
    case Kind::kKill:
      kill(getpid(), SIGKILL);
      while (true) pause();
    case Kind::kStop:
    case Kind::kPause:
      kill(getpid(), SIGSTOP);
      return;
    case Kind::kLate:
      return std::this_thread::sleep_for(effects_.late);
    case Kind::kDelay:
      return std::this_thread::sleep_for(effects_.delay);
    case Kind::kRefuse:
    case Kind::kCrossed:
    case Kind::kFlood:
      return;  // the point itself does it
  }
}

}  // namespace commpool::cli::stress_ranks
