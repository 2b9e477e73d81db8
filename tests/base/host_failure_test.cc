// What a host without memory or threads answers becomes a Status.
#include "src/base/host_failure.h"

#include <gtest/gtest.h>

#include <system_error>

#include "tests/base/empty_system.h"

namespace commpool::internal {
namespace {

using testing::SystemIsEmpty;

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
