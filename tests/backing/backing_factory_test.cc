// Requests that cannot be served are refused with the reason.
#include "src/library/driver/device_info.h"
#include "tests/backing/backing_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr BackingKind kKinds[] = {BackingKind::kVmm, BackingKind::kCuda, BackingKind::kNccl, BackingKind::kUser};

class BackingFactory : public BackingTest {
 protected:
  static BackingRequest Request(BackingKind kind, const Placement& placement) {
    return {.kind = kind, .placement = placement, .user = WorkingUserAllocator()};
  }
  // Expects a refusal with `code` that contains `part`, before anything was made.
  static void ExpectRefused(const Driver& driver, BackingKind kind, const Placement& placement, StatusCode code,
                            const std::string& part) {
    const std::vector<std::string> before = EmulatorLeaks();
    const uint64_t contexts = CallCount("cuDevicePrimaryCtxRetain");
    Status status = MakeBacking(driver, Request(kind, placement)).status();
    EXPECT_EQ(EmulatorLeaks(), before);
    EXPECT_EQ(CallCount("cuDevicePrimaryCtxRetain"), contexts);
    EXPECT_EQ(status.code(), code) << Name(kind) << ": " << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << Name(kind) << ": " << status.message();
  }
};

TEST_F(BackingFactory, RefusesAnUnknownDeviceAndNamesTheirNumber) {
  for (const BackingKind kind : kKinds) {
    for (const int device : {-1, DeviceCountOfTests()}) {
      ExpectRefused(driver(), kind, OnDevice(device), StatusCode::kInvalidArgument,
                    "this process sees " + std::to_string(DeviceCountOfTests()));
    }
  }
}

TEST_F(BackingFactory, MakesHostMemoryWithVmmOnly) {
  for (const BackingKind kind : {BackingKind::kCuda, BackingKind::kNccl, BackingKind::kUser}) {
    ExpectRefused(driver(), kind, OnHost(), StatusCode::kInvalidArgument, "needs one of vmm, pinned");
  }
}

TEST_F(BackingFactory, RefusesAnUnknownNumaNode) {
  if (!DescribeDevice(driver(), 0).value().host_numa_memory) GTEST_SKIP() << "no memory of host NUMA nodes";
  Status status = MakeBacking(driver(), Request(BackingKind::kVmm, OnHost(63))).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  EXPECT_NE(status.message().find("no host NUMA node 63"), std::string::npos) << status.message();
  ExpectRefused(driver(), BackingKind::kVmm, OnHost(-2), StatusCode::kInvalidArgument, "no host NUMA node -2");
}

TEST_F(BackingFactory, RefusesANumaNodeForDeviceMemory) {
  for (const BackingKind kind : kKinds) {
    Placement placement = OnDevice();
    placement.numa_node = 0;
    ExpectRefused(driver(), kind, placement, StatusCode::kInvalidArgument, "was named for device memory");
  }
}

TEST_F(BackingFactory, NeedsVirtualMemoryForVmm) {
  const Driver driver = DriverWhere(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  ExpectRefused(driver, BackingKind::kVmm, OnDevice(), StatusCode::kNotSupported, "virtual memory management");
  EXPECT_TRUE(MakeBacking(driver, Request(BackingKind::kCuda, OnDevice())).ok());
}

TEST_F(BackingFactory, NeedsNcclForNccl) {
  Driver without = driver();
  without.nccl = {};
  without.nccl.why_missing = "libnccl.so.2 was not found";
  ExpectRefused(without, BackingKind::kNccl, OnDevice(), StatusCode::kNotSupported, "libnccl.so.2 was not found");
  const std::unique_ptr<Backing> backing = MakeBacking(without, Request(BackingKind::kVmm, OnDevice())).value();
  EXPECT_FALSE(backing->CanRegisterLocal().ok());
  EXPECT_FALSE(backing->CanRegisterWindow().ok());
}

TEST_F(BackingFactory, NamesTheVersionOfAnNcclThatIsTooOld) {
  Driver old = driver();
  old.nccl.version = 21805;
  old.nccl.ncclMemAlloc = nullptr;
  old.nccl.ncclMemFree = nullptr;
  ExpectRefused(old, BackingKind::kNccl, OnDevice(), StatusCode::kNotSupported, "2.18.5");
}

TEST_F(BackingFactory, ListsTheRegistrationsOfEachBacking) {
  COMMPOOL_REQUIRE_NCCL();
  if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
  for (const BackingKind kind : kKinds) {
    const std::unique_ptr<Backing> backing = MakeBacking(driver(), Request(kind, OnDevice())).value();
    EXPECT_TRUE(backing->CanRegisterLocal().ok()) << Name(kind);
    const Status window = backing->CanRegisterWindow();
    EXPECT_EQ(window.ok(), kind == BackingKind::kVmm || kind == BackingKind::kNccl)
        << Name(kind) << ": " << window.message();
  }
}

TEST_F(BackingFactory, RefusesAnUnknownKind) {
  const auto kind = static_cast<BackingKind>(17);
  EXPECT_EQ(MakeBacking(driver(), {.kind = kind}).status().code(), StatusCode::kNotSupported);
  EXPECT_STREQ(Name(kind), "unknown");
}

}  // namespace
}  // namespace commpool::internal::testing
