// The engine of expandable pools grows in steps, between which the pool may release its lock.
#include "src/library/engine/expandable_engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "src/library/base/bytes.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kPage = 2 * kMiB;
constexpr Address kBase = 0x7f0000000000;
constexpr Address kSmallBase = 0x7e0000000000;
constexpr StreamKey kStream = 1;
constexpr StreamKey kOther = 2;

EngineOptions Options() {
  EngineOptions options;
  options.spaces = Spaces::kApart;
  options.choice = Choice::kFirstFit;
  options.page_bytes = 4 * kPage;
  options.slack.page_share = 0;  // expandable_policy_test.cc has these
  options.slack.wait_share = 0;
  return options;
}

class ExpandableEngineTest : public ::testing::Test {
 protected:
  ExpandableEngineTest() {
    territory_ = engine_.AddTerritory({kBase, 64 * kPage}, Space::kLarge);
    small_ = engine_.AddTerritory({kSmallBase, 64 * kPage}, Space::kSmall);
  }
  ~ExpandableEngineTest() override { CheckInvariants(engine_); }

  // 0 where the engine wants to grow.
  Address TryAllocate(uint64_t bytes, StreamKey stream = kStream) {
    const Result<Outcome> outcome = engine_.Allocate(bytes, stream, Reuse::kSameStream);
    EXPECT_TRUE(outcome.ok());
    CheckInvariants(engine_);
    return std::holds_alternative<Served>(*outcome) ? std::get<Served>(*outcome).address : 0;
  }
  Expansion Plan(uint64_t bytes, Donors donors = Donors::kWhole, StreamKey stream = kStream) {
    EXPECT_NE(engine_.GrowthFor(bytes, stream, Reuse::kSameStream)->bytes, 0u);
    const Result<Expansion> plan = engine_.Plan(bytes, stream, donors);
    EXPECT_TRUE(plan.ok() && !plan->needs_territory);
    return *plan;
  }
  void Claim(const Expansion& plan) {
    ASSERT_TRUE(engine_.Claim(plan));
    CheckInvariants(engine_);
  }
  void Complete(const Expansion& plan) {
    engine_.Complete(plan);
    CheckInvariants(engine_);
  }
  Address Allocate(uint64_t bytes, StreamKey stream = kStream, Donors donors = Donors::kNone) {
    if (const Address address = TryAllocate(bytes, stream); address != 0) return address;
    const Expansion plan = Plan(bytes, donors, stream);
    Claim(plan);
    Complete(plan);
    const Address address = TryAllocate(bytes, stream);
    EXPECT_NE(address, 0u);
    return address;
  }
  void Free(Address address) {
    ASSERT_TRUE(engine_.Free(address).ok());
    CheckInvariants(engine_);
  }
  void WaitForDevice() {
    engine_.DeviceIdle(0, engine_.Now());
    CheckInvariants(engine_);
  }
  uint64_t Reserved() const { return engine_.counters().reserved_bytes.current; }

  // Pages of two units: idle, live, idle, live.
  struct Fragmented {
    Address live[2];
    Address idle[2];
  };
  Fragmented Fragment() {
    Fragmented all;
    for (int number = 0; number < 2; ++number) {
      all.idle[number] = Allocate(2 * kPage);
      all.live[number] = Allocate(2 * kPage);
    }
    for (const Address address : all.idle) Free(address);
    WaitForDevice();
    return all;
  }

  ExpandableEngine engine_{Options()};
  SegmentIndex territory_ = 0;
  SegmentIndex small_ = 0;
};

TEST_F(ExpandableEngineTest, HasAddressesAndNoMemoryAtFirst) {
  EXPECT_EQ(TryAllocate(4 * kMiB), 0u);
  EXPECT_EQ(Reserved(), 0u);
  EXPECT_EQ(engine_.counters().free_bytes, 0u);
  EXPECT_EQ(engine_.counters().reserved_segments.current, 0u);
  EXPECT_TRUE(engine_.IsEmptyTerritory(territory_));
  for (const BlockView& view : engine_.Snapshot()) EXPECT_EQ(view.state, COMMPOOL_BLOCK_UNMAPPED);
}

