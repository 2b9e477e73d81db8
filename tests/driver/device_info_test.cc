#include "src/library/driver/device_info.h"

#include "tests/driver/emulator_fixture.h"

namespace commpool::internal {
namespace {

class DeviceInfos : public testing::DriverTest {};

TEST_F(DeviceInfos, TellNameAndMemory) {
  for (int device = 0; device < DeviceCount(driver()).value(); ++device) {
    const DeviceInfo info = DescribeDevice(driver(), device).value();
    EXPECT_EQ(info.device, device);
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.pci_bus_id.empty());
    EXPECT_GT(info.total_bytes, 0u);
    EXPECT_GT(info.compute_major, 0);
    for (const int peer : info.reachable_peers) EXPECT_NE(peer, device);
  }
}

TEST_F(DeviceInfos, OfAMissingDeviceAreRefused) {
  for (const int device : {-1, DeviceCount(driver()).value()}) {
    ExpectFailure(DescribeDevice(driver(), device).status(), StatusCode::kInvalidArgument,
                  "there is no device " + std::to_string(device));
  }
}

TEST_F(DeviceInfos, FailWithTheDriver) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  const testing::InjectedFault fault({.call = "cuDeviceGetCount", .result = CUDA_ERROR_UNKNOWN});
  EXPECT_EQ(DescribeDevice(driver(), 0).status().code(), StatusCode::kDriverError);
}

}  // namespace
}  // namespace commpool::internal
