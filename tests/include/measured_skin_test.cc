// The C++ headers over the measured driver. In a process of its own, because measuring begins before the driver is
// open. Compiled as C++17 and as C++20.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "commpool/pool.h"
#include "commpool/runtime.h"

namespace commpool {
namespace {

TEST(MeasuredSkin, ListsTheDriversFunctionsThatWereCalled) {
  EXPECT_EQ(driver_calls().status().code(), StatusCode::kFailedPrecondition) << "nothing is measured";
  ASSERT_TRUE(initialize(DriverKind::kAuto, Measure::kCalls).ok());

  Pool pool = Pool::create({}).value();
  ASSERT_TRUE(pool.reserve(MiB(2)).ok());
  const std::vector<DriverCall> calls = driver_calls().value();
  ASSERT_FALSE(calls.empty());
  std::uint64_t mapped = 0;
  for (const DriverCall& call : calls) {
    EXPECT_GT(call.count, 0u) << call.name;
    EXPECT_LE(call.microseconds, calls.front().microseconds) << call.name;
    if (call.name == std::string("cuMemMap")) mapped = call.count;
  }
  EXPECT_EQ(mapped, 1u);
}

}  // namespace
}  // namespace commpool