TEST_F(ExpandableEngineTest, ServesFromPagesThatHaveCome) {
  const Expansion plan = Plan(3 * kPage);
  EXPECT_EQ(plan.made_bytes(), 3 * kPage);
  Claim(plan);
  EXPECT_EQ(TryAllocate(3 * kPage), 0u) << "not yet mapped";
  EXPECT_EQ(Reserved(), 0u);
  Complete(plan);
  EXPECT_EQ(TryAllocate(3 * kPage), kBase);
  EXPECT_EQ(Reserved(), 3 * kPage);
  EXPECT_EQ(engine_.counters().reserved_segments.current, plan.made.size());
  EXPECT_FALSE(engine_.IsEmptyTerritory(territory_));
}

TEST_F(ExpandableEngineTest, MakesSmallPagesForSmallBlocks) {
  Allocate(1000);
  EXPECT_EQ(engine_.pages(), (Pages{{kSmallBase, kPage}}));
  Allocate(4 * kPage);
  EXPECT_EQ(engine_.pages(), (Pages{{kSmallBase, kPage}, {kBase, 4 * kPage}}));
}

TEST_F(ExpandableEngineTest, MovesFreePagesToWhereTheyAreNeeded) {
  const Fragmented all = Fragment();
  const Counters before = engine_.counters();
  const Expansion plan = Plan(4 * kPage);
  EXPECT_EQ(plan.moved_bytes() + plan.made_bytes(), 4 * kPage);
  EXPECT_EQ(plan.moved_bytes(), 4 * kPage);
  Claim(plan);
  EXPECT_EQ(TryAllocate(2 * kPage), 0u) << "claimed pages serve nobody";
  EXPECT_EQ(Reserved(), before.reserved_bytes.current);
  Complete(plan);
  EXPECT_EQ(Reserved(), before.reserved_bytes.current);
  EXPECT_EQ(engine_.counters().reserved_segments.current, before.reserved_segments.current);
  EXPECT_NE(TryAllocate(4 * kPage), 0u);
  for (const Address address : all.live) EXPECT_TRUE(engine_.Find(address).ok());
  for (const Address address : all.idle) EXPECT_EQ(engine_.pages().count(address), 0u);
}

TEST_F(ExpandableEngineTest, MovesPagesOfWhatWasJustFreed) {
  const Address idle = Allocate(2 * kPage);
  Allocate(2 * kPage);
  Free(idle);
  WaitForDevice();
  EXPECT_EQ(engine_.Plan(4 * kPage, kStream, Donors::kWhole)->moved_bytes(), 2 * kPage) << "it rests";
}

TEST_F(ExpandableEngineTest, CountsNoMovedPageAsNewMemory) {
  Fragment();
  const Counters before = engine_.counters();
  const Expansion plan = Plan(4 * kPage);
  Claim(plan);
  Complete(plan);
  EXPECT_EQ(plan.made_bytes(), 0u);
  EXPECT_EQ(engine_.counters().reserved_bytes.total, before.reserved_bytes.total);
  EXPECT_EQ(engine_.counters().reserved_bytes.peak, before.reserved_bytes.peak);
}

// Free memory of the request's stream, a hole, and behind it memory that another stream may still use.
TEST_F(ExpandableEngineTest, ServesTheRequestThatItGrewForNextToAnothersMemory) {
  const Address below = Allocate(2 * kPage);
  const Address between = Allocate(kPage);
  const Address above = Allocate(kPage, kOther);
  Allocate(kPage);
  Free(between);
  WaitForDevice();
  for (const SegmentRange& page : engine_.ClaimIdlePages(kPage)) engine_.RemovePage(page);
  Free(below);
  Free(above);
  const Expansion plan = Plan(3 * kPage);
  ASSERT_EQ(plan.made_bytes(), kPage);
  Claim(plan);
  Complete(plan);
  EXPECT_EQ(TryAllocate(3 * kPage), below);
}

