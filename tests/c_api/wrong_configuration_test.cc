// With a wrong COMMPOOL_CONF every call that would open the library reports the error, and none uses defaults instead.
#include <gtest/gtest.h>

#include <string>

#include "commpool/commpool.h"

namespace commpool::internal::testing {
namespace {

void ExpectTold() {
  const std::string told = commpool_last_error();
  for (const char* const part : {"COMMPOOL_CONF says limt:2MiB", "the nearest is limit", "release_threshold"}) {
    EXPECT_NE(told.find(part), std::string::npos) << told;
  }
}

TEST(AWrongConfiguration, IsToldByEveryCall) {
  void* pointer = nullptr;
  EXPECT_EQ(commpool_allocate(0, 1, nullptr, &pointer), COMMPOOL_INVALID_ARGUMENT);
  ExpectTold();
  EXPECT_EQ(commpool_initialize(COMMPOOL_DRIVER_EMULATED, COMMPOOL_MEASURE_NOTHING), COMMPOOL_INVALID_ARGUMENT);
  ExpectTold();
  size_t count = 7;
  EXPECT_EQ(commpool_configuration(0, nullptr, 0, 0, &count), COMMPOOL_INVALID_ARGUMENT);
  ExpectTold();
  EXPECT_EQ(count, 7u) << "outputs are not written";
  EXPECT_STREQ(commpool_driver_description(), "");
}

}  // namespace
}  // namespace commpool::internal::testing
