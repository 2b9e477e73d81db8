// The advice of commpool advise for measured times.
#include "tools/cli/advice.h"

#include <gtest/gtest.h>

namespace commpool::cli {
namespace {

constexpr BufferKind kPlain = BufferKind::kPlain;
constexpr BufferKind kLocal = BufferKind::kLocal;
constexpr BufferKind kWindow = BufferKind::kWindow;

TEST(BestKind, IsTheFastest) {
  EXPECT_EQ(BestKind({{kPlain, 10}, {kLocal, 9}, {kWindow, 5}}), kWindow);
  EXPECT_EQ(BestKind({{kPlain, 10}, {kLocal, 5}, {kWindow, 9}}), kLocal);
  EXPECT_EQ(BestKind({{kPlain, 4}, {kLocal, 5}, {kWindow, 9}}), kPlain);
}

TEST(BestKind, CostsLeastToHaveAmongThoseWithinTwoPercent) {
  EXPECT_EQ(BestKind({{kPlain, 101}, {kLocal, 100.5}, {kWindow, 100}}), kPlain);
  EXPECT_EQ(BestKind({{kPlain, 110}, {kLocal, 101}, {kWindow, 100}}), kLocal);
  EXPECT_EQ(BestKind({{kPlain, 102.1}, {kWindow, 100}}), kWindow);
}

TEST(BestKind, DoesWithoutAKindThatCannotBeHad) {
  EXPECT_EQ(BestKind({{kPlain, 10}, {kLocal, 9}}), kLocal);
  EXPECT_EQ(BestKind({{kWindow, 9}}), kWindow);
}

TEST(Gain, IsMeasuredAgainstPlain) {
  EXPECT_DOUBLE_EQ(Gain({{kPlain, 10}, {kWindow, 5}}, kWindow), 2.0);
  EXPECT_DOUBLE_EQ(Gain({{kPlain, 10}, {kWindow, 5}}, kPlain), 1.0);
  EXPECT_DOUBLE_EQ(Gain({{kWindow, 5}}, kWindow), 1.0);
}

AdviceRow Row(uint64_t bytes, double plain, double window) {
  return {.bytes = bytes, .times = {{kPlain, plain}, {kWindow, window}}};
}

TEST(MakeRanges, JoinsNeighboursOfOneKind) {
  const std::vector<AdviceRange> ranges = MakeRanges({Row(1024, 10, 5), Row(2048, 12, 8), Row(4096, 10, 20)});
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].kind, kWindow);
  EXPECT_EQ(ranges[0].min_bytes, 1024u);
  EXPECT_EQ(ranges[0].max_bytes, 4095u);  // what lies between two sizes goes with the smaller
  EXPECT_DOUBLE_EQ(ranges[0].least_gain, 1.5);
  EXPECT_DOUBLE_EQ(ranges[0].most_gain, 2.0);
  EXPECT_EQ(ranges[1].kind, kPlain);
  EXPECT_EQ(ranges[1].min_bytes, 4096u);
  EXPECT_EQ(ranges[1].max_bytes, 4096u);
}

TEST(MakeRanges, GivesAKindThatIsBestTwiceTwoRanges) {
  const std::vector<AdviceRange> ranges = MakeRanges({Row(1, 10, 5), Row(2, 5, 10), Row(4, 10, 5)});
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[2].kind, kWindow);
  EXPECT_EQ(ranges[2].min_bytes, 4u);
}

TEST(MakeRanges, OfNothingIsNothing) { EXPECT_TRUE(MakeRanges({}).empty()); }

}  // namespace
}  // namespace commpool::cli
