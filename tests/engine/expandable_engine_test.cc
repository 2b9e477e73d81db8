// The engine of expandable pools grows in steps, between which the pool may release its lock.
#include "tests/engine/engine_fixture.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kPage = 2 * kMiB;
constexpr Address kSmallBase = 0x7e0000000000;

class ExpandableEngineTest : public ExpandableTest {
 protected:
  // expandable_policy_test.cc has shares of the pool.
  ExpandableEngineTest() : ExpandableTest(Apart(4 * kPage, {.wait_share = 0, .page_share = 0})) {
    territory_ = engine().AddTerritory({kBase, 64 * kPage}, Space::kLarge);
    small_ = engine().AddTerritory({kSmallBase, 64 * kPage}, Space::kSmall);
  }

  Expansion Plan(uint64_t bytes, Donors donors = Donors::kWhole) {
    EXPECT_NE(GrowthFor(bytes), 0u);
    Expansion plan = engine().Plan(bytes, kStream, donors).value();
    EXPECT_FALSE(plan.needs_territory());
    return plan;
  }

  // Pages of two units: idle, live, idle, live.
  struct Fragmented {
    Address live[2];
    Address idle[2];
  };
  Fragmented Fragment() {
    Fragmented all;
    for (int number = 0; number < 2; ++number) {
      all.idle[number] = Make(2 * kPage);
      all.live[number] = Make(2 * kPage);
    }
    for (const Address address : all.idle) Free(address);
    WaitForDevice();
    return all;
  }

  SegmentIndex territory_ = 0;
  SegmentIndex small_ = 0;
};

TEST_F(ExpandableEngineTest, HasAddressesAndNoMemoryAtFirst) {
  EXPECT_EQ(TryServe(4 * kMiB), 0u);
  EXPECT_EQ(Reserved(), 0u);
  EXPECT_EQ(counters().free_bytes, 0u);
  EXPECT_EQ(counters().reserved_segments.current, 0u);
  EXPECT_TRUE(engine().IsEmptyTerritory(territory_));
  for (const BlockView& view : engine().Snapshot()) EXPECT_EQ(view.state, COMMPOOL_BLOCK_UNMAPPED);
}

TEST_F(ExpandableEngineTest, ServesFromPagesThatHaveCome) {
  const Expansion plan = Plan(3 * kPage);
  EXPECT_EQ(plan.made_bytes(), 3 * kPage);
  Claim(plan);
  EXPECT_EQ(TryServe(3 * kPage), 0u) << "not yet mapped";
  EXPECT_EQ(Reserved(), 0u);
  engine().Complete(plan);
  EXPECT_EQ(TryServe(3 * kPage), kBase);
  EXPECT_EQ(Reserved(), 3 * kPage);
  EXPECT_EQ(counters().reserved_segments.current, plan.made.size());
  EXPECT_FALSE(engine().IsEmptyTerritory(territory_));
}

TEST_F(ExpandableEngineTest, MakesSmallPagesForSmallBlocks) {
  Make(1000);
  EXPECT_EQ(engine().pages(), (Pages{{kSmallBase, kPage}}));
  Make(4 * kPage);
  EXPECT_EQ(engine().pages(), (Pages{{kSmallBase, kPage}, {kBase, 4 * kPage}}));
}

TEST_F(ExpandableEngineTest, MovesFreePagesToWhereTheyAreNeeded) {
  const Fragmented all = Fragment();
  const Counters before = counters();
  const Expansion plan = Plan(4 * kPage);
  EXPECT_EQ(plan.moved_bytes() + plan.made_bytes(), 4 * kPage);
  EXPECT_EQ(plan.moved_bytes(), 4 * kPage);
  Claim(plan);
  EXPECT_EQ(TryServe(2 * kPage), 0u) << "claimed pages serve nobody";
  EXPECT_EQ(Reserved(), before.reserved_bytes.current);
  engine().Complete(plan);
  EXPECT_EQ(Reserved(), before.reserved_bytes.current);
  EXPECT_EQ(counters().reserved_segments.current, before.reserved_segments.current);
  EXPECT_NE(TryServe(4 * kPage), 0u);
  for (const Address address : all.live) EXPECT_TRUE(engine().Find(address).ok());
  for (const Address address : all.idle) EXPECT_EQ(engine().pages().count(address), 0u);
}

TEST_F(ExpandableEngineTest, MovesPagesOfWhatWasJustFreed) {
  const Address idle = Make(2 * kPage);
  Make(2 * kPage);
  Free(idle);
  WaitForDevice();
  EXPECT_EQ(engine().Plan(4 * kPage, kStream, Donors::kWhole)->moved_bytes(), 2 * kPage) << "it rests";
}

