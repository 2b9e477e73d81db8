// What an expandable pool prefers: small pages where asked for, splinters and other streams' memory rather than growth.
#include <gtest/gtest.h>

#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/engine/expandable_engine.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr StreamKey kStream = 1;
constexpr StreamKey kOther = 2;

class ExpandablePolicyTest : public ::testing::Test {
 protected:
  explicit ExpandablePolicyTest(uint64_t segment_bytes = 0) : engine_(Options(segment_bytes)) {
    engine_.AddTerritory({kBase, uint64_t{256} << 30}, Space::kLarge);
  }
  ~ExpandablePolicyTest() override { CheckInvariants(engine_); }

  static EngineOptions Options(uint64_t segment_bytes) {
    EngineOptions options;
    options.spaces = Spaces::kApart;
    options.choice = Choice::kFirstFit;
    options.segment_bytes = segment_bytes;
    options.slack.page_share = 1024;
    return options;
  }
  Address Serve(uint64_t bytes, StreamKey stream = kStream, Reuse reuse = Reuse::kSameStream) {
    const Result<Outcome> outcome = engine_.Allocate(bytes, stream, reuse);
    return std::holds_alternative<Served>(*outcome) ? std::get<Served>(*outcome).address : 0;
  }
  Address Make(uint64_t bytes, StreamKey stream = kStream) {
    if (const Address address = Serve(bytes, stream)) return address;
    const Result<Expansion> plan = engine_.Plan(bytes, stream, Donors::kNone);
    EXPECT_TRUE(plan.ok() && engine_.Claim(*plan));
    engine_.Complete(*plan);
    return Serve(bytes, stream);
  }
  // The pages that come for a stream while memory of that size is free that another stream used.
  uint64_t LargestPageBeyondTheNeed(uint64_t bytes) {
    EXPECT_TRUE(engine_.Free(Make(bytes)).ok());
    const uint64_t before = engine_.pages().size();
    const Expansion plan = engine_.Plan(bytes, kOther, Donors::kNone).value();
    EXPECT_EQ(plan.made_bytes(), bytes);
    uint64_t largest = 0;
    for (const SegmentRange& page : plan.made) largest = std::max(largest, page.bytes);
    engine_.Claim(plan);
    engine_.Complete(plan);
    EXPECT_EQ(engine_.pages().size(), before + plan.made.size());
    return largest;
  }
  uint64_t LargestPage() const {
    uint64_t largest = 0;
    for (const auto& [address, bytes] : engine_.pages()) largest = std::max(largest, bytes);
    return largest;
  }

  ExpandableEngine engine_;
};

class ExplicitPagesTest : public ExpandablePolicyTest {
 protected:
  ExplicitPagesTest() : ExpandablePolicyTest(32 * kMiB) {}
};

TEST_F(ExpandablePolicyTest, MakesLargePagesWhileThePoolHoldsWhatTheProgramNeeds) {
  Make(128 * kMiB);
  Make(kGiB);
  EXPECT_EQ(LargestPage(), 32 * kMiB);
  EXPECT_EQ(engine_.pages().size(), 36u);
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
  for (const Address address : freed) ASSERT_TRUE(engine_.Free(address).ok());
  engine_.DeviceIdle(0, engine_.Now());
  const Result<Expansion> plan = engine_.Plan(256 * kMiB, kStream, Donors::kWhole);
  ASSERT_TRUE(plan.ok());
  EXPECT_GT(plan->moved_bytes(), 0u);
}

TEST_F(ExpandablePolicyTest, TakesMemoryOfAnotherStreamRatherThanGrowFarBeyondTheNeed) {
  const Address first = Make(kGiB);
  Make(kGiB);
  ASSERT_TRUE(engine_.Free(first).ok());
  EXPECT_EQ(Serve(kGiB, kOther), 0u) << "it asks before it waits";
  EXPECT_NE(engine_.GrowthFor(kGiB, kOther, Reuse::kSameStream)->bytes, 0u) << "where nothing may be waited for";
  EXPECT_EQ(engine_.GrowthFor(kGiB, kOther, Reuse::kAnyStream)->bytes, 0u);
  const Result<Outcome> waited = engine_.Allocate(kGiB, kOther, Reuse::kAnyStream);
  EXPECT_EQ(std::get<Served>(*waited).address, first);
  EXPECT_EQ(std::get<Served>(*waited).waits, (std::vector<StreamUse>{{kStream, kNoFence}}));
}

