// The reserve lets changes of the books succeed when the host has no memory.
#include "src/base/host_reserve.h"

#include <gtest/gtest.h>

#include <system_error>

#include "src/base/host_failure.h"
#include "tests/base/empty_system.h"

namespace commpool::internal {
namespace {

using testing::SystemIsEmpty;

TEST(HostReserve, AListAndAMapGrowWhereTheSystemHasNothing) {
  ASSERT_TRUE(HostReserve::Fill());
  ReservedVector<uint64_t> list;
  ReservedMap<int, int> map;
  {
    const SystemIsEmpty empty;
    for (int number = 0; number < 16; ++number) {
      list.push_back(static_cast<uint64_t>(number));
      map.emplace(number, number);
    }
  }
  EXPECT_EQ(list.size(), 16u);
  EXPECT_EQ(map.size(), 16u);
}

TEST(HostReserve, IsFilledAgainAfterEachUse) {
  ASSERT_TRUE(HostReserve::Fill());
  for (int time = 0; time < 100; ++time) {
    {
      const SystemIsEmpty empty;
      const ReservedVector<uint64_t> list(20);
    }
    ASSERT_TRUE(HostReserve::Fill());
  }
}

TEST(HostReserve, RefusesBeforeItIsUsedUp) {
  ASSERT_TRUE(HostReserve::Fill());
  ReservedDeque<ReservedVector<uint64_t>> lists;
  const SystemIsEmpty empty;
  while (HostReserve::Fill()) lists.emplace_back(4);
  EXPECT_GT(lists.size(), 8u);
  EXPECT_NO_THROW(lists.emplace_back(4)) << "a change that began ends";
}

TEST(HostReserve, CoversAListThatDoubles) {
  ReservedVector<uint64_t> list(100000);
  ASSERT_TRUE(HostReserve::Fill());
  const SystemIsEmpty empty;
  EXPECT_NO_THROW(list.push_back(1));
}

TEST(HostFailure, IsAStatusThatNeedsNoMemory) {
  const SystemIsEmpty empty;
  const Status memory = Attempt([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(memory.message(), kNoHostMemory);
}

TEST(HostFailure, OfAThreadIsOutOfMemoryToo) {
  const Status thread = Attempt([]() -> Status { throw std::system_error(EAGAIN, std::generic_category()); });
  EXPECT_EQ(thread.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(thread.message(), kNoHostThread);
}

}  // namespace
}  // namespace commpool::internal
