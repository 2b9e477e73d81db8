// What an expandable pool prefers: small pages where asked for, splinters and other streams' memory rather than growth;
// and how far it may exceed its program's need, to the byte.
#include <algorithm>

#include "tests/engine/engine_fixture.h"

namespace commpool::internal::engine {
namespace {

class ExpandablePolicyTest : public ExpandableTest {
 protected:
  explicit ExpandablePolicyTest(uint64_t segment_bytes = 0)
      : ExpandableTest(Apart(32 * kMiB, {.page_share = 1024}, 2 * kMiB, segment_bytes)) {
    engine().AddTerritory({kBase, uint64_t{256} << 30}, Space::kLarge);
  }

  // The pages that come for a stream while memory of that size is free that another stream used.
  uint64_t LargestPageBeyondTheNeed(uint64_t bytes) {
    Free(Make(bytes));
    const uint64_t before = engine().pages().size();
    const Expansion plan = engine().Plan(bytes, kOther, Donors::kNone).value();
    EXPECT_EQ(plan.made_bytes(), bytes);
    CarryOut(plan);
    EXPECT_EQ(engine().pages().size(), before + plan.made.size());
    return std::ranges::max(plan.made, {}, &SegmentRange::bytes).bytes;
  }
  uint64_t LargestPage() {
    return std::ranges::max_element(engine().pages(), {}, &std::pair<const Address, uint64_t>::second)->second;
  }
};

class ExplicitPagesTest : public ExpandablePolicyTest {
 protected:
  ExplicitPagesTest() : ExpandablePolicyTest(32 * kMiB) {}
};

TEST_F(ExpandablePolicyTest, MakesLargePagesWhileThePoolHoldsWhatTheProgramNeeds) {
  Make(128 * kMiB);
  Make(kGiB);
  EXPECT_EQ(LargestPage(), 32 * kMiB);
  EXPECT_EQ(engine().pages().size(), 36u);
}

TEST_F(ExpandablePolicyTest, MakesLargerPagesForAVeryLargeRequest) {
  Make(6 * kGiB);
  EXPECT_EQ(LargestPage(), 96 * kMiB) << "a 64th";
}

TEST_F(ExplicitPagesTest, MakesNoLargerPagesThanTheProgramAskedFor) {
  Make(6 * kGiB);
  EXPECT_EQ(LargestPage(), 32 * kMiB);
}

// While its stream works on it free memory serves nobody else, so the pool gets more than the program needs.
TEST_F(ExpandablePolicyTest, MakesSmallPagesBeyondWhatTheProgramNeeds) {
  EXPECT_EQ(LargestPageBeyondTheNeed(64 * kMiB), 2 * kMiB) << "the least";
  EXPECT_EQ(LargestPageBeyondTheNeed(512 * kMiB), 4 * kMiB) << "a 128th of the request";
}

TEST_F(ExpandablePolicyTest, MakesFewSmallPagesForALargeRequest) {
  EXPECT_EQ(LargestPageBeyondTheNeed(kGiB), 8 * kMiB) << "a 128th of the request";
}

TEST_F(ExpandablePolicyTest, MakesSmallPagesThatAreAPartOfThePool) {
  for (int index = 0; index < 24; ++index) Make(kGiB);
  EXPECT_EQ(LargestPageBeyondTheNeed(512 * kMiB), 24 * kMiB) << "a 1024th of 24.5 GiB, in steps of the granularity";
}

TEST_F(ExplicitPagesTest, MakesThePagesThatTheProgramAskedFor) {
  Make(kGiB);
  EXPECT_EQ(LargestPageBeyondTheNeed(512 * kMiB), 32 * kMiB);
}

// Each freed block has one whole page among parts of others, which would be left behind.
TEST_F(ExplicitPagesTest, MovesPagesThatLeaveSplintersRatherThanGrowFarBeyondTheNeed) {
  std::vector<Address> freed;
  for (int index = 0; index < 16; ++index) {
    Make(33 * kMiB);
    freed.push_back(Make(62 * kMiB));
  }
  Make(33 * kMiB);
  for (const Address address : freed) Free(address);
  WaitForDevice();
  EXPECT_GT(engine().Plan(256 * kMiB, kStream, Donors::kWhole)->moved_bytes(), 0u);
}

TEST_F(ExpandablePolicyTest, TakesMemoryOfAnotherStreamRatherThanGrowFarBeyondTheNeed) {
  const Address first = Make(kGiB);
  Make(kGiB);
  Free(first);
  EXPECT_EQ(TryServe(kGiB, kOther), 0u) << "it asks before it waits";
  EXPECT_NE(GrowthFor(kGiB, kOther, Reuse::kSameStream), 0u) << "where nothing may be waited for";
  EXPECT_EQ(GrowthFor(kGiB, kOther, Reuse::kAnyStream), 0u);
  const Served waited = Ask(kGiB, kOther, Reuse::kAnyStream).value();
  EXPECT_EQ(waited.address, first);
  EXPECT_EQ(waited.waits, (Waits{{kStream, kNoFence}}));
}

TEST_F(ExpandablePolicyTest, GrowsForAnotherStreamWhileThePoolHoldsWhatTheProgramNeeds) {
  Free(Make(kGiB));
  EXPECT_NE(GrowthFor(2 * kGiB, kOther, Reuse::kAnyStream), 0u);
}

TEST_F(ExpandablePolicyTest, JoinsWhatSeveralStreamsUsedForARequestThatWaitsForAll) {
  const Address mine = Make(64 * kMiB, kStream);
  const Address others = Make(64 * kMiB, kOther);
  ASSERT_EQ(others, mine + 64 * kMiB);
  FreeAll({mine, others});
  EXPECT_EQ(GrowthFor(128 * kMiB, kThird, Reuse::kAnyStream), 0u);
  EXPECT_EQ(Ask(128 * kMiB, kThird, Reuse::kAnyStream).value().waits, (Waits{{kStream, kNoFence}, {kOther, kNoFence}}));
}

// The first stream's free memory is too small for the other's request: only the missing rest is made.
TEST_F(ExpandablePolicyTest, GrowsAroundMemoryOfAnotherStream) {
  const Address lower = Make(64 * kMiB, kStream);
  const Address upper = Make(512 * kMiB, kStream);
  ASSERT_EQ(upper, lower + 64 * kMiB);
  Free(upper);
  const auto plan_with = [&](Reuse reuse) {
    return engine().Plan(576 * kMiB, kOther, Donors::kNone, kCommonPart, reuse).value();
  };
  EXPECT_EQ(plan_with(Reuse::kSameStream).made_bytes(), 576 * kMiB) << "where nothing may be waited for";
  const Expansion plan = plan_with(Reuse::kAnyStream);
  EXPECT_EQ(plan.made_bytes(), 64 * kMiB);
  CarryOut(plan);
  const Served waited = Ask(576 * kMiB, kOther, Reuse::kAnyStream).value();
  EXPECT_EQ(waited.address, upper);
  EXPECT_EQ(waited.waits, (Waits{{kStream, kNoFence}}));
}

TEST_F(ExpandablePolicyTest, GrowsWithinItsSlackBeforePagesMoveAndBeforeTheHostWaits) {
  Make(16 * kGiB);
  const uint64_t slack = 16 * kGiB / 250;
  EXPECT_TRUE(engine().GrowsCheaply(kMiB, slack));
  EXPECT_FALSE(engine().GrowsCheaply(kMiB, slack + 2 * kMiB));
  EXPECT_FALSE(engine().GrowsTooFar(kMiB, 16 * kGiB / 100));
  EXPECT_TRUE(engine().GrowsTooFar(kMiB, 16 * kGiB / 100 + 2 * kMiB));
}

// Each step would move pages. A program that asks for no more than before gets a little more memory instead.
TEST_F(ExpandablePolicyTest, GivesASteadyProgramMoreSlack) {
  const uint64_t between = 16 * kGiB / 200;
  const Address most = Make(16 * kGiB);
  EXPECT_FALSE(engine().GrowsCheaply(kMiB, between));
  Free(most);
  for (int step = 0; step < 3; ++step) Free(Make(16 * kGiB));
  EXPECT_TRUE(engine().GrowsCheaply(kMiB, between));
}

class SlackTest : public ExpandableTest {
 protected:
  explicit SlackTest(const Slack& slack, uint64_t granularity = 2 * kMiB)
      : ExpandableTest(Apart(2 * kMiB, slack, granularity)) {
    engine().AddTerritory({kBase, kGiB}, Space::kLarge);
    engine().AddTerritory({kBase + kGiB, kGiB}, Space::kSmall);
  }
  SlackTest() : SlackTest({.move_share = 2, .steady_move_share = 4, .splinter_share = 2, .wait_share = 2}) {}

