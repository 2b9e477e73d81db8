// Which sizes a scope's range tells from each other.
#include <gtest/gtest.h>

#include "src/pool/scopes/scope.h"

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

TEST(SizeRange, NarrowsToTheSideOfAScopeThatASizeIsOn) {
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

}  // namespace
}  // namespace commpool::internal
