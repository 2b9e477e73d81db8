#include "src/library/base/mutex.h"

#include <algorithm>

namespace commpool::internal {

namespace {

// Which mutexes a thread holds.
struct HeldLocks {
  // The ranks, one bit each; an inner rank has a higher bit.
  uint32_t ranks = 0;
  // For calls over several pools: how many kCollective mutexes the thread holds, and which it locked last.
  uint32_t collectives = 0;
  const Mutex* last_collective = nullptr;
};
thread_local constinit HeldLocks held_locks;

constexpr uint32_t BitOf(LockRank rank) { return uint32_t{1} << (static_cast<int>(rank) / 5); }

}  // namespace

// The thread's books keep the mutex while it waits: it takes no other one.
struct Condition::Unlocking {
  void lock() { mutex.Take(); }
  void unlock() { mutex.Release(); }
  Mutex& mutex;
};

void Mutex::CheckOrder() const {
  const uint32_t held = held_locks.ranks;
  const bool of_one_call =
      rank_ == LockRank::kCollective && held_locks.collectives > 0 && held_locks.last_collective < this;
  COMMPOOL_CHECK(held < BitOf(rank_) || (of_one_call && held < 2 * BitOf(rank_)), "locks are taken out of order");
}

bool Mutex::TryLock() {
  if (kChecksLocks && held_locks.ranks != 0) return false;
  uint32_t word = kFree;
  if (!word_.compare_exchange_strong(word, kHeld, std::memory_order_acquire)) return false;
  if constexpr (kChecksLocks) NoteTaken();
  return true;
}

void Mutex::NoteTaken() const {
  held_locks.ranks |= BitOf(rank_);
  if (rank_ != LockRank::kCollective) return;
  ++held_locks.collectives;
  held_locks.last_collective = this;
}

void Mutex::NoteReleased() const {
  const uint32_t outer = held_locks.ranks ^ BitOf(rank_);
  COMMPOOL_CHECK(outer < BitOf(rank_), "locks are released out of order");
  if (rank_ != LockRank::kCollective || --held_locks.collectives == 0) held_locks.ranks = outer;
}

// Whoever waited releases it as awaited, because others may wait still.
void Mutex::Await() {
  while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) word_.wait(kAwaited, std::memory_order_relaxed);
}

void Mutex::AssertHeld() const {
  COMMPOOL_CHECK(!kChecksLocks || (held_locks.ranks & BitOf(rank_)) != 0,
                 "a lock is needed that the thread does not hold");
}

std::deque<MutexLock> LockInOrder(std::vector<Mutex*> mutexes) {
  std::ranges::sort(mutexes);
  std::deque<MutexLock> locks;
  for (Mutex* const mutex : mutexes) locks.emplace_back(*mutex);
  return locks;
}

void Condition::Wait(Mutex& mutex) {
  Unlocking unlocking{mutex};
  condition_.wait(unlocking);
}

bool Condition::WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point moment) {
  Unlocking unlocking{mutex};
  return condition_.wait_until(unlocking, moment) == std::cv_status::no_timeout;
}

bool HoldsNoLock() {
  constexpr uint32_t kOrderEffects = BitOf(LockRank::kCollective) | BitOf(LockRank::kGrowth);
  return (held_locks.ranks & ~kOrderEffects) == 0;
}

}  // namespace commpool::internal
