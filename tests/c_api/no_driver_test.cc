// A machine whose driver cannot be opened: every call reports it, and a later call may succeed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "commpool/commpool.h"

namespace commpool::internal::testing {
namespace {

TEST(NoDriver, IsToldByEveryCallAndDoesNotStick) {
  setenv("COMMPOOL_DRIVER", "punch cards", 1);
  void* pointer = nullptr;
  EXPECT_STREQ(commpool_last_error(), "");
  EXPECT_EQ(commpool_allocate(0, 1, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(commpool_last_error()).find("punch cards"), std::string::npos) << commpool_last_error();
  EXPECT_EQ(commpool_initialize(COMMPOOL_DRIVER_EMULATED, COMMPOOL_MEASURE_NOTHING), COMMPOOL_INVALID_ARGUMENT);
  EXPECT_STREQ(commpool_driver_description(), "");
  EXPECT_EQ(commpool_free(nullptr), COMMPOOL_OK);
}

}  // namespace
}  // namespace commpool::internal::testing
