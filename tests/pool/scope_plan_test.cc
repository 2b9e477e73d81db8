// What a scope catches, which sizes it treats alike, and what it hands on.
#include <gtest/gtest.h>

#include "src/library/pool/scopes/plan.h"

namespace commpool::internal {
namespace {

constexpr SizeRange kScope{10, 20};

SizeRange Alike(uint64_t bytes, SizeRange alike = {1, 100}) {
  alike.Narrow(kScope, bytes);
  return alike;
}

void Expect(const SizeRange& range, uint64_t least, uint64_t most) {
  EXPECT_EQ(range.least, least);
  EXPECT_EQ(range.most, most);
}

TEST(SizeRange, HasBothItsEnds) {
  EXPECT_TRUE(kScope.Has(10) && kScope.Has(20));
  EXPECT_FALSE(kScope.Has(9) || kScope.Has(21));
  EXPECT_TRUE(SizeRange().Has(0) && SizeRange().Has(UINT64_MAX));
}

TEST(SizeRange, NarrowsToSizesOnTheSameSideOfAScope) {
  Expect(Alike(9), 1, 9);
  Expect(Alike(10), 10, 20);
  Expect(Alike(20), 10, 20);
  Expect(Alike(21), 21, 100);
}

TEST(SizeRange, NarrowsAndNeverWidens) {
  Expect(Alike(5, {4, 6}), 4, 6);
  Expect(Alike(15, {14, 16}), 14, 16);
  Expect(Alike(30, {29, 31}), 29, 31);
}

TEST(ScopePlan, CatchesItsDeviceAndItsSizes) {
  const ScopePlan plan{.pool = 1, .sizes = kScope, .device = 2};
  EXPECT_TRUE(plan.Catches(2, 10) && plan.Catches(2, 20));
  EXPECT_FALSE(plan.Catches(2, 9) || plan.Catches(2, 21) || plan.Catches(1, 10));
}

TEST(WayOut, LeadsFromAScopeThatHandsOnWhereItsPoolIsShortOfMemory) {
  WayOut way;
  EXPECT_TRUE(way.HandsOn(Exhaustion::kNextScope, false, COMMPOOL_OUT_OF_MEMORY));
  EXPECT_TRUE(way.HandsOn(Exhaustion::kNextScope, true, COMMPOOL_EXHAUSTED));
  EXPECT_FALSE(way.HandsOn(Exhaustion::kError, false, COMMPOOL_OUT_OF_MEMORY));
  EXPECT_FALSE(way.HandsOn(Exhaustion::kNextScope, false, COMMPOOL_FAILED_PRECONDITION));
}

TEST(WayOut, SkipsSymmetricPoolsOnceAPoolOfOneRankHandedOn) {
  WayOut way;
  EXPECT_FALSE(way.PassesBy(true));
  EXPECT_TRUE(way.HandsOn(Exhaustion::kNextScope, true, COMMPOOL_EXHAUSTED));
  EXPECT_FALSE(way.PassesBy(true)) << "all ranks' symmetric pools are exhausted alike";
  EXPECT_TRUE(way.HandsOn(Exhaustion::kNextScope, false, COMMPOOL_OUT_OF_MEMORY));
  EXPECT_TRUE(way.PassesBy(true));
  EXPECT_FALSE(way.PassesBy(false));
}

}  // namespace
}  // namespace commpool::internal