// The same with two holes: a new page goes into the lower, a page that moves into the upper.
TEST_F(ExpandableEngineTest, ServesTheRequestThatItGrewForWhereItFillsSeveralHoles) {
  const Address below = Allocate(kPage);
  const Address lower_hole = Allocate(kPage);
  const Address idle = Allocate(kPage);
  const Address upper_hole = Allocate(2 * kPage);
  const Address above = Allocate(kPage, kOther);
  Allocate(kPage);
  const Address donor = Allocate(2 * kPage);
  Allocate(kPage);
  Free(lower_hole);
  Free(upper_hole);
  WaitForDevice();
  for (const SegmentRange& page : engine_.ClaimIdlePages(3 * kPage)) engine_.RemovePage(page);
  Free(idle);
  Free(donor);
  WaitForDevice();
  Free(below);
  Free(above);
  const Expansion plan = Plan(5 * kPage);
  ASSERT_EQ(plan.made_bytes(), kPage);
  ASSERT_EQ(plan.moved_bytes(), 2 * kPage);
  ASSERT_EQ(plan.moves[0].to, upper_hole);
  Claim(plan);
  Complete(plan);
  EXPECT_EQ(TryAllocate(5 * kPage), below);
}

TEST_F(ExpandableEngineTest, IsAsBeforeWhereAClaimIsTakenBack) {
  const Fragmented all = Fragment();
  const Pages pages = engine_.pages();
  const Expansion plan = Plan(6 * kPage);
  ASSERT_FALSE(plan.moves.empty());
  ASSERT_FALSE(plan.made.empty());
  Claim(plan);
  engine_.Unclaim(plan);
  CheckInvariants(engine_);
  EXPECT_EQ(engine_.pages(), pages);
  EXPECT_EQ(Plan(6 * kPage).arriving[0].address, plan.arriving[0].address) << "nor are the addresses claimed";
  EXPECT_EQ(TryAllocate(2 * kPage), all.idle[0]);
  EXPECT_EQ(TryAllocate(2 * kPage), all.idle[1]);
  EXPECT_EQ(TryAllocate(2 * kPage), 0u);
}

TEST_F(ExpandableEngineTest, CannotClaimAPageThatWasServedMeanwhile) {
  Fragment();
  const Expansion plan = Plan(4 * kPage);
  const Address address = TryAllocate(512 + kMiB);
  ASSERT_NE(address, 0u);
  EXPECT_FALSE(engine_.Claim(plan));
  Free(address);
  EXPECT_FALSE(engine_.Claim(plan)) << "its stream may still use it";
  WaitForDevice();
  EXPECT_TRUE(engine_.Claim(plan));
}

TEST_F(ExpandableEngineTest, CannotClaimAPageThatAGraphGotMeanwhile) {
  Fragment();
  const Expansion plan = Plan(4 * kPage);
  constexpr Part kGraph = 3;
  const Result<Outcome> outcome = engine_.Allocate(2 * kPage, kStream, Reuse::kSameStream, kGraph);
  ASSERT_TRUE(engine_.Free(std::get<Served>(*outcome).address).ok());
  EXPECT_FALSE(engine_.Claim(plan));
  engine_.ClosePart(kGraph, engine_.Now(), {});
  engine_.ReleasePart(kGraph);
  EXPECT_TRUE(engine_.Claim(plan));
}

TEST_F(ExpandableEngineTest, CanClaimWhatNewPagesAloneFill) {
  const Expansion plan = Plan(3 * kPage, Donors::kNone);
  EXPECT_TRUE(engine_.Claim(plan));
}

TEST_F(ExpandableEngineTest, MovesNoPageThatAnotherStreamMayStillUse) {
  const Address address = Allocate(4 * kPage, kOther);
  Allocate(4 * kPage, kOther);
  Free(address);
  const Expansion plan = Plan(4 * kPage, Donors::kAll);
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(plan.busy_bytes, 4 * kPage);
}

TEST_F(ExpandableEngineTest, LosesAPageThatCouldNotBeMapped) {
  const Fragmented all = Fragment();
  const uint64_t reserved = Reserved();
  const uint64_t segments = engine_.counters().reserved_segments.current;
  const Expansion plan = Plan(4 * kPage);
  ASSERT_EQ(plan.moves.size(), 2u);
  Claim(plan);
  engine_.RemovePage({plan.moves[0].from, plan.moves[0].bytes});
  Expansion rest = plan;
  rest.moves.erase(rest.moves.begin());
  engine_.Unclaim(rest);
  CheckInvariants(engine_);
  EXPECT_EQ(Reserved(), reserved - 2 * kPage);
  EXPECT_EQ(engine_.counters().reserved_segments.current, segments - 1);
  EXPECT_EQ(engine_.pages().count(plan.moves[0].from), 0u);
  EXPECT_EQ(TryAllocate(2 * kPage), plan.moves[1].from) << "the other page stayed";
  for (const Address address : all.live) Free(address);
}

