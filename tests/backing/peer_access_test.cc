// Which devices get access, by which driver calls.
#include <array>
#include <span>

#include "src/library/driver/device_info.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

class PeerAccess : public BackingTest {};

TEST_F(PeerAccess, IsForOtherDevicesThanTheMemorysOwn) {
  if (ReachablePeer() < 0) GTEST_SKIP() << "no other device reaches device 0's memory";
  const std::unique_ptr<Segment> segment = Make({.kind = BackingKind::kVmm})->Make({.bytes = 1}).value();
  const uint64_t calls = CallCount("cuMemSetAccess");
  EXPECT_TRUE(segment->Grant(0).ok());
  EXPECT_TRUE(segment->Grant(std::span<const int>()).ok());
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls) << "nobody else asks";
  EXPECT_TRUE(segment->Grant(std::array{0, ReachablePeer()}).ok());
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls + 1);
  EXPECT_EQ(Fill(ReachablePeer(), segment->address(), 1, 4096), CUDA_SUCCESS);
}

TEST_F(PeerAccess, ThatIsRefusedNamesEveryDevice) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  COMMPOOL_REQUIRE_DEVICES(3);
  const std::unique_ptr<Segment> segment = Make({.kind = BackingKind::kVmm})->Make({.bytes = 1}).value();
  const InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN});
  ExpectMessage(segment->Grant(std::array{1, 2}), "devices 1 2");
}

TEST_F(PeerAccess, ThatTheDriverCannotTellOfIsNone) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  COMMPOOL_REQUIRE_DEVICES(2);
  ExpectFailureOf("cuDeviceCanAccessPeer", [&] { return CanReach(driver(), OnDevice(), 1); });
}

TEST_F(PeerAccess, ToLinearMemoryTellsWhichCallFailed) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  COMMPOOL_REQUIRE_DEVICES(2);
  std::unique_ptr<Segment> segment = Make({.kind = BackingKind::kCuda})->Make({.bytes = 1}).value();
  const std::vector<std::string> before = EmulatorLeaks();
  for (const char* call : {"cuDevicePrimaryCtxRetain", "cuCtxEnablePeerAccess"}) {
    ExpectFailureOf(call, [&] { return segment->Grant(1); });
    EXPECT_EQ(EmulatorLeaks(), before);
  }
  ASSERT_TRUE(segment->Grant(1).ok());
  EXPECT_NE(EmulatorLeaks(), before) << "the peer's context is held: the access ends with it";
}

TEST_F(PeerAccess, ToHostMemoryIsForDevicesThatMapIt) {
  if (!DescribeDevice(driver(), 0).value().host_numa_memory) GTEST_SKIP() << "no memory of host NUMA nodes";
  EXPECT_TRUE(CanReach(driver(), OnHost(), 0).ok());
  const Driver driver = DriverWhere(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  EXPECT_NE(CanReach(driver, OnHost(), 0).message().find("cannot map memory"), std::string::npos);
}

}  // namespace
}  // namespace commpool::internal::testing
