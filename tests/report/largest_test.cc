#include "src/report/largest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace commpool::internal::report {
namespace {

struct Thing {
  double weight = 0;
};

TEST(LargestTest, KeepsTheLargestAndTellsOfAllOthers) {
  Largest<Thing> largest(10);
  std::vector<double> left_out;
  const auto leave_out = [&](const Thing& thing) { left_out.push_back(thing.weight); };
  for (int thing = 0; thing < 1000; ++thing) largest.Offer({static_cast<double>(thing * 7 % 1000)}, leave_out);
  const std::vector<Thing> kept = largest.Take(leave_out);
  ASSERT_EQ(kept.size(), 10u);
  for (const Thing& thing : kept) EXPECT_GE(thing.weight, 990);
  ASSERT_EQ(left_out.size(), 990u);
  std::sort(left_out.begin(), left_out.end());
  EXPECT_EQ(left_out.back(), 989);
}

TEST(LargestTest, KeepsAllOfAFew) {
  Largest<Thing> largest(10);
  const auto leave_out = [](const Thing&) { FAIL(); };
  for (int thing = 0; thing < 10; ++thing) largest.Offer({1}, leave_out);
  EXPECT_EQ(largest.Take(leave_out).size(), 10u);
}

}  // namespace
}  // namespace commpool::internal::report
