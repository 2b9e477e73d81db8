#include "src/base/mutex.h"

#include <array>
#include <cstddef>

#include "src/base/check.h"

namespace commpool::internal {

namespace {

// The ranks that this thread holds, innermost last. Depth is bounded by the number of ranks.
struct HeldRanks {
  std::array<LockRank, 8> ranks;
  size_t count = 0;
};

thread_local HeldRanks held;

}  // namespace

void Mutex::Lock() {
#ifndef NDEBUG
  COMMPOOL_CHECK(held.count == 0 || held.ranks[held.count - 1] < rank_, "locks are taken out of order");
#endif
  mutex_.lock();
  COMMPOOL_CHECK(held.count < held.ranks.size(), "more locks are held than there are ranks");
  held.ranks[held.count++] = rank_;
}

void Mutex::Unlock() {
  COMMPOOL_CHECK(held.count > 0 && held.ranks[held.count - 1] == rank_, "locks are released out of order");
  --held.count;
  mutex_.unlock();
}

bool HoldsNoLock() {
  for (size_t index = 0; index < held.count; ++index) {
    if (held.ranks[index] != LockRank::kGrowth && held.ranks[index] != LockRank::kCollective) return false;
  }
  return true;
}

}  // namespace commpool::internal
