// A machine without links between its GPUs and with an old NCCL: every missing ability is refused with the reason.
#include <cstdlib>

#include "src/library/driver/device_info.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal {
namespace {

class PoorMachine : public testing::EmulatorTest {
 protected:
  // Runs before the emulator reads the variable.
  static void SetUpTestSuite() {
    setenv("COMMPOOL_DRIVER", "emulated", 1);
    setenv("COMMPOOL_EMULATOR", "devices=2,links=none,nccl=2.19.3,fabric=no", 1);
  }
};

TEST_F(PoorMachine, HasNoWindows) {
  EXPECT_FALSE(driver().nccl.has_windows());
  EXPECT_TRUE(driver().nccl.has_local_registration());
  EXPECT_EQ(driver().nccl.WhyNoLocalRegistration(), "");
  const std::string reason = driver().nccl.WhyNoWindows();
  EXPECT_NE(reason.find("windows need NCCL 2.27"), std::string::npos) << reason;
  EXPECT_NE(reason.find("is 2.19.3"), std::string::npos) << reason;
}

// An old release lacks these symbols.
TEST_F(PoorMachine, HasNoFunctionsThatCameLater) {
  const NcclLibrary& nccl = driver().nccl;
  EXPECT_EQ(nccl.ncclCommWindowRegister, nullptr);
  EXPECT_EQ(nccl.ncclCommShrink, nullptr);
  EXPECT_EQ(nccl.ncclCommRevoke, nullptr);
  EXPECT_EQ(nccl.ncclCommGrow, nullptr);
  EXPECT_NE(nccl.ncclCommSplit, nullptr);
  EXPECT_NE(nccl.ncclReduceScatter, nullptr);
}

TEST_F(PoorMachine, HasDevicesThatDoNotReachEachOther) {
  EXPECT_TRUE(DescribeDevice(driver(), 0).value().reachable_peers.empty());
  ExpectFailure(CheckReachable(driver(), 1, 0), StatusCode::kNotSupported,
                "device 1 cannot reach the memory of device 0");
}

TEST_F(PoorMachine, RefusesToGrantAPeer) {
  const CUmemLocation location = testing::DeviceLocation(0);
  testing::MappedMemory mapped(driver(), location, testing::GranularityAt(driver(), location), 0);
  const Status status = mapped.mapping().SetAccess(testing::DeviceLocation(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_NE(status.message().find("cuMemSetAccess of 2 MiB on device 1 failed"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("no NVLink or PCIe peer access"), std::string::npos) << status.message();
}

TEST_F(PoorMachine, SaysThatItHasNoFabricHandles) { EXPECT_FALSE(DescribeDevice(driver(), 0).value().fabric_handles); }

}  // namespace
}  // namespace commpool::internal
