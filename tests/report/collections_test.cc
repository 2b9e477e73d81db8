// The collections of a report: what they keep of very much.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "src/report/byte_series.h"
#include "src/report/largest.h"
#include "src/report/pool_members.h"
#include "src/report/small_slices.h"

namespace commpool::internal::report {
namespace {

TEST(ByteSeriesTest, KeepsAllOfAFewPoints) {
  ByteSeries series;
  for (int64_t point = 0; point < 100; ++point) series.Append({.time = point * 5000, .allocated = 10});
  EXPECT_EQ(series.Points().size(), 100u);
  EXPECT_TRUE(ByteSeries().Points().empty());
}

TEST(ByteSeriesTest, KeepsPeaksAndTheLastPointOfMany) {
  ByteSeries series;
  std::mt19937_64 random(3);
  for (int64_t point = 0; point < 500'000; ++point) {
    BytePoint bytes{.time = point * 777, .reserved = 1000, .allocated = 100 + random() % 100};
    if (point == 123'456) bytes.allocated = 900;
    if (point == 234'567) bytes.allocated = 1;
    if (point == 345'678) bytes.cached = 5;
    if (point == 499'999) bytes.requested = 42;
    series.Append(bytes);
  }
  const std::vector<BytePoint> points = series.Points();
  EXPECT_LE(points.size(), 2'100u);
  EXPECT_GE(points.size(), 300u);
  const auto has = [&](auto matches) { return std::any_of(points.begin(), points.end(), matches); };
  EXPECT_TRUE(has([](const BytePoint& point) { return point.allocated == 900 && point.time == 123'456 * 777; }));
  EXPECT_TRUE(has([](const BytePoint& point) { return point.allocated == 1; }));
  EXPECT_TRUE(has([](const BytePoint& point) { return point.cached == 5; }));
  EXPECT_EQ(points.back().requested, 42u);
  EXPECT_TRUE(std::is_sorted(points.begin(), points.end(),
                             [](const BytePoint& a, const BytePoint& b) { return a.time < b.time; }));
  series.Thin(10);
  EXPECT_LE(series.Points().size(), 70u);
  EXPECT_EQ(series.Points().back().requested, 42u);
}

TEST(ByteSeriesTest, BearsALongSilence) {
  ByteSeries series;
  series.Append({.time = 0, .allocated = 1});
  for (int64_t point = 0; point < 1000; ++point) {
    series.Append({.time = (int64_t{1} << 60) + point * 1000, .allocated = 2});
  }
  EXPECT_EQ(series.Points().front().allocated, 1u);
  EXPECT_EQ(series.Points().back().allocated, 2u);
}

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

TEST(PoolMembersTest, AreThoseOfOnePool) {
  PoolMembers members;
  members.Add(1, 0x400);
  members.Add(1, 0x100);
  members.Add(1, 0x200);
  members.Add(2, 0x300);
  members.Remove(1, 0x200);
  members.Remove(3, 0x200);
  EXPECT_EQ(members.Take(1), std::vector<uint64_t>({0x100, 0x400}));
  EXPECT_TRUE(members.Take(1).empty());
  EXPECT_EQ(members.Take(2), std::vector<uint64_t>({0x300}));
}

}  // namespace
}  // namespace commpool::internal::report
