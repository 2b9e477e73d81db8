// Medians and intervals of measurements.
#include "tools/cli/median.h"

#include <gtest/gtest.h>

namespace commpool::cli {
namespace {

std::vector<double> UpTo(int count) {
  std::vector<double> values;
  for (int value = count; value > 0; --value) values.push_back(value);
  return values;
}

TEST(SpreadOf, IsTheWholeRangeOfFewValues) {
  const Spread spread = SpreadOf({3, 1, 2});
  EXPECT_EQ(spread.median, 2);
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.high, 3);
  EXPECT_EQ(SpreadOf({7}).low, 7);
  EXPECT_EQ(SpreadOf({7}).high, 7);
}

// The largest number of values outside at each end with 2 P(Binomial(n, 1/2) < number + 1) <= 0.05, from a table.
TEST(SpreadOf, LeavesOutWhatTheMedianNeedNotLieBeyond) {
  EXPECT_EQ(SpreadOf(UpTo(8)).low, 1);
  EXPECT_EQ(SpreadOf(UpTo(9)).low, 2);
  EXPECT_EQ(SpreadOf(UpTo(9)).high, 8);
  EXPECT_EQ(SpreadOf(UpTo(15)).low, 4);
  EXPECT_EQ(SpreadOf(UpTo(15)).high, 12);
  EXPECT_EQ(SpreadOf(UpTo(20)).low, 6);
  EXPECT_EQ(SpreadOf(UpTo(15)).median, 8);
  EXPECT_EQ(SpreadOf(UpTo(5000)).low, 2431) << "the chance of none below is less than the least double";
}

}  // namespace
}  // namespace commpool::cli
