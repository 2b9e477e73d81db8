#include "src/report/call_comparison.h"

#include <gtest/gtest.h>

namespace commpool::internal::report {
namespace {

constexpr Channel kChannel = {7, 1};

void TakeCalls(CallComparison& calls, uint64_t first, uint64_t end, uint64_t odd = UINT64_MAX) {
  for (uint64_t number = first; number < end; ++number) {
    calls.Take(kChannel, number, "allocate", number == odd ? 1 : number * 512);
  }
}

TEST(CallComparisonTest, FindsTheFirstCallThatDiffers) {
  CallComparison calls;
  TakeCalls(calls, 0, 5000);
  TakeCalls(calls, 0, 5000, 1717);
  TakeCalls(calls, 0, 5000, 4000);
  EXPECT_EQ(calls.FirstDifference(kChannel), 1717u);
  EXPECT_EQ(calls.FirstDifference({7, 2}), std::nullopt);
}

TEST(CallComparisonTest, NeitherALaterBeginNorAnEarlierEndDiffers) {
  CallComparison calls;
  TakeCalls(calls, 100, 300);
  TakeCalls(calls, 0, 200);
  TakeCalls(calls, 250, 1000);
  EXPECT_EQ(calls.FirstDifference(kChannel), std::nullopt);
  // What the first rank did not tell is compared too.
  TakeCalls(calls, 0, 1000, 20);
  EXPECT_EQ(calls.FirstDifference(kChannel), 20u);
}

TEST(CallComparisonTest, ComparesKindsToo) {
  CallComparison calls;
  calls.Take(kChannel, 0, "allocate", 5);
  calls.Take(kChannel, 0, "free", 5);
  EXPECT_EQ(calls.FirstDifference(kChannel), 0u);
  EXPECT_EQ(DescribeCall("allocate", 65'536), "allocate 65,536 bytes");
  EXPECT_EQ(DescribeCall("free", 17), "free 17");
}

}  // namespace
}  // namespace commpool::internal::report
