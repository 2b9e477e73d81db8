// How far an expandable pool may exceed its program's need: to the byte.
#include <gtest/gtest.h>

#include "src/library/base/bytes.h"
#include "src/library/engine/expandable_engine.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr StreamKey kStream = 1;
constexpr StreamKey kOther = 2;

EngineOptions OptionsWith(const Slack& slack) {
  EngineOptions options;
  options.spaces = Spaces::kApart;
  options.choice = Choice::kFirstFit;
  options.page_bytes = 2 * kMiB;
  options.slack = slack;
  return options;
}

class SlackTest : public ::testing::Test {
 protected:
  explicit SlackTest(const EngineOptions& options) : engine_(options) {
    engine_.AddTerritory({kBase, kGiB}, Space::kLarge);
    engine_.AddTerritory({kBase + kGiB, kGiB}, Space::kSmall);
  }
  SlackTest()
      : SlackTest(OptionsWith({.move_share = 2, .steady_move_share = 4, .splinter_share = 2, .wait_share = 2})) {}
  ~SlackTest() override { CheckInvariants(engine_); }

  Address Make(uint64_t bytes) {
    if (engine_.GrowthFor(bytes, kStream, Reuse::kSameStream)->bytes > 0) {
      const Expansion plan = engine_.Plan(bytes, kStream, Donors::kNone).value();
      engine_.Claim(plan);
      engine_.Complete(plan);
    }
    return std::get<Served>(*engine_.Allocate(bytes, kStream, Reuse::kSameStream)).address;
  }
  void Free(Address address) { ASSERT_TRUE(engine_.Free(address).ok()); }
  void ExpectMostToMake(uint64_t requested, uint64_t most) {
    EXPECT_TRUE(engine_.GrowsCheaply(requested, most)) << most;
    EXPECT_FALSE(engine_.GrowsCheaply(requested, most + 1)) << most;
  }

  ExpandableEngine engine_;
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
  engine_.StreamIdle(kStream, engine_.Now());
  const auto move_pages = [&](int pages) {
    for (int page = 0; page < pages; ++page) {
      const Expansion plan = engine_.Plan(4 * kMiB, kStream, Donors::kAll).value();
      ASSERT_EQ(plan.moves.size(), 1u);
      engine_.Claim(plan);
      engine_.Unclaim(plan);
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
  const Address block = Make(16 * kMiB);
  Free(block);
  EXPECT_EQ(engine_.GrowthFor(16 * kMiB, kOther, Reuse::kAnyStream)->bytes, 0u) << "it rather waits for the stream";
  EXPECT_NE(engine_.GrowthFor(16 * kMiB, kOther, Reuse::kSameStream)->bytes, 0u);
  EXPECT_NE(engine_.GrowthFor(16 * kMiB, kOther, Reuse::kAnyStream, Part{3})->bytes, 0u);
  EXPECT_EQ(engine_.GrowthFor(0, kOther, Reuse::kSameStream).status().code(), StatusCode::kInvalidArgument);
}

// A page that can move, and beside it parts of two others.
class SplinterSlack : public SlackTest {
 protected:
  explicit SplinterSlack(uint64_t share = 2) : SlackTest(OptionsWith({.splinter_share = share})) {
    Make(3 * kMiB);
    const Address freed = Make(4 * kMiB);
    Make(3 * kMiB);
    Free(freed);
    engine_.DeviceIdle(0, engine_.Now());
  }
  uint64_t Moved(Donors donors) { return engine_.Plan(5 * kMiB, kStream, donors)->moved_bytes(); }
};

class NoSplinterSlack : public SplinterSlack {
 protected:
  NoSplinterSlack() : SplinterSlack(11) {}
};

TEST_F(SplinterSlack, LeavesPagesWhereTheyAre) {
  EXPECT_EQ(engine_.counters().reserved_bytes.current, 10 * kMiB);
  EXPECT_EQ(Moved(Donors::kWhole), 0u);
  EXPECT_EQ(Moved(Donors::kAll), 2 * kMiB);
}

TEST_F(NoSplinterSlack, MovesThemUnlessNoneMayMove) {
  EXPECT_EQ(Moved(Donors::kWhole), 2 * kMiB);
  EXPECT_EQ(Moved(Donors::kNone), 0u);
}

class SmallPages : public SlackTest {
 protected:
  static EngineOptions Options() {
    EngineOptions options = OptionsWith({});
    options.granularity = 64 * kKiB;
    return options;
  }
  SmallPages() : SlackTest(Options()) {}
};

TEST_F(SmallPages, AreMadeForSmallBlocksOfAnySize) {
  Make(256 * kKiB);
  ASSERT_EQ(engine_.pages().size(), 4u);
  for (const auto& [address, bytes] : engine_.pages()) EXPECT_EQ(bytes, 64 * kKiB);
}

}  // namespace
}  // namespace commpool::internal::engine
