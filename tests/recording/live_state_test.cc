// What lives, as a chapter retells it.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "src/library/recording/books.h"

namespace commpool::internal::recording {
namespace {

struct Told {
  std::vector<SegmentMade> segments;
  std::vector<BlockServed> blocks;
  std::vector<SpanBegan> spans;
  size_t others = 0;

  void operator()(const SegmentMade& entry) { segments.push_back(entry); }
  void operator()(const BlockServed& entry) { blocks.push_back(entry); }
  void operator()(const SpanBegan& entry) { spans.push_back(entry); }
  template <typename Entry>
  void operator()(const Entry&) {
    ++others;
  }
};

Told Retold(const LiveState& live, uint64_t now = 0) {
  Told told;
  live.Retell(now, [&](const auto& entry) { told(entry); });
  return told;
}

// Addresses and bytes.
using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

Ranges Segments(const LiveState& live) {
  Ranges ranges;
  for (const SegmentMade& segment : Retold(live).segments) ranges.emplace_back(segment.address, segment.bytes);
  return ranges;
}

TEST(LiveState, ABlockLivesUntilItsFreeAndGrowsOlder) {
  LiveState live;
  live.Apply(BlockServed{.pool = 1, .address = 64, .bytes = 512}, 100);
  const Told told = Retold(live, 250);
  ASSERT_EQ(told.blocks.size(), 1u);
  EXPECT_EQ(told.blocks[0].age, 150u);
  EXPECT_TRUE(live.HasBlock(64));
  live.Apply(BlockFreed{64}, 300);
  EXPECT_FALSE(live.HasBlock(64));
  EXPECT_TRUE(Retold(live).blocks.empty());
}

TEST(LiveState, OfASegmentThatLosesItsMiddleBothEndsAreLeft) {
  LiveState live;
  live.Apply(SegmentMade{.pool = 1, .address = 100, .bytes = 50}, 0);
  live.Apply(SegmentGone{1, 120, 10}, 0);
  EXPECT_EQ(Segments(live), (Ranges{{100, 20}, {130, 20}}));
}

TEST(LiveState, ARangeOfSeveralSegmentsMayGoAtOnce) {
  LiveState live;
  for (const uint64_t address : {100, 150, 200, 300}) {
    live.Apply(SegmentMade{.pool = 1, .address = address, .bytes = 50}, 0);
  }
  live.Apply(SegmentGone{1, 120, 100}, 0);
  EXPECT_EQ(Segments(live), (Ranges{{100, 20}, {220, 30}, {300, 50}}));
}

TEST(LiveState, ASpanIsOpenUntilItsEnd) {
  LiveState live;
  live.Apply(SpanBegan{.span = 7}, 0);
  EXPECT_EQ(Retold(live).spans.size(), 1u);
  live.Apply(SpanEnded{.span = 7}, 0);
  EXPECT_TRUE(Retold(live).spans.empty());
}

TEST(LiveState, RegistrationsOfOneSegmentWithTwoCommunicatorsAreTwo) {
  LiveState live;
  live.Apply(Registered{.pool = 1, .address = 64, .communicator = 1}, 0);
  live.Apply(Registered{.pool = 1, .address = 64, .communicator = 2}, 0);
  live.Apply(Deregistered{1, 64, 1}, 0);
  EXPECT_EQ(Retold(live).others, 1u);
}

}  // namespace
}  // namespace commpool::internal::recording
