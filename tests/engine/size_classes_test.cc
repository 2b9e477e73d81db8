// The sizes of small blocks: every size has the smallest class that holds it, and wastes little.
#include "src/library/engine/size_classes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace commpool::internal::engine {
namespace {

TEST(SizeClasses, HoldEverySizeInTheLeastClass) {
  for (uint64_t bytes = 1; bytes <= kSmallBytes; ++bytes) {
    const SizeClass size_class = ClassOf(bytes);
    ASSERT_LT(size_class, kSizeClasses) << bytes;
    ASSERT_GE(ClassBytes(size_class), bytes);
    ASSERT_TRUE(size_class == 0 || ClassBytes(size_class - 1) < bytes) << bytes;
  }
}

TEST(SizeClasses, WasteLessThanAUnitOrAThirtySecond) {
  for (uint64_t bytes = 1; bytes <= kSmallBytes; ++bytes) {
    const uint64_t wasted = ClassBytes(ClassOf(bytes)) - bytes;
    ASSERT_LT(wasted, std::max(kClassUnit, bytes / 32 + 1)) << bytes;
  }
}

}  // namespace
}  // namespace commpool::internal::engine
