// On a driver other than the emulator the time of a call is real time.
#include <gtest/gtest.h>

#include <chrono>

#include "src/library/driver/metering.h"

namespace commpool::internal {
namespace {

constexpr int kMicroseconds = 5;

CUresult Spin(unsigned) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(kMicroseconds);
  while (std::chrono::steady_clock::now() < end) continue;
  return CUDA_SUCCESS;
}

TEST(MeteringClock, IsTheSteadyOneOfTheHost) {
  Driver driver;
  driver.cuda.cuInit = Spin;
  ASSERT_TRUE(MeterDriver(driver).ok());
  EXPECT_TRUE(MeteredFunctions().empty());
  EXPECT_EQ(driver.cuda.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuda.cuInit(0), CUDA_SUCCESS);
  const std::vector<MeteredFunction> functions = MeteredFunctions();
  ASSERT_EQ(functions.size(), 1u);
  EXPECT_STREQ(functions[0].name, "cuInit");
  EXPECT_EQ(functions[0].calls, 2u);
  EXPECT_GE(functions[0].microseconds, 2.0 * kMicroseconds);  // the functions take at least so long by the same clock
}

}  // namespace
}  // namespace commpool::internal
