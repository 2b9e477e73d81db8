// A host without memory ends the process, in one sentence that names the call.
#include "src/library/c_api/boundary.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "commpool/commpool.h"

namespace commpool::internal {
namespace {

commpool_status ACallOfTheTest() {
  return Guarded([]() -> Status { throw std::bad_alloc(); });
}

TEST(BoundaryDeathTest, WithoutHostMemoryTheSentenceNamesTheCall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ACallOfTheTest(), "^commpool: ACallOfTheTest: the host has no memory\n");
}

TEST(Boundary, ReportsAnyOtherExceptionAsABug) {
  EXPECT_EQ(Guarded([]() -> Status { throw std::runtime_error("boom"); }), COMMPOOL_INTERNAL);
  EXPECT_STREQ(commpool_last_error(), "exception: boom");
}

}  // namespace
}  // namespace commpool::internal
