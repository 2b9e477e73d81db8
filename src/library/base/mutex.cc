#include "src/library/base/mutex.h"

#include <algorithm>
#include <cstdint>
#include <functional>

#include "src/library/base/check.h"

namespace commpool::internal {

namespace {

// The ranks of the mutexes that this thread holds, one bit each; an inner rank has a higher bit.
thread_local constinit uint32_t held = 0;

// For calls over several pools: how many kCollective mutexes this thread holds, and which it locked last.
thread_local constinit uint32_t collectives = 0;
thread_local constinit const Mutex* last_collective = nullptr;

constexpr uint32_t BitOf(LockRank rank) { return uint32_t{1} << (static_cast<int>(rank) / 5); }
constexpr uint32_t kOrderEffects = BitOf(LockRank::kCollective) | BitOf(LockRank::kGrowth);

}  // namespace

void Mutex::Lock() {
#ifndef NDEBUG
  const bool of_one_call = rank_ == LockRank::kCollective && collectives > 0 && last_collective < this;
  COMMPOOL_CHECK(held < BitOf(rank_) || (of_one_call && held < 2 * BitOf(rank_)), "locks are taken out of order");
#endif
  mutex_.lock();
  held |= BitOf(rank_);
  if (rank_ != LockRank::kCollective) return;
  ++collectives;
  last_collective = this;
}

void Mutex::Unlock() {
  const uint32_t bit = BitOf(rank_);
  COMMPOOL_CHECK(held >= bit && held < 2 * bit, "locks are released out of order");
  if (rank_ != LockRank::kCollective || --collectives == 0) held ^= bit;
  mutex_.unlock();
}

void Mutex::AssertHeld() const {
#ifndef NDEBUG
  COMMPOOL_CHECK((held & BitOf(rank_)) != 0, "a lock is needed that the thread does not hold");
#endif
}

std::deque<MutexLock> LockInOrder(std::vector<Mutex*> mutexes) {
  std::sort(mutexes.begin(), mutexes.end(), std::less<>());
  std::deque<MutexLock> locks;
  for (Mutex* const mutex : mutexes) locks.emplace_back(*mutex);
  return locks;
}

// The thread's books keep the mutex while it waits: it takes no other one meanwhile.
void Condition::Wait(Mutex& mutex) {
  std::unique_lock lock(mutex.mutex_, std::adopt_lock);
  condition_.wait(lock);
  lock.release();
}

bool Condition::WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point moment) {
  std::unique_lock lock(mutex.mutex_, std::adopt_lock);
  const std::cv_status status = condition_.wait_until(lock, moment);
  lock.release();
  return status == std::cv_status::no_timeout;
}

bool HoldsNoLock() { return (held & ~kOrderEffects) == 0; }

}  // namespace commpool::internal