TEST_F(ExpandablePolicyTest, GrowsForAnotherStreamWhileThePoolHoldsWhatTheProgramNeeds) {
  const Address first = Make(kGiB);
  ASSERT_TRUE(engine_.Free(first).ok());
  EXPECT_NE(engine_.GrowthFor(2 * kGiB, kOther, Reuse::kAnyStream)->bytes, 0u);
}

TEST_F(ExpandablePolicyTest, JoinsWhatSeveralStreamsUsedForARequestThatWaitsForAll) {
  const Address mine = Make(64 * kMiB, kStream);
  const Address others = Make(64 * kMiB, kOther);
  ASSERT_EQ(others, mine + 64 * kMiB);
  ASSERT_TRUE(engine_.Free(mine).ok());
  ASSERT_TRUE(engine_.Free(others).ok());
  constexpr StreamKey kThird = 3;
  EXPECT_EQ(engine_.GrowthFor(128 * kMiB, kThird, Reuse::kAnyStream)->bytes, 0u);
  const Result<Outcome> waited = engine_.Allocate(128 * kMiB, kThird, Reuse::kAnyStream);
  ASSERT_TRUE(std::holds_alternative<Served>(*waited));
  EXPECT_EQ(std::get<Served>(*waited).waits, (std::vector<StreamUse>{{kStream, kNoFence}, {kOther, kNoFence}}));
}

// The first stream's free memory is too small for the other's request: only the missing rest is made.
TEST_F(ExpandablePolicyTest, GrowsAroundMemoryOfAnotherStream) {
  const Address lower = Make(64 * kMiB, kStream);
  const Address upper = Make(512 * kMiB, kStream);
  ASSERT_EQ(upper, lower + 64 * kMiB);
  ASSERT_TRUE(engine_.Free(upper).ok());
  const auto plan_with = [&](Reuse reuse) {
    return engine_.Plan(576 * kMiB, kOther, Donors::kNone, kCommonPart, reuse).value();
  };
  EXPECT_EQ(plan_with(Reuse::kSameStream).made_bytes(), 576 * kMiB) << "where nothing may be waited for";
  const Expansion plan = plan_with(Reuse::kAnyStream);
  EXPECT_EQ(plan.made_bytes(), 64 * kMiB);
  engine_.Claim(plan);
  engine_.Complete(plan);
  const Result<Outcome> waited = engine_.Allocate(576 * kMiB, kOther, Reuse::kAnyStream);
  ASSERT_TRUE(std::holds_alternative<Served>(*waited));
  EXPECT_EQ(std::get<Served>(*waited).address, upper);
  EXPECT_EQ(std::get<Served>(*waited).waits, (std::vector<StreamUse>{{kStream, kNoFence}}));
}

TEST_F(ExpandablePolicyTest, GrowsWithinItsSlackBeforePagesMoveAndBeforeTheHostWaits) {
  Make(16 * kGiB);
  const uint64_t slack = 16 * kGiB / 250;
  EXPECT_TRUE(engine_.GrowsCheaply(kMiB, slack));
  EXPECT_FALSE(engine_.GrowsCheaply(kMiB, slack + 2 * kMiB));
  EXPECT_FALSE(engine_.GrowsTooFar(kMiB, 16 * kGiB / 100));
  EXPECT_TRUE(engine_.GrowsTooFar(kMiB, 16 * kGiB / 100 + 2 * kMiB));
}

// Each step would move pages. A program that asks for no more than before gets a little more memory instead.
TEST_F(ExpandablePolicyTest, GivesASteadyProgramMoreSlack) {
  const uint64_t between = 16 * kGiB / 200;
  const Address most = Make(16 * kGiB);
  EXPECT_FALSE(engine_.GrowsCheaply(kMiB, between));
  ASSERT_TRUE(engine_.Free(most).ok());
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(engine_.Free(Make(16 * kGiB)).ok());
  EXPECT_TRUE(engine_.GrowsCheaply(kMiB, between));
}

}  // namespace
}  // namespace commpool::internal::engine
