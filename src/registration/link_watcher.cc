#include "src/registration/link_watcher.h"

#include <signal.h>

#include <chrono>
#include <system_error>

#include "src/base/host_failure.h"
#include "src/base/host_reserve.h"
#include "src/base/try.h"

namespace commpool::internal {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{50};
constexpr milliseconds kBeat{250};  // a quarter of the shortest silence that counts

// Signals are for the program's threads.
class SignalsBlocked {
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

Result<std::unique_ptr<LinkWatcher>> LinkWatcher::Make(HomeLink& link) {
  ReadinessSet ends = COMMPOOL_TRY(ReadinessSet::Make());
  return std::unique_ptr<LinkWatcher>(new LinkWatcher(link, std::move(ends)));
}

Status LinkWatcher::Start() {
  const SignalsBlocked in_the_thread;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return Status(StatusCode::kOutOfMemory, std::string("the watcher of the ranks cannot start: ") + error.what());
  }
  return Status();
}

void LinkWatcher::Stop() {
  ending_.store(true, std::memory_order_release);
  Wake();
  if (thread_.joinable()) thread_.join();
}

void LinkWatcher::AddWork(uint64_t channel, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_[channel] = std::move(work);
}

void LinkWatcher::RemoveWork(uint64_t channel) {
  const std::lock_guard lock(mutex_);
  work_.erase(channel);
}

void LinkWatcher::Run() {
  // Where the host has no memory for long nothing is watched any more: rounds still read what comes, and end at their
  // deadlines.
  BestEffort([&] { WatchUntilTheEnd(); });
}

void LinkWatcher::WatchUntilTheEnd() {
  Clock::time_point looked = Clock::now();
  Clock::time_point beat = looked - kBeat;
  while (!ending_.load(std::memory_order_acquire)) {
    static_cast<void>(ends_.Wait(Clock::now() + kTick));
    static_cast<void>(HostReserve::Fill());
    link_.ReadNow();
    const Clock::time_point now = Clock::now();
    // A process that was stopped finds its peers silent, and was itself the silent one.
    const auto unwatched = std::chrono::duration_cast<milliseconds>(now - looked);
    link_.NoteSilentRanks(unwatched > 4 * kTick ? unwatched : milliseconds(0));
    looked = now;
    if (now - beat >= kBeat) {
      link_.Beat();
      beat = now;
    }
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [channel, work] : work_) BestEffort(work);
    }
    link_.lost_ranks()->CallListeners();
  }
}

}  // namespace commpool::internal
