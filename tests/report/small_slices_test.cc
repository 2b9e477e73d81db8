#include "src/report/small_slices.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace commpool::internal::report {
namespace {

constexpr int64_t kSlice = 100'000'000;

TEST(SmallSlicesTest, CountByClass) {
  SmallSlices small;
  small.Append(kSlice, 512, 10, 3);
  small.Append(kSlice, 1024, 20, 4);
  small.Append(2 * kSlice, 512, 30, 5);
  EXPECT_EQ(small.classes(), (std::vector<uint64_t>{512, 1024}));
  const auto slices = small.Slices();
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].begin, 0);
  EXPECT_EQ(slices[0].served, (std::vector<uint64_t>{10, 20}));
  EXPECT_EQ(slices[1].served, (std::vector<uint64_t>{30, 0}));
  EXPECT_EQ(slices[1].cached, (std::vector<uint64_t>{5, 4}));
}

TEST(SmallSlicesTest, EndWithASliceOfNothingWhereNothingIsServed) {
  SmallSlices small;
  small.Append(kSlice, 512, 10, 3);
  small.Append(10 * kSlice, 512, 1, 2);
  const auto slices = small.Slices();
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[1].begin, kSlice);
  EXPECT_EQ(slices[1].served, std::vector<uint64_t>{0});
  EXPECT_EQ(slices[1].cached, std::vector<uint64_t>{3});
}

TEST(SmallSlicesTest, LoseNoServingWhenTheyGetWider) {
  SmallSlices small;
  for (int64_t slice = 1; slice <= 10'000; ++slice) small.Append(slice * kSlice, slice < 5000 ? 512 : 1024, 1, 7);
  const auto slices = small.Slices();
  EXPECT_LE(slices.size(), SmallSlices::kMostSlices);
  uint64_t served = 0;
  for (const auto& slice : slices) served = std::accumulate(slice.served.begin(), slice.served.end(), served);
  EXPECT_EQ(served, 10'000u);
}

}  // namespace
}  // namespace commpool::internal::report
