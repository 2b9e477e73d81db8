// How much more than it needs a fixed pool may hold.
#include "src/engine/fixed_slack.h"

#include <gtest/gtest.h>

#include "src/base/bytes.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kNeeded = 64 * kGiB;

// Of a pool that needed so much once, and holds as much as it ever did.
Counters Holding(uint64_t bytes) {
  Counters counters{};
  counters.requested_bytes.peak = kNeeded;
  counters.reserved_bytes.current = bytes;
  counters.reserved_bytes.peak = bytes + kGiB;
  return counters;
}

TEST(FixedSlack, IsAPartOfWhatIsNeededAnd64MiBAtLeast) {
  const FixedSlack slack;
  EXPECT_EQ(slack.Excess(Holding(kNeeded), 0, kNeeded / 128, 0), 0u);
  EXPECT_EQ(slack.Excess(Holding(kNeeded), 0, kNeeded / 128 + kMiB, 0), kMiB);
  EXPECT_EQ(slack.Excess({}, kMiB, 68 * kMiB, 0), 3 * kMiB);
}

TEST(FixedSlack, WhatWasReservedByNameIsNoExcess) {
  EXPECT_EQ(FixedSlack().Excess(Holding(kNeeded), 0, kGiB, kGiB), 0u);
}

TEST(FixedSlack, CountsTheRequestWithWhatIsAskedForNow) {
  Counters counters = Holding(kNeeded);
  counters.requested_bytes.current = kNeeded;
  EXPECT_EQ(FixedSlack().Excess(counters, kGiB, kGiB, 0), 0u);
}

TEST(FixedSlack, GrowsOnceManySegmentsCameBackUntilMoreIsNeeded) {
  FixedSlack slack;
  for (int times = 0; times < 2049; ++times) {
    EXPECT_FALSE(slack.IsCalm());
    slack.CountMade(Holding(kNeeded), kGiB);
  }
  EXPECT_TRUE(slack.IsCalm());
  EXPECT_EQ(slack.Excess(Holding(kNeeded), 0, kNeeded / 32, 0), 0u);
  Counters more = Holding(kNeeded);
  ++more.requested_bytes.peak;
  slack.CountMade(more, kGiB);
  EXPECT_FALSE(slack.IsCalm());
}

TEST(FixedSlack, ASegmentBeyondWhatThePoolEverHeldIsNoneThatCameBack) {
  FixedSlack slack;
  for (int times = 0; times < 3000; ++times) slack.CountMade(Holding(kNeeded), kGiB + 1);
  EXPECT_FALSE(slack.IsCalm());
}

}  // namespace
}  // namespace commpool::internal::engine
