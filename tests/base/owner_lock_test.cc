// The owner lock: its owner never waits, others wait for the owner's short moments, and nobody is inside with another.
#include "src/library/base/owner_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace commpool::internal {
namespace {

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

TEST(OwnerLock, LosesNoIncrementOfItsOwnerAndAnother) {
  OwnerLock lock;
  uint64_t count = 0;
  std::atomic<bool> done = false;
  std::thread other([&] {
    for (uint64_t round = 0; round < kOthersRounds; ++round) {
      EXPECT_TRUE(lock.Lock());
      ++count;
      lock.Unlock();
    }
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
  std::vector<std::thread> others;
  for (int thread = 0; thread < 2; ++thread) {
    others.emplace_back([&] {
      for (uint64_t round = 0; round < kOthersRounds; ++round) {
        EXPECT_TRUE(lock.Lock());
        ++count;
        lock.Unlock();
      }
    });
  }
  for (std::thread& other : others) other.join();
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
