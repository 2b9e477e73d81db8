#include "src/library/base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace commpool::internal {
namespace {

TEST(Mutex, ExcludesOtherThreads) {
  Mutex mutex(LockRank::kLeaf);
  int count = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 1000; ++round) {
        MutexLock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

TEST(Condition, IsAwaitedUnderItsMutexUntilAnotherThreadNotifies) {
  Mutex mutex(LockRank::kLeaf);
  Condition changed;
  bool ready = false;
  std::thread other([&] {
    MutexLock lock(mutex);
    ready = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(mutex);
    while (!ready) changed.Wait(mutex);
    EXPECT_EQ(HoldsNoLock(), !kChecksLocks);
  }
  other.join();
  EXPECT_TRUE(HoldsNoLock());
}

TEST(Condition, TellsThatTheMomentHasPassed) {
  Mutex mutex(LockRank::kLeaf);
  Condition changed;
  MutexLock lock(mutex);
  const auto passed = std::chrono::steady_clock::now();
  while (changed.WaitUntil(mutex, passed)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), passed);
}

TEST(Mutex, AllowsLocksFromOuterToInner) {
  Mutex outer(LockRank::kPoolTable);
  Mutex inner(LockRank::kPool);
  MutexLock first(outer);
  MutexLock second(inner);
}

#ifndef NDEBUG
TEST(MutexDeathTest, AbortsWhenLocksAreTakenOutOfOrder) {
  Mutex outer(LockRank::kPoolTable);
  Mutex inner(LockRank::kPool);
  EXPECT_DEATH(
      {
        MutexLock first(inner);
        MutexLock second(outer);
      },
      "locks are taken out of order");
}

TEST(MutexDeathTest, AbortsWhenTwoOfOneRankAreHeld) {
  Mutex first(LockRank::kPool);
  Mutex second(LockRank::kPool);
  EXPECT_DEATH(
      {
        MutexLock held(first);
        MutexLock again(second);
      },
      "locks are taken out of order");
}
#endif

void ReleaseWhatIsNotHeld(Mutex& mutex) COMMPOOL_ANNOTATION(no_thread_safety_analysis) { mutex.Unlock(); }

TEST(MutexDeathTest, AbortsWhenALockThatIsNotHeldIsReleased) {
  Mutex mutex(LockRank::kLeaf);
  EXPECT_DEATH(ReleaseWhatIsNotHeld(mutex),
               kChecksLocks ? "locks are released out of order" : "a lock is released that nobody holds");
}

TEST(HoldsNoLock, IsFalseUnderADataLock) {
  EXPECT_TRUE(HoldsNoLock());
  Mutex mutex(LockRank::kPool);
  {
    MutexLock lock(mutex);
    EXPECT_EQ(HoldsNoLock(), !kChecksLocks);
  }
  EXPECT_TRUE(HoldsNoLock());
}

TEST(HoldsNoLock, IsTrueUnderTheLockOfAGrowth) {
  Mutex mutex(LockRank::kGrowth);
  MutexLock lock(mutex);
  EXPECT_TRUE(HoldsNoLock());
}

TEST(HoldsNoLock, CountsOnlyThisThreadsLocks) {
  Mutex mutex(LockRank::kPool);
  MutexLock lock(mutex);
  bool other = false;
  std::thread([&] { other = HoldsNoLock(); }).join();
  EXPECT_TRUE(other);
}

}  // namespace
}  // namespace commpool::internal