  void ExpectMostToMake(uint64_t requested, uint64_t most) {
    EXPECT_TRUE(engine().GrowsCheaply(requested, most)) << most;
    EXPECT_FALSE(engine().GrowsCheaply(requested, most + 1)) << most;
  }
};

TEST_F(SlackTest, IsAShareOfTheHighestNeedWithTheRequest) {
  ExpectMostToMake(8 * kMiB, 12 * kMiB);
  const Address block = Make(8 * kMiB);
  ExpectMostToMake(4 * kMiB, 10 * kMiB);
  Free(block);
  ExpectMostToMake(4 * kMiB, 4 * kMiB);
}

TEST_F(SlackTest, IsThatOfASteadyProgramWhoseHighestNeedIsLongAgo) {
  Address block = Make(8 * kMiB);
  ExpectMostToMake(0, 4 * kMiB);
  for (int round = 0; round < 2; ++round) {
    Free(block);
    block = Make(8 * kMiB);
  }
  ExpectMostToMake(0, 4 * kMiB);
  Free(block);
  Make(8 * kMiB);
  ExpectMostToMake(0, 2 * kMiB);
  ExpectMostToMake(8 * kMiB, 16 * kMiB);  // a new peak: the program is not steady any more
}

TEST_F(SlackTest, WidensByAQuarterOfWhatMovedBeyondTheNeed) {
  const Address below = Make(2 * kMiB);
  const Address block = Make(2 * kMiB);
  Free(below);
  engine().StreamIdle(kStream, engine().Now());
  const auto move_pages = [&](int pages) {
    for (int page = 0; page < pages; ++page) {
      const Expansion plan = engine().Plan(4 * kMiB, kStream, Donors::kAll).value();
      ASSERT_EQ(plan.moves.size(), 1u);
      Claim(plan);
      engine().Unclaim(plan);
    }
  };
  move_pages(3);  // 6 MiB: the need
  ExpectMostToMake(4 * kMiB, 5 * kMiB);
  move_pages(2);
  ExpectMostToMake(4 * kMiB, 6 * kMiB);
  move_pages(2);
  ExpectMostToMake(4 * kMiB, 7 * kMiB);
  Free(block);
}

TEST_F(SlackTest, DoesNotHoldForGraphs) {
  Free(Make(16 * kMiB));
  EXPECT_EQ(GrowthFor(16 * kMiB, kOther, Reuse::kAnyStream), 0u) << "it rather waits for the stream";
  EXPECT_NE(GrowthFor(16 * kMiB, kOther, Reuse::kSameStream), 0u);
  EXPECT_NE(GrowthFor(16 * kMiB, kOther, Reuse::kAnyStream, Part{3}), 0u);
  EXPECT_EQ(engine().GrowthFor(0, kOther, Reuse::kSameStream).status().code(), StatusCode::kInvalidArgument);
}

// A page that can move, and beside it parts of two others.
class SplinterSlack : public SlackTest {
 protected:
  explicit SplinterSlack(uint64_t share = 2) : SlackTest({.splinter_share = share}) {
    Make(3 * kMiB);
    const Address freed = Make(4 * kMiB);
    Make(3 * kMiB);
    Free(freed);
    WaitForDevice();
  }
  uint64_t Moved(Donors donors) { return engine().Plan(5 * kMiB, kStream, donors)->moved_bytes(); }
};

class NoSplinterSlack : public SplinterSlack {
 protected:
  NoSplinterSlack() : SplinterSlack(11) {}
};

TEST_F(SplinterSlack, LeavesPagesWhereTheyAre) {
  EXPECT_EQ(Reserved(), 10 * kMiB);
  EXPECT_EQ(Moved(Donors::kWhole), 0u);
  EXPECT_EQ(Moved(Donors::kAll), 2 * kMiB);
}

TEST_F(NoSplinterSlack, MovesThemUnlessNoneMayMove) {
  EXPECT_EQ(Moved(Donors::kWhole), 2 * kMiB);
  EXPECT_EQ(Moved(Donors::kNone), 0u);
}

class SmallPages : public SlackTest {
 protected:
  SmallPages() : SlackTest({}, 64 * kKiB) {}
};

TEST_F(SmallPages, AreMadeForSmallBlocksOfAnySize) {
  Make(256 * kKiB);
  ASSERT_EQ(engine().pages().size(), 4u);
  for (const auto& [address, bytes] : engine().pages()) EXPECT_EQ(bytes, 64 * kKiB);
}

}  // namespace
}  // namespace commpool::internal::engine
