// The mutex and its order of locks; and the owner lock: its owner never waits, others wait for the owner's short
// moments, and nobody is inside with another.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "src/library/base/mutex.h"
#include "src/library/base/owner_lock.h"

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

void Lock(LockRank first_rank, LockRank second_rank) {
  Mutex first(first_rank);
  Mutex second(second_rank);
  MutexLock held(first);
  MutexLock inner(second);
}

TEST(Mutex, AllowsLocksFromOuterToInner) { Lock(LockRank::kPoolTable, LockRank::kPool); }

#ifndef NDEBUG
TEST(MutexDeathTest, AbortsWhenLocksAreTakenOutOfOrder) {
  EXPECT_DEATH(Lock(LockRank::kPool, LockRank::kPoolTable), "locks are taken out of order");
}

TEST(MutexDeathTest, AbortsWhenTwoOfOneRankAreHeld) {
  EXPECT_DEATH(Lock(LockRank::kPool, LockRank::kPool), "locks are taken out of order");
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

constexpr uint64_t kOthersRounds = 300;

TEST(OwnerLock, LetsItsOwnerInAgainAndAgain) {
  OwnerLock lock;
  for (int time = 0; time < 3; ++time) {
    EXPECT_TRUE(lock.TryLockAsOwner());
    lock.UnlockAsOwner();
  }
  EXPECT_FALSE(lock.closed());
}

TEST(OwnerLock, RefusesItsOwnerWhileAnotherIsInside) {
  OwnerLock lock;
  std::thread([&] { EXPECT_TRUE(lock.Lock()); }).join();
  EXPECT_FALSE(lock.TryLockAsOwner());
  std::thread([&] { lock.Unlock(); }).join();
  EXPECT_TRUE(lock.TryLockAsOwner());
  lock.UnlockAsOwner();
}

TEST(OwnerLock, MakesAnotherWaitWhileItsOwnerIsInside) {
  OwnerLock lock;
  ASSERT_TRUE(lock.TryLockAsOwner());
  int value = 0;  // only the lock guards it, so ThreadSanitizer sees a missing wait
  std::atomic<bool> begun = false;
  std::thread other([&] {
    begun = true;
    EXPECT_TRUE(lock.Lock());
    EXPECT_EQ(value, 1);
    lock.Unlock();
  });
  while (!begun) std::this_thread::yield();
  value = 1;
  lock.UnlockAsOwner();
  other.join();
}

// What another thread does.
void CountUnder(OwnerLock& lock, uint64_t& count) {
  for (uint64_t round = 0; round < kOthersRounds; ++round) {
    EXPECT_TRUE(lock.Lock());
    ++count;
    lock.Unlock();
  }
}

TEST(OwnerLock, LosesNoIncrementOfItsOwnerAndAnother) {
  OwnerLock lock;
  uint64_t count = 0;
  std::atomic<bool> done = false;
  std::thread other([&] {
    CountUnder(lock, count);
    done = true;
  });
  uint64_t owners = 0;
  while (!done) {
    if (!lock.TryLockAsOwner()) {
      std::this_thread::yield();
      continue;
    }
    ++count;
    ++owners;
    lock.UnlockAsOwner();
  }
  other.join();
  EXPECT_EQ(count, owners + kOthersRounds);
}

TEST(OwnerLock, LosesNoIncrementOfSeveralOthers) {
  OwnerLock lock;
  uint64_t count = 0;
  std::thread one([&] { CountUnder(lock, count); });
  std::thread other([&] { CountUnder(lock, count); });
  one.join();
  other.join();
  EXPECT_EQ(count, 2 * kOthersRounds);
}

TEST(OwnerLock, RefusesEverybodyOnceItIsClosed) {
  OwnerLock lock;
  std::thread([&] {
    EXPECT_TRUE(lock.Lock());
    lock.Close();
  }).join();
  EXPECT_TRUE(lock.closed());
  EXPECT_FALSE(lock.TryLockAsOwner());
  EXPECT_FALSE(lock.Lock());
  EXPECT_FALSE(lock.TryLockAsOwner()) << "a refused lock opens nothing";
}

TEST(OwnerLock, TurnsThoseAwayWhoWaitedWhenItWasClosed) {
  OwnerLock lock;
  ASSERT_TRUE(lock.Lock());
  std::atomic<bool> begun = false;
  bool entered = true;
  std::thread waiting([&] {
    begun = true;
    entered = lock.Lock();
  });
  while (!begun) std::this_thread::yield();
  lock.Close();
  waiting.join();
  EXPECT_FALSE(entered);
}

}  // namespace
}  // namespace commpool::internal
