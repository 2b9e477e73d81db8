#include "src/report/words.h"

#include <gtest/gtest.h>

namespace commpool::internal::report {
namespace {

TEST(Words, CountThings) {
  EXPECT_EQ(Counted(1, "page"), "1 page");
  EXPECT_EQ(Counted(12'345, "page"), "12,345 pages");
  EXPECT_EQ(InThousands(0), "0");
  EXPECT_EQ(InThousands(999), "999");
  EXPECT_EQ(InThousands(1'000'000), "1,000,000");
  EXPECT_EQ(InHex(0x7f00), "0x7f00");
}

TEST(Words, NameTheFirstOfVeryManyRanks) {
  EXPECT_EQ(RanksInWords({3}), "rank 3");
  EXPECT_EQ(RanksInWords({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
}

TEST(Words, GiveTimesTheirUnit) {
  EXPECT_EQ(InWords(0), "0 ns");
  EXPECT_EQ(InWords(999), "999 ns");
  EXPECT_EQ(InWords(1'500), "1.5 us");
  EXPECT_EQ(InWords(3'000'000), "3 ms");
  EXPECT_EQ(InWords(12'345'678), "12 ms");
  EXPECT_EQ(InWords(3'600'000'000'000), "3,600 s");
}

}  // namespace
}  // namespace commpool::internal::report
