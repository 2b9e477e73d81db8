#include "src/report/byte_series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

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

}  // namespace
}  // namespace commpool::internal::report
