#include "src/library/base/mutex.h"

#include <algorithm>
#include <functional>

namespace commpool::internal {

thread_local constinit HeldLocks held_locks;

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

void Mutex::NoteCollective() {
  ++held_locks.collectives;
  held_locks.last_collective = this;
}

// Whoever waited releases it as awaited, because others may wait still.
void Mutex::Await() {
  while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) word_.wait(kAwaited, std::memory_order_relaxed);
}

void Mutex::AssertHeld() const {
#ifndef NDEBUG
  COMMPOOL_CHECK((held_locks.ranks & BitOf(rank_)) != 0, "a lock is needed that the thread does not hold");
#endif
}

std::deque<MutexLock> LockInOrder(std::vector<Mutex*> mutexes) {
  std::sort(mutexes.begin(), mutexes.end(), std::less<>());
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
  constexpr uint32_t kOrderEffects = Mutex::BitOf(LockRank::kCollective) | Mutex::BitOf(LockRank::kGrowth);
  return (held_locks.ranks & ~kOrderEffects) == 0;
}

}  // namespace commpool::internal