TEST_F(ExpandableEngineTest, CountsNoMovedPageAsNewMemory) {
  Fragment();
  const Counters before = counters();
  const Expansion plan = Plan(4 * kPage);
  CarryOut(plan);
  EXPECT_EQ(plan.made_bytes(), 0u);
  EXPECT_EQ(counters().reserved_bytes.total, before.reserved_bytes.total);
  EXPECT_EQ(counters().reserved_bytes.peak, before.reserved_bytes.peak);
}

// Free memory of the request's stream, a hole, and behind it memory that another stream may still use.
TEST_F(ExpandableEngineTest, ServesTheRequestThatItGrewForNextToAnothersMemory) {
  const Address below = Make(2 * kPage);
  const Address between = Make(kPage);
  const Address above = Make(kPage, kOther);
  Make(kPage);
  Free(between);
  WaitForDevice();
  RemoveIdlePages(kPage);
  FreeAll({below, above});
  const Expansion plan = Plan(3 * kPage);
  ASSERT_EQ(plan.made_bytes(), kPage);
  CarryOut(plan);
  EXPECT_EQ(TryServe(3 * kPage), below);
}

// The same with two holes: a new page goes into the lower, a page that moves into the upper.
TEST_F(ExpandableEngineTest, ServesTheRequestThatItGrewForWhereItFillsSeveralHoles) {
  const Address below = Make(kPage);
  const Address lower_hole = Make(kPage);
  const Address idle = Make(kPage);
  const Address upper_hole = Make(2 * kPage);
  const Address above = Make(kPage, kOther);
  Make(kPage);
  const Address donor = Make(2 * kPage);
  Make(kPage);
  FreeAll({lower_hole, upper_hole});
  WaitForDevice();
  RemoveIdlePages(3 * kPage);
  FreeAll({idle, donor});
  WaitForDevice();
  FreeAll({below, above});
  const Expansion plan = Plan(5 * kPage);
  ASSERT_EQ(plan.made_bytes(), kPage);
  ASSERT_EQ(plan.moved_bytes(), 2 * kPage);
  ASSERT_EQ(plan.moves[0].to, upper_hole);
  CarryOut(plan);
  EXPECT_EQ(TryServe(5 * kPage), below);
}

TEST_F(ExpandableEngineTest, IsAsBeforeWhereAClaimIsTakenBack) {
  const Fragmented all = Fragment();
  const Pages pages = engine().pages();
  const Expansion plan = Plan(6 * kPage);
  ASSERT_FALSE(plan.moves.empty());
  ASSERT_FALSE(plan.made.empty());
  Claim(plan);
  engine().Unclaim(plan);
  EXPECT_EQ(engine().pages(), pages);
  EXPECT_EQ(Plan(6 * kPage).arriving[0].address, plan.arriving[0].address) << "nor are the addresses claimed";
  EXPECT_EQ(TryServe(2 * kPage), all.idle[0]);
  EXPECT_EQ(TryServe(2 * kPage), all.idle[1]);
  EXPECT_EQ(TryServe(2 * kPage), 0u);
}

TEST_F(ExpandableEngineTest, CannotClaimAPageThatWasServedMeanwhile) {
  Fragment();
  const Expansion plan = Plan(4 * kPage);
  const Address address = Serve(512 + kMiB);
  EXPECT_FALSE(engine().Claim(plan));
  Free(address);
  EXPECT_FALSE(engine().Claim(plan)) << "its stream may still use it";
  WaitForDevice();
  EXPECT_TRUE(engine().Claim(plan));
}

TEST_F(ExpandableEngineTest, CannotClaimAPageThatAGraphGotMeanwhile) {
  Fragment();
  const Expansion plan = Plan(4 * kPage);
  constexpr Part kGraph = 3;
  Free(TryServe(2 * kPage, kStream, Reuse::kSameStream, kGraph));
  EXPECT_FALSE(engine().Claim(plan));
  EndPart(kGraph);
  EXPECT_TRUE(engine().Claim(plan));
}

TEST_F(ExpandableEngineTest, CanClaimWhatNewPagesAloneFill) {
  EXPECT_TRUE(engine().Claim(Plan(3 * kPage, Donors::kNone)));
}

TEST_F(ExpandableEngineTest, MovesNoPageThatAnotherStreamMayStillUse) {
  const Address address = Make(4 * kPage, kOther);
  Make(4 * kPage, kOther);
  Free(address);
  const Expansion plan = Plan(4 * kPage, Donors::kAll);
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(plan.busy_bytes, 4 * kPage);
}