TEST_F(ExpandableEngineTest, GivesIdlePagesBackTheHighestFirst) {
  const Fragmented all = Fragment();
  const std::vector<SegmentRange> pages = engine_.ClaimIdlePages(1);
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages[0].address, all.idle[1]);
  EXPECT_EQ(pages[0].bytes, 2 * kPage);
  CheckInvariants(engine_);
  EXPECT_EQ(TryAllocate(2 * kPage), all.idle[0]);
  EXPECT_EQ(TryAllocate(2 * kPage), 0u) << "claimed";
  engine_.RemovePage(pages[0]);
  CheckInvariants(engine_);
  EXPECT_EQ(Reserved(), 6 * kPage);
  EXPECT_EQ(engine_.counters().reserved_segments.current, 3u);
}

TEST_F(ExpandableEngineTest, GivesNoPageBackThatSomebodyUses) {
  Fragment();
  EXPECT_EQ(engine_.ClaimIdlePages(0).size(), 0u);
  const Address address = TryAllocate(2 * kPage, kOther);
  Free(address);
  const std::vector<SegmentRange> pages = engine_.ClaimIdlePages(std::numeric_limits<uint64_t>::max());
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_NE(pages[0].address, address);
}

TEST_F(ExpandableEngineTest, KeepsAPageWhoseReturnFailed) {
  const Fragmented all = Fragment();
  for (const SegmentRange& page : engine_.ClaimIdlePages(4 * kPage)) engine_.UnclaimPage(page);
  CheckInvariants(engine_);
  EXPECT_EQ(Reserved(), 8 * kPage);
  EXPECT_EQ(TryAllocate(2 * kPage), all.idle[0]);
  EXPECT_EQ(TryAllocate(2 * kPage), all.idle[1]);
}

TEST_F(ExpandableEngineTest, IsEmptyWhenItsLastPageIsGone) {
  Free(Allocate(9 * kPage));
  EXPECT_TRUE(engine_.ClaimIdlePages(1).empty()) << "the stream may still use it";
  WaitForDevice();
  const std::vector<SegmentRange> pages = engine_.ClaimIdlePages(9 * kPage);
  EXPECT_EQ(pages.size(), 3u);
  EXPECT_FALSE(engine_.IsEmptyTerritory(territory_));
  for (const SegmentRange& page : pages) engine_.RemovePage(page);
  EXPECT_TRUE(engine_.IsEmptyTerritory(territory_));
  EXPECT_EQ(Reserved(), 0u);
  engine_.RemoveTerritory(territory_);
  engine_.RemoveTerritory(small_);
  EXPECT_TRUE(engine_.Snapshot().empty());
}

TEST_F(ExpandableEngineTest, RefusesPlansForNothingAndForTooMuch) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  Allocate(4 * kPage);
  for (const uint64_t bytes : {uint64_t{0}, kMost, kMost - kPage + 2}) {
    EXPECT_EQ(engine_.Plan(bytes, kStream, Donors::kAll).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(engine_.Plan(kMost - 2 * kPage, kStream, Donors::kAll)->needs_territory);
}

using ExpandableEngineDeathTest = ExpandableEngineTest;

TEST_F(ExpandableEngineDeathTest, AbortsOnMissingPages) {
  Fragment();
  const Expansion plan = Plan(4 * kPage);
  EXPECT_DEATH(engine_.Complete(plan), "has another") << "without a claim";
  EXPECT_DEATH(engine_.RemovePage({kBase + kPage, kPage}), "there is not");
  const Address address = TryAllocate(2 * kPage);
  ASSERT_NE(address, 0u);
  EXPECT_FALSE(engine_.Claim(plan)) << "served meanwhile";
}

}  // namespace
}  // namespace commpool::internal::engine
