// How much memory all pools of a device have together, and its limit.
#include "src/library/pool/shared/memory_account.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace commpool::internal {
namespace {

TEST(MemoryAccount, HasNoLimitToBeginWith) {
  MemoryAccount account;
  EXPECT_EQ(account.limit(), UINT64_MAX);
  EXPECT_TRUE(account.Take(uint64_t{1} << 60));
  EXPECT_EQ(account.Room(), UINT64_MAX - (uint64_t{1} << 60));
}

TEST(MemoryAccount, GrantsUpToTheLimit) {
  MemoryAccount account;
  account.SetLimit(100);
  EXPECT_TRUE(account.Take(60));
  EXPECT_FALSE(account.Take(41));
  EXPECT_EQ(account.Room(), 40u) << "a refusal takes nothing";
  EXPECT_TRUE(account.Take(40));
  EXPECT_FALSE(account.Take(1));
  EXPECT_TRUE(account.Take(0));
  account.Return(60);
  EXPECT_EQ(account.Room(), 60u);
  EXPECT_TRUE(account.Take(60));
}

TEST(MemoryAccount, RefusesWhatOverflows) {
  MemoryAccount account;
  EXPECT_TRUE(account.Take(1));
  EXPECT_FALSE(account.Take(UINT64_MAX));
  EXPECT_TRUE(account.Take(UINT64_MAX - 1));
}

TEST(MemoryAccount, BeyondALoweredLimitGrantsNothing) {
  MemoryAccount account;
  EXPECT_TRUE(account.Take(100));
  account.SetLimit(50);
  EXPECT_EQ(account.Room(), 0u);
  EXPECT_FALSE(account.Take(1));
  account.Return(60);
  EXPECT_EQ(account.Room(), 10u);
}

TEST(MemoryAccount, OfAPartTakesFromTheWholeToo) {
  const auto whole = std::make_shared<MemoryAccount>("device 0", 1000);
  MemoryAccount part("part", 1000, whole);
  whole->SetLimit(100);
  part.SetLimit(60);
  EXPECT_TRUE(part.Take(50));
  EXPECT_EQ(whole->taken(), 50u);
  EXPECT_FALSE(part.Take(20)) << "its own limit";
  EXPECT_TRUE(whole->Take(45));
  EXPECT_EQ(part.Room(), 5u) << "the whole has less";
  EXPECT_FALSE(part.Take(10)) << "the whole's limit";
  EXPECT_EQ(part.taken(), 50u) << "a refusal takes nothing";
  part.NotePeak();
  part.Return(50);
  EXPECT_EQ(whole->taken(), 45u);
  EXPECT_EQ(part.peak(), 50u);
  EXPECT_EQ(whole->peak(), 95u);
}

TEST(MemoryAccount, HasNoPeakOfWhatWasNeverMade) {
  const auto whole = std::make_shared<MemoryAccount>("device 0", 1000);
  MemoryAccount part("part", 1000, whole);
  part.SetLimit(60);
  EXPECT_FALSE(part.Take(70));
  ASSERT_TRUE(part.Take(50));
  { const Room never_made(part, 50); }
  EXPECT_EQ(whole->peak() + part.peak(), 0u);
  ASSERT_TRUE(part.Take(40));
  Room(part, 40).Keep();
  EXPECT_EQ(whole->peak(), 40u);
  EXPECT_EQ(part.peak(), 40u);
}

TEST(MemoryAccountDeathTest, GetsNoMoreBackThanItGave) {
  MemoryAccount account;
  EXPECT_TRUE(account.Take(1));
  EXPECT_DEATH(account.Return(2), "more memory back");
}

TEST(MemoryAccount, NeverGrantsTwoThreadsTheSameRoom) {
  constexpr int kThreads = 4;
  constexpr uint64_t kLimit = 100;
  MemoryAccount account;
  account.SetLimit(kLimit);
  std::vector<uint64_t> taken(kThreads);
  std::vector<std::thread> threads;
  for (uint64_t& mine : taken) {
    threads.emplace_back([&account, &mine] {
      while (account.Take(1)) ++mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t sum = 0;
  for (const uint64_t mine : taken) sum += mine;
  EXPECT_EQ(sum, kLimit);
}

}  // namespace
}  // namespace commpool::internal
