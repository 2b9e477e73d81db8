// The one thread of a home link. It wakes when a peer's connection ends, when it is woken, and every 50 ms; never for
// the bytes of a round.
#include <signal.h>

#include <system_error>
#include <utility>

#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/base/host_reserve.h"
#include "src/registration/home_link.h"

namespace commpool::internal {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{50};
constexpr milliseconds kBeat{250};  // a quarter of the shortest silence that counts

// While it lives, this thread gets no signals, and neither does a thread that it starts: they are for the program.
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

Status HomeLink::StartWatching() {
  const SignalsBlocked in_the_thread;
  try {
    // If the host has no memory for long, the watcher ends. Rounds still read what comes, and end at their deadlines.
    watcher_ = std::thread([this] { BestEffort([this] { Watch(); }); });
  } catch (const std::system_error& error) {
    return Status(StatusCode::kOutOfMemory, std::string("the watcher of the ranks cannot start: ") + error.what());
  }
  return Status();
}

void HomeLink::StopWatching() {
  ending_.store(true, std::memory_order_release);
  WakeWatcher();
  if (watcher_.joinable()) watcher_.join();
}

void HomeLink::StartWork(uint64_t channel, std::function<void()> work) {
  const std::lock_guard lock(work_mutex_);
  work_[channel] = std::move(work);
}

void HomeLink::StopWork(uint64_t channel) {
  const std::lock_guard lock(work_mutex_);
  work_.erase(channel);
}

void HomeLink::Watch() {
  Deadline looked = Clock::now();
  Deadline beat = looked - kBeat;
  while (!ending_.load(std::memory_order_acquire)) {
    static_cast<void>(ends_.Wait(Clock::now() + kTick));
    static_cast<void>(HostReserve::Fill());
    ReadNow();
    const Deadline now = Clock::now();
    // A process that was stopped finds its peers silent, though it was itself the silent one.
    const auto unwatched = std::chrono::duration_cast<milliseconds>(now - looked);
    NoteSilentRanks(unwatched > 4 * kTick ? unwatched : milliseconds(0));
    looked = now;
    if (now - beat >= kBeat) {
      Send({.kind = FrameKind::kHeartbeat});
      beat = now;
    }
    {
      const std::lock_guard lock(work_mutex_);
      for (const auto& [channel, work] : work_) BestEffort(work);
    }
    lost_ranks_->CallListeners();
  }
}

void HomeLink::NoteSilentRanks(std::chrono::milliseconds unwatched) {
  const std::lock_guard lock(mutex_);
  const Deadline now = Clock::now();
  for (size_t index = 0; index < peers_.size(); ++index) {
    Peer& peer = peers_[index];
    peer.heard += unwatched;
    const auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(now - peer.heard);
    if (!peer.ended.empty() || peer.goodbye || silent < silence_ + peer.patience) continue;
    std::string how = Insist([&] { return "it was silent for " + std::to_string(silent.count()) + " ms"; });
    NoteLost(RankOf(index), how);
    peer.ended = std::move(how);
    input_.Remove(peer.stream.descriptor());
  }
}

}  // namespace commpool::internal
