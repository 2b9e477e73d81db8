// A metered table counts and times every call under its name, and returns the same results.
#include "src/library/driver/metering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

// The process has one meter, which never starts again: a test compares before and after.
class Metering : public DriverTest {
 protected:
  Metering() : metered_(driver()), context_(PrimaryContext::Retain(driver(), 0).value()), current_(driver(), context_) {
    ExpectOk(MeterDriver(metered_));
  }

  static MeteredFunction Measured(const std::string& name) {
    for (const MeteredFunction& function : MeteredFunctions()) {
      if (function.name == name) return function;
    }
    return {""};
  }
  static uint64_t Calls(const std::string& name) { return Measured(name).calls; }

  double EmulatorNow() const { return reinterpret_cast<EmulatorNowFunction>(driver().extension(kEmulatorNow))(); }

  const CudaDriver& metered() const { return metered_.cuda; }
  static int CountDevices(const CudaDriver& cuda) {
    int devices = 0;
    EXPECT_EQ(cuda.cuDeviceGetCount(&devices), CUDA_SUCCESS);
    return devices;
  }

  Driver metered_;

 private:
  PrimaryContext context_;
  ContextGuard current_;
};

TEST_F(Metering, CountsEveryCallUnderItsName) {
  const uint64_t asked = Calls("cuMemGetInfo");
  const uint64_t counted = Calls("cuDeviceGetCount");
  size_t free = 0;
  size_t total = 0;
  for (int call = 0; call < 3; ++call) EXPECT_EQ(metered().cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(CountDevices(metered()), DeviceCountOfTests());
  EXPECT_EQ(Calls("cuMemGetInfo"), asked + 3);
  EXPECT_EQ(Calls("cuDeviceGetCount"), counted + 1);
  EXPECT_GT(total, 0u);
}

TEST_F(Metering, LeavesOutWhatWasNotCalled) {
  for (const MeteredFunction& function : MeteredFunctions()) EXPECT_GT(function.calls, 0u) << function.name;
  EXPECT_EQ(Calls("cuMulticastGetGranularity"), 0u);
}

TEST_F(Metering, DoesNotCountCallsOutsideTheTable) {
  const uint64_t before = Calls("cuDeviceGetCount");
  CountDevices(driver().cuda);
  EXPECT_EQ(Calls("cuDeviceGetCount"), before);
}

TEST_F(Metering, AddsTheTimeThatTheEmulatorModels) {
  COMMPOOL_REQUIRE_EMULATOR("modelled time");
  const double before = Measured("cuMemAlloc").microseconds;
  const double begin = EmulatorNow();
  CUdeviceptr address = 0;
  ASSERT_EQ(metered().cuMemAlloc(&address, 8 << 20), CUDA_SUCCESS);
  const double modelled = EmulatorNow() - begin;
  EXPECT_GT(modelled, 0);
  EXPECT_NEAR(Measured("cuMemAlloc").microseconds - before, modelled, 0.01);
  EXPECT_EQ(metered().cuMemFree(address), CUDA_SUCCESS);
}

TEST_F(Metering, ListsTheLongestFirst) {
  CUdeviceptr address = 0;
  ASSERT_EQ(metered().cuMemAlloc(&address, 8 << 20), CUDA_SUCCESS);
  CountDevices(metered());
  EXPECT_EQ(metered().cuMemFree(address), CUDA_SUCCESS);
  const std::vector<MeteredFunction> functions = MeteredFunctions();
  EXPECT_GE(functions.size(), 3u);
  EXPECT_TRUE(std::is_sorted(functions.begin(), functions.end(),
                             [](const auto& a, const auto& b) { return a.microseconds > b.microseconds; }));
}

TEST_F(Metering, PassesFailuresOnAndCountsThem) {
  const uint64_t before = Calls("cuDeviceGet");
  CUdevice device = 0;
  EXPECT_EQ(metered().cuDeviceGet(&device, 999), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Calls("cuDeviceGet"), before + 1);
}

TEST_F(Metering, AsksForATableTwiceAndCountsOnce) {
  ASSERT_TRUE(MeterDriver(metered_).ok());
  const uint64_t before = Calls("cuDeviceGetCount");
  CountDevices(metered());
  EXPECT_EQ(Calls("cuDeviceGetCount"), before + 1);
}

TEST_F(Metering, LeavesNcclAsItIs) {
  EXPECT_EQ(metered_.nccl.ncclAllReduce, driver().nccl.ncclAllReduce);
  EXPECT_EQ(metered_.nccl.ncclMemAlloc, driver().nccl.ncclMemAlloc);
  EXPECT_EQ(metered_.nccl.version, driver().nccl.version);
}

TEST_F(Metering, RefusesAnotherDriver) {
  Driver other = driver();
  other.cuda.cuInit = [](unsigned) { return CUDA_SUCCESS; };
  const auto before = other.cuda.cuDeviceGetCount;
  EXPECT_EQ(MeterDriver(other).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(other.cuda.cuDeviceGetCount, before);
}

TEST_F(Metering, LosesNoCallOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 500;
  const uint64_t before = Calls("cuDeviceGetCount");
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this] {
      for (int call = 0; call < kCalls; ++call) CountDevices(metered());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Calls("cuDeviceGetCount"), before + kThreads * kCalls);
}

}  // namespace
}  // namespace commpool::internal::testing
