// Devices that do not reach each other are refused with the reason. The emulated machine is a ring of four: device 0
// reaches its neighbours 1 and 3.
#include <cstdlib>

#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr int kFarDevice = 2;

class PeerRefusal : public BackingTest, public ::testing::WithParamInterface<BackingKind> {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=4,links=ring", 1); }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it needs devices without a link"); }
};

TEST_P(PeerRefusal, NamesBothDevicesAndTheCause) {
  std::unique_ptr<Backing> backing = Make({.kind = GetParam()});
  ExpectFailure(backing->CanGrant(kFarDevice), StatusCode::kNotSupported,
                "device 2 cannot reach the memory of device 0");
}

TEST_P(PeerRefusal, DoesNotTouchTheNeighbours) {
  std::unique_ptr<Backing> backing = Make({.kind = GetParam()});
  std::unique_ptr<Segment> segment = backing->Make({.bytes = 1}).value();
  EXPECT_TRUE(backing->CanGrant(1).ok());
  ASSERT_TRUE(segment->Grant(1).ok());
  EXPECT_FALSE(backing->CanGrant(kFarDevice).ok());
  EXPECT_EQ(Fill(1, segment->address(), 5, 4096), CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(All, PeerRefusal,
                         ::testing::Values(BackingKind::kVmm, BackingKind::kCuda, BackingKind::kNccl));

class HostMemoryPeers : public PeerRefusal {};

TEST_P(HostMemoryPeers, NeedNoLinkToTheDevice) {
  std::unique_ptr<Backing> backing = Make({.kind = GetParam(), .placement = OnHost()});
  EXPECT_TRUE(backing->CanGrant(kFarDevice).ok());
  std::unique_ptr<Segment> segment = backing->Make({.bytes = 1}).value();
  ASSERT_TRUE(segment->Grant(kFarDevice).ok());
  EXPECT_EQ(Fill(kFarDevice, segment->address(), 6, 4096), CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Vmm, HostMemoryPeers, ::testing::Values(BackingKind::kVmm));

}  // namespace
}  // namespace commpool::internal::testing
