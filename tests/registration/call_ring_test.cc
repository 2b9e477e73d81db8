#include "src/registration/call_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace commpool::internal {
namespace {

TEST(CallRing, GivesWhatItTookInOrder) {
  const auto ring = std::make_unique<CallRing>();
  EXPECT_TRUE(ring->TakeAll().empty());
  for (uint64_t number = 0; number < 3; ++number) EXPECT_TRUE(ring->Push({.number = number}));
  const std::vector<engine::SequenceEntry> calls = ring->TakeAll();
  ASSERT_EQ(calls.size(), 3u);
  for (uint64_t number = 0; number < 3; ++number) EXPECT_EQ(calls[number].number, number);
  EXPECT_TRUE(ring->TakeAll().empty());
}

TEST(CallRing, RefusesTheNewestWhereItIsFull) {
  const auto ring = std::make_unique<CallRing>();
  for (uint64_t number = 0; number < CallRing::kCapacity; ++number) EXPECT_TRUE(ring->Push({.number = number}));
  EXPECT_FALSE(ring->Push({.number = CallRing::kCapacity}));
  EXPECT_EQ(ring->TakeAll().front().number, 0u);
  EXPECT_TRUE(ring->Push({.number = 7}));
}

TEST(CallRing, LosesNothingBetweenTwoThreads) {
  constexpr uint64_t kCalls = 20 * CallRing::kCapacity;
  const auto ring = std::make_unique<CallRing>();
  std::thread producer([&] {
    for (uint64_t number = 0; number < kCalls; ++number) {
      while (!ring->Push({.number = number, .hash_after = ~number})) std::this_thread::yield();
    }
  });
  uint64_t next = 0;
  while (next < kCalls) {
    for (const engine::SequenceEntry& call : ring->TakeAll()) {
      ASSERT_EQ(call.number, next);
      ASSERT_EQ(call.hash_after, ~next);
      ++next;
    }
  }
  producer.join();
}

}  // namespace
}  // namespace commpool::internal
