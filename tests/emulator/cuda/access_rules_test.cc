// Who may use which memory. Hardware leaves these mistakes undefined or faults; the emulator reports them.
#include <thread>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr CUmemLocation At(int device) { return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}; }

class AccessRules : public MachineTest {
 protected:
  AccessRules()
      : range_(AddressRange::Reserve(driver(), kUnit, 0).value()),
        physical_(PhysicalMemory::Create(driver(), kUnit, Properties()).value()),
        mapping_(Mapping::Map(driver(), range_.address(), physical_).value()) {}

  commpoolEmulatorRange memory(uint64_t bytes = kUnit) const { return {range_.address(), bytes}; }
  Status Grant(int device) { return mapping_.SetAccess(At(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE); }
  Mapping& mapping() { return mapping_; }
  CUresult LaunchOn(int device, const commpoolEmulatorRange& range) {
    PrimaryContext other = PrimaryContext::Retain(driver(), device).value();
    ContextGuard guard(driver(), other);
    const CUresult result = Launch(nullptr, {range});
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS) << "a refused launch costs no context";
    return result;
  }
  static bool Reported(const std::string& rule) { return AnyContains(TakeReports(), rule); }

 private:
  AddressRange range_;
  PhysicalMemory physical_;
  Mapping mapping_;
};

TEST_F(AccessRules, MemoryIsNobodysBeforeAccessIsSet) {
  EXPECT_EQ(LaunchOn(0, memory()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(Reported("access that is not granted"));
  EXPECT_NE(Fill(memory().address, 1, kUnit), CUDA_SUCCESS);
  uint8_t byte = 0;
  EXPECT_NE(cuda().cuMemcpyDtoH(&byte, memory().address, 1), CUDA_SUCCESS);
  TakeReports();
  ASSERT_TRUE(Grant(0).ok());
  EXPECT_EQ(LaunchOn(0, memory()), CUDA_SUCCESS);
}

TEST_F(AccessRules, AReportNamesTheKernelAndTheDevice) {
  ASSERT_TRUE(Grant(0).ok());
  EXPECT_EQ(LaunchOn(1, memory()), CUDA_ERROR_ILLEGAL_ADDRESS);
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(AnyContains(reports, "test kernel on device 1")) << reports[0];
}

TEST_F(AccessRules, AReportNamesTheFunctionsThatLedToIt) {
  EXPECT_EQ(LaunchOn(0, memory()), CUDA_ERROR_ILLEGAL_ADDRESS);
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(AnyContains(reports, "; noticed in ")) << reports[0];
  EXPECT_TRUE(AnyContains(reports, "AccessRules::LaunchOn (access_rules_test+0x")) << reports[0];
}

TEST_F(AccessRules, AGrantIsForOneDevice) {
  ASSERT_TRUE(Grant(1).ok());
  EXPECT_EQ(LaunchOn(1, memory()), CUDA_SUCCESS);
  EXPECT_EQ(LaunchOn(2, memory()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(LaunchOn(0, memory()), CUDA_ERROR_ILLEGAL_ADDRESS) << "not even the owner has access of itself";
  EXPECT_EQ(TakeReports().size(), 2u);
}

TEST_F(AccessRules, NoByteOutsideTheMappingIsTouched) {
  ASSERT_TRUE(Grant(0).ok());
  EXPECT_EQ(LaunchOn(0, memory(kUnit + 1)), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(LaunchOn(0, {memory().address + kUnit - 1, 2}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(LaunchOn(0, {memory().address, UINT64_MAX}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(TakeReports().size(), 3u);
  EXPECT_EQ(LaunchOn(0, {memory().address + kUnit - 1, 1}), CUDA_SUCCESS);
}

TEST_F(AccessRules, PeersTouchCudaMallocMemoryOnceTheirContextIsEnabled) {
  const commpoolEmulatorRange linear{Allocate(), kUnit};
  EXPECT_EQ(LaunchOn(1, linear), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(Reported("access that is not granted"));
  PrimaryContext other = PrimaryContext::Retain(driver(), 1).value();
  ContextGuard guard(driver(), other);
  ASSERT_EQ(cuda().cuCtxEnablePeerAccess(context(), 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuCtxEnablePeerAccess(context(), 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(LaunchOn(1, linear), CUDA_SUCCESS);
  EXPECT_EQ(LaunchOn(1, memory()), CUDA_ERROR_ILLEGAL_ADDRESS) << "mappings have access of their own";
  EXPECT_EQ(cuda().cuCtxDisablePeerAccess(context()), CUDA_SUCCESS);
  EXPECT_EQ(LaunchOn(1, linear), CUDA_ERROR_ILLEGAL_ADDRESS);
  TakeReports();
}

TEST_F(AccessRules, UnmappingHeldMemoryIsReportedWithItsHolder) {
  const auto hold = COMMPOOL_EXTENSION(commpoolEmulatorHold);
  ASSERT_EQ(hold(memory().address + 4096, 4096, "a window of communicator 7"), CUDA_SUCCESS);
  EXPECT_TRUE(mapping().Release().ok());
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(AnyContains(reports, "unmapped while registered")) << reports[0];
  EXPECT_TRUE(AnyContains(reports, "a window of communicator 7")) << reports[0];
  EXPECT_EQ(COMMPOOL_EXTENSION(commpoolEmulatorUnhold)(memory().address + 4096, 4096), CUDA_SUCCESS);
}

TEST_F(AccessRules, FreeingHeldMemoryIsReported) {
  CUdeviceptr linear = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&linear, kUnit), CUDA_SUCCESS);
  COMMPOOL_EXTENSION(commpoolEmulatorHold)(linear, kUnit, "a registration");
  EXPECT_EQ(cuda().cuMemFree(linear), CUDA_SUCCESS);
  COMMPOOL_EXTENSION(commpoolEmulatorUnhold)(linear, kUnit);
  EXPECT_TRUE(Reported("cuMemFree while held by a registration"));
}

TEST_F(AccessRules, UnmappingWhatIsNoLongerHeldIsFine) {
  COMMPOOL_EXTENSION(commpoolEmulatorHold)(memory().address, kUnit, "a registration");
  COMMPOOL_EXTENSION(commpoolEmulatorUnhold)(memory().address, kUnit);
  EXPECT_TRUE(mapping().Release().ok());
}

}  // namespace
}  // namespace commpool::internal::testing
