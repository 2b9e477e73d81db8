// LossWatch: hears of a lost rank on the thread of the link's watcher, and gives the program the advice that still
// helps.
#include <algorithm>
#include <utility>

#include "src/library/base/log.h"
#include "src/library/base/user_function.h"
#include "src/library/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// How long to wait for the device before work on it counts as a collective that hangs. Other work, and collectives with
// all their ranks, mostly end sooner; the watchdogs of programs wait much longer.
constexpr uint64_t kPatienceMilliseconds = 200;

// The function may free blocks, since a program drops what it cannot use any more. Other calls of the library are
// refused in it.
constexpr UserFunctionKind kOnLostRank = {.name = "a pool's on_lost_rank", .may_free = true};

}  // namespace

void LossWatch::Follow(const std::shared_ptr<LostRanks>& ranks) {
  // The old home's losses are no longer this pool's.
  Stop();
  const LostRanks::ListenerNumber listener = ranks->AddListener([this](int rank) { Tell(rank); });
  {
    MutexLock lock(mutex_);
    // Before `followed_` points to it.
    kept_.push_back(ranks);
    listener_ = listener;
  }
  followed_.store(ranks.get(), std::memory_order_release);
}

// The lock is free while a running listener is waited for: that listener waits for the device, and calls the program.
void LossWatch::Stop() {
  std::shared_ptr<LostRanks> ranks;
  LostRanks::ListenerNumber listener = 0;
  {
    MutexLock lock(mutex_);
    // Nothing was followed yet.
    if (kept_.empty()) return;
    ranks = kept_.back();
    listener = std::exchange(listener_, 0);
  }
  if (listener != 0) ranks->RemoveListener(listener);  // waits for a listener that runs
}

// The wait is short also because other pools of the home hear of the loss behind it, on the same thread.
bool LossWatch::MayHang() const {
  const NcclLibrary& nccl = basis_.driver.nccl;
  // From 2.29.7 on an abort ends such a collective.
  if (registrations_.registrations() == 0 || nccl.ends_windows_in_abort()) return false;
  const uint64_t patience = std::min(kPatienceMilliseconds, basis_.deadline_ms());
  // The wait may go on by itself on a thread of its own, which harms nobody.
  const StatusCode waited = basis_.device->Quiesce(patience).code();
  // A capturing device cannot be asked.
  return waited == StatusCode::kDeadlineExceeded || waited == StatusCode::kFailedPrecondition;
}

// Runs on the channel's thread. The program gets the same advice as the log, because only the program can follow it.
void LossWatch::Tell(int rank) const {
  const bool may_hang = MayHang();
  const std::string way_out =
      may_hang ? "a collective on the pool's windows may wait for it for ever, and no abort ends that: end the process"
               : "launch nothing more with it; abandon every communicator, abort them, then close() or rehome()";
  const PoolConfiguration& configuration = basis_.configuration;
  Log(configuration.on_lost_rank == nullptr ? LogLevel::kWarning : LogLevel::kInfo,
      basis_.title + ": rank " + std::to_string(rank) + " of its home is lost: " + way_out);
  // The log has told it: louder where the program has no function that hears of it.
  if (configuration.on_lost_rank == nullptr) return;
  const Status told = CallUserFunction(kOnLostRank, "on_lost_rank", [&] {
    configuration.on_lost_rank(rank, may_hang ? 1 : 0, configuration.lost_rank_context);
  });
  if (!told.ok()) Log(LogLevel::kError, basis_.title + ": " + told.message());
}

}  // namespace commpool::internal
