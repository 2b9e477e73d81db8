#include "src/library/engine/page_map.h"

#include <gtest/gtest.h>

#include <limits>

#include "src/library/engine/heap_segment.h"

namespace commpool::internal::engine {
namespace {

TEST(PageMap, FindsTheSegmentOfEveryAddressInside) {
  PageMap map;
  HeapSegment segment;
  map.Insert({0x1000, 0x1000}, &segment);
  EXPECT_EQ(map.Find(0x1000), &segment);
  EXPECT_EQ(map.Find(0x1801), &segment);
  EXPECT_EQ(map.Find(0x1fff), &segment);
}

TEST(PageMap, FindsNothingOutside) {
  PageMap map;
  EXPECT_EQ(map.Find(0), nullptr);
  HeapSegment segment;
  map.Insert({0x1000, 0x1000}, &segment);
  EXPECT_EQ(map.Find(0), nullptr);
  EXPECT_EQ(map.Find(0xfff), nullptr);
  EXPECT_EQ(map.Find(0x2000), nullptr);
  EXPECT_EQ(map.Find(std::numeric_limits<Address>::max()), nullptr);
}

TEST(PageMap, TellsAdjacentSegmentsApart) {
  PageMap map;
  HeapSegment low;
  HeapSegment high;
  map.Insert({0x2000, 0x1000}, &high);
  map.Insert({0x1000, 0x1000}, &low);
  EXPECT_EQ(map.Find(0x1fff), &low);
  EXPECT_EQ(map.Find(0x2000), &high);
  map.Erase(0x1000);
  EXPECT_EQ(map.Find(0x1fff), nullptr);
  EXPECT_EQ(map.Find(0x2000), &high);
}

TEST(PageMap, HoldsASegmentAtTheVeryTopOfTheAddressSpace) {
  PageMap map;
  HeapSegment segment;
  const Address first = std::numeric_limits<Address>::max() - 0xfff;
  map.Insert({first, 0x1000}, &segment);
  EXPECT_EQ(map.Find(std::numeric_limits<Address>::max()), &segment);
}

TEST(PageMapDeathTest, AbortsOnRangesThatOverlapOrWrapAround) {
  PageMap map;
  HeapSegment segment;
  map.Insert({0x2000, 0x1000}, &segment);
  EXPECT_DEATH(map.Insert({0x2000, 0x1000}, &segment), "overlap");
  EXPECT_DEATH(map.Insert({0x2fff, 0x1000}, &segment), "overlap");
  EXPECT_DEATH(map.Insert({0x1001, 0x1000}, &segment), "overlap");
  EXPECT_DEATH(map.Insert({0x4000, 0}, &segment), "empty");
  EXPECT_DEATH(map.Insert({std::numeric_limits<Address>::max(), 2}, &segment), "wraps around");
  EXPECT_DEATH(map.Erase(0x2001), "no segment starts");
}

}  // namespace
}  // namespace commpool::internal::engine