TEST_F(ExpandableEngineTest, LosesAPageThatCouldNotBeMapped) {
  const Fragmented all = Fragment();
  const uint64_t reserved = Reserved();
  const uint64_t segments = counters().reserved_segments.current;
  const Expansion plan = Plan(4 * kPage);
  ASSERT_EQ(plan.moves.size(), 2u);
  Claim(plan);
  engine().RemovePage({plan.moves[0].from, plan.moves[0].bytes});
  Expansion rest = plan;
  rest.moves.erase(rest.moves.begin());
  engine().Unclaim(rest);
  EXPECT_EQ(Reserved(), reserved - 2 * kPage);
  EXPECT_EQ(counters().reserved_segments.current, segments - 1);
  EXPECT_EQ(engine().pages().count(plan.moves[0].from), 0u);
  EXPECT_EQ(TryServe(2 * kPage), plan.moves[1].from) << "the other page stayed";
  for (const Address address : all.live) Free(address);
}

TEST_F(ExpandableEngineTest, GivesIdlePagesBackTheHighestFirst) {
  const Fragmented all = Fragment();
  const std::vector<SegmentRange> pages = engine().ClaimIdlePages(1);
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages[0].address, all.idle[1]);
  EXPECT_EQ(pages[0].bytes, 2 * kPage);
  EXPECT_EQ(TryServe(2 * kPage), all.idle[0]);
  EXPECT_EQ(TryServe(2 * kPage), 0u) << "claimed";
  engine().RemovePage(pages[0]);
  EXPECT_EQ(Reserved(), 6 * kPage);
  EXPECT_EQ(counters().reserved_segments.current, 3u);
}

TEST_F(ExpandableEngineTest, GivesNoPageBackThatSomebodyUses) {
  Fragment();
  EXPECT_EQ(engine().ClaimIdlePages(0).size(), 0u);
  const Address address = TryServe(2 * kPage, kOther);
  Free(address);
  const std::vector<SegmentRange> pages = engine().ClaimIdlePages(UINT64_MAX);
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_NE(pages[0].address, address);
}

TEST_F(ExpandableEngineTest, KeepsAPageWhoseReturnFailed) {
  const Fragmented all = Fragment();
  for (const SegmentRange& page : engine().ClaimIdlePages(4 * kPage)) engine().UnclaimPage(page);
  EXPECT_EQ(Reserved(), 8 * kPage);
  EXPECT_EQ(TryServe(2 * kPage), all.idle[0]);
  EXPECT_EQ(TryServe(2 * kPage), all.idle[1]);
}

TEST_F(ExpandableEngineTest, IsEmptyWhenItsLastPageIsGone) {
  Free(Make(9 * kPage));
  EXPECT_TRUE(engine().ClaimIdlePages(1).empty()) << "the stream may still use it";
  WaitForDevice();
  const std::vector<SegmentRange> pages = engine().ClaimIdlePages(9 * kPage);
  EXPECT_EQ(pages.size(), 3u);
  EXPECT_FALSE(engine().IsEmptyTerritory(territory_));
  for (const SegmentRange& page : pages) engine().RemovePage(page);
  EXPECT_TRUE(engine().IsEmptyTerritory(territory_));
  EXPECT_EQ(Reserved(), 0u);
  engine().RemoveTerritory(territory_);
  engine().RemoveTerritory(small_);
  EXPECT_TRUE(engine().Snapshot().empty());
}

TEST_F(ExpandableEngineTest, RefusesPlansForNothingAndForTooMuch) {
  Make(4 * kPage);
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX, UINT64_MAX - kPage + 2}) {
    EXPECT_EQ(engine().Plan(bytes, kStream, Donors::kAll).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(engine().Plan(UINT64_MAX - 2 * kPage, kStream, Donors::kAll)->needs_territory());
}

using ExpandableEngineDeathTest = ExpandableEngineTest;

TEST_F(ExpandableEngineDeathTest, AbortsOnMissingPages) {
  Fragment();
  const Expansion plan = Plan(4 * kPage);
  EXPECT_DEATH(engine().Complete(plan), "has another") << "without a claim";
  EXPECT_DEATH(engine().RemovePage({kBase + kPage, kPage}), "there is not");
  Serve(2 * kPage);
  EXPECT_FALSE(engine().Claim(plan)) << "served meanwhile";
}

}  // namespace
}  // namespace commpool::internal::engine
