// Memory on each machine that the emulator knows by name: every backing gives it to the devices that can reach it, and
// to no other.
#include <algorithm>

#include "src/library/driver/device_info.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

class MemoryOfMachines : public BackingTest {};

TEST_F(MemoryOfMachines, GoesToTheDevicesThatReachIt) {
  for (int owner = 0; owner < DeviceCountOfTests(); ++owner) {
    const std::vector<int> peers = PeersThatReach(driver(), owner).value();
    const Placement placement{Placement::Kind::kDevice, owner, -1};
    const std::unique_ptr<Segment> segment = Make({.placement = placement})->Make({.bytes = 1}).value();
    EXPECT_TRUE(segment->Grant(peers).ok());
    for (int device = 0; device < DeviceCountOfTests(); ++device) {
      const bool reaches = device == owner || std::find(peers.begin(), peers.end(), device) != peers.end();
      EXPECT_EQ(CanReach(driver(), placement, device).ok(), reaches) << owner << " from " << device;
      if (reaches) {
        EXPECT_EQ(Fill(device, segment->address(), 1, 4096), CUDA_SUCCESS) << owner << " from " << device;
      }
    }
  }
}

TEST_F(MemoryOfMachines, OfTheHostLiesNextToItsDevice) {
  for (int device = 0; device < DeviceCountOfTests(); ++device) {
    const std::unique_ptr<Backing> backing = Make({.placement = {Placement::Kind::kHostNuma, device, -1}});
    EXPECT_EQ(backing->placement().numa_node, NearestNode(DescribeDevice(driver(), device).value())) << device;
    const std::unique_ptr<Segment> segment = backing->Make({.bytes = 1}).value();
    for (int other = 0; other < DeviceCountOfTests(); ++other) {
      EXPECT_TRUE(CanReach(driver(), backing->placement(), other).ok()) << device << " from " << other;
    }
  }
}

// On a coherent machine devices are NUMA nodes as well, but no nodes of the host.
TEST_F(MemoryOfMachines, OfADevicesOwnNodeIsRefused) {
  const DeviceInfo info = DescribeDevice(driver(), 0).value();
  if (info.own_numa_node < 0) GTEST_SKIP() << "devices are no NUMA nodes";
  EXPECT_FALSE(MakeBacking(driver(), {.placement = {Placement::Kind::kHostNuma, 0, info.own_numa_node}}).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
