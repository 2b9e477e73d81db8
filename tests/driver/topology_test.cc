#include <algorithm>
#include <iterator>

#include "src/emulator/named_machines.h"
#include "src/library/driver/device_info.h"
#include "tests/driver/emulator_fixture.h"
#include "tools/common/device_link.h"

namespace commpool::internal {
namespace {

using Numbers = std::vector<int>;

// What the functions must answer on a machine of src/emulator/named_machines.cc.
struct Expected {
  const char* machine;
  Numbers nearest;  // host node of each device
  int island;       // devices that reach each other: those of equal number / island
  int group;        // of multicast
  bool coherent;
};

const Expected kExpected[] = {
    {"four", {0, 0, 1, 1}, 4, 4, false},
    {"one", {0}, 1, 1, false},
    {"two", {0, 1}, 2, 2, false},
    {"eight", {0, 0, 0, 0, 1, 1, 1, 1}, 8, 8, false},
    {"islands", {0, 0, 0, 0, 1, 1, 1, 1}, 4, 4, false},
    {"grace", {0, 0, 1, 1}, 4, 4, true},
    {"apart", {0, 0, 1, 1}, 1, 0, false},
};

class Topology : public testing::EmulatorTest {
 protected:
  static const Expected& Here() {
    const std::string name = testing::EmulatorSetting("machine");
    const auto* const found = std::find_if(std::begin(kExpected), std::end(kExpected),
                                           [&](const Expected& expected) { return expected.machine == name; });
    EXPECT_NE(found, std::end(kExpected)) << name;
    return *found;
  }
  static int Devices() { return static_cast<int>(Here().nearest.size()); }
  static Numbers IslandOf(int device) {
    Numbers others;
    for (int other = 0; other < Devices(); ++other) {
      if (other != device && other / Here().island == device / Here().island) others.push_back(other);
    }
    return others;
  }
  DeviceInfo InfoOf(int device) const { return DescribeDevice(driver(), device).value(); }
};

TEST_F(Topology, IsExpectedOfEveryNamedMachine) {
  EXPECT_EQ(std::size(kExpected), emulator::NamedMachines().size());
  EXPECT_EQ(DeviceCount(driver()).value(), Devices());
}

TEST_F(Topology, HasANearestNodeForEachDevice) {
  for (int device = 0; device < Devices(); ++device) {
    EXPECT_EQ(NearestNode(InfoOf(device)), Here().nearest[static_cast<size_t>(device)]) << device;
  }
  EXPECT_EQ(NearestNode(DeviceInfo()), 0) << "where the driver names none";
}

TEST_F(Topology, HasNodesOfDevicesWhereMemoryIsCoherent) {
  for (int device = 0; device < Devices(); ++device) {
    const DeviceInfo info = InfoOf(device);
    EXPECT_EQ(info.coherent, Here().coherent);
    EXPECT_EQ(info.own_numa_node, Here().coherent ? 2 + 8 * device : -1);
  }
}

TEST_F(Topology, HasPeersThatReachEachOther) {
  for (int device = 0; device < Devices(); ++device) {
    EXPECT_EQ(PeersThatReach(driver(), device).value(), IslandOf(device)) << device;
    EXPECT_EQ(InfoOf(device).reachable_peers, IslandOf(device)) << device;
  }
}

TEST_F(Topology, HasLinksOfTheSameKindAsItsPeers) {
  for (int device = 0; device < Devices(); ++device) {
    const Numbers peers = IslandOf(device);
    for (int other = 0; other < Devices(); ++other) {
      if (other == device) continue;
      const bool linked = std::find(peers.begin(), peers.end(), other) != peers.end();
      EXPECT_EQ(LinkBetween(driver(), device, other).kind, linked ? Link::Kind::kAtomics : Link::Kind::kNone);
      EXPECT_EQ(CheckReachable(driver(), device, other).ok(), linked) << device << " and " << other;
    }
  }
}

TEST_F(Topology, HasMulticastGroupsOfDevicesThatReachEachOther) {
  for (int device = 0; device < Devices(); ++device) EXPECT_EQ(LargestMulticastGroup(InfoOf(device)), Here().group);
}

TEST_F(Topology, HasNoDeviceBehindTheLast) {
  EXPECT_TRUE(CheckReachable(driver(), 0, 0).ok()) << "a device reaches itself";
  EXPECT_NE(CheckReachable(driver(), 0, 1000).message().find("there is no device 1000"), std::string::npos);
  EXPECT_EQ(LinkBetween(driver(), 0, 1000).kind, Link::Kind::kNone);
}

// What the emulator's machines lack: links without atomic operations, and links of different speed.
TEST_F(Topology, TellsSlowLinksFromFastOnes) {
  Driver slow = driver();
  slow.cuda.cuDeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute attribute, CUdevice, CUdevice) {
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED ? 0 : 1;
    return CUDA_SUCCESS;
  };
  const Link link = LinkBetween(slow, 0, 1);
  EXPECT_EQ(link.kind, Link::Kind::kAccess);
  EXPECT_EQ(link.rank, 1);
}

}  // namespace
}  // namespace commpool::internal
