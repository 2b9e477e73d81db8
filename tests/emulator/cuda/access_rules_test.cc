// Who may use which memory, and addresses: device memory is not host memory; a range is reserved, mapped and freed as a
// whole. Hardware leaves these mistakes undefined or faults; the emulator reports them.

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class AccessRules : public MachineTest {
 protected:
  commpoolEmulatorRange memory(uint64_t bytes = kUnit) const { return {mapped_.address(), bytes}; }
  void Grant(int device) {
    const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    ASSERT_TRUE(mapped_.mapping().SetAccess(location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
  }
  CUresult LaunchOn(int device, const commpoolEmulatorRange& range) {
    const CurrentContext other(driver(), device);
    const CUresult result = Launch(nullptr, {range});
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS) << "a refused launch costs no context";
    return result;
  }
  static bool Reported(const std::string& rule) { return AnyContains(TakeReports(), rule); }

  MappedMemory mapped_ = Map(0, MappedMemory::Access::kNone);
};

TEST_F(AccessRules, MemoryIsNobodysBeforeAccessIsSet) {
  EXPECT_EQ(LaunchOn(0, memory()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(Reported("access that is not granted"));
  EXPECT_NE(Fill(memory().address, 1, kUnit), CUDA_SUCCESS);
  uint8_t byte = 0;
  EXPECT_NE(cuda().cuMemcpyDtoH(&byte, memory().address, 1), CUDA_SUCCESS);
  TakeReports();
  Grant(0);
  EXPECT_EQ(LaunchOn(0, memory()), CUDA_SUCCESS);
}

TEST_F(AccessRules, AReportNamesTheKernelAndTheDevice) {
  Grant(0);
  EXPECT_EQ(LaunchOn(1, memory()), CUDA_ERROR_ILLEGAL_ADDRESS);
  ExpectOneReport({"test kernel on device 1"});
}

TEST_F(AccessRules, AReportNamesTheFunctionsThatLedToIt) {
  EXPECT_EQ(LaunchOn(0, memory()), CUDA_ERROR_ILLEGAL_ADDRESS);
  ExpectOneReport({"; noticed in ", "AccessRules::LaunchOn (access_rules_test+0x"});
}

TEST_F(AccessRules, AGrantIsForOneDevice) {
  Grant(1);
  EXPECT_EQ(LaunchOn(1, memory()), CUDA_SUCCESS);
  EXPECT_EQ(LaunchOn(2, memory()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(LaunchOn(0, memory()), CUDA_ERROR_ILLEGAL_ADDRESS) << "not even the owner has access of itself";
  EXPECT_EQ(TakeReports().size(), 2u);
}

TEST_F(AccessRules, NoByteOutsideTheMappingIsTouched) {
  Grant(0);
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
  const CurrentContext other(driver(), 1);
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
  mapped_.Unmap();
  ExpectOneReport({"unmapped while registered", "a window of communicator 7"});
  EXPECT_EQ(COMMPOOL_EXTENSION(commpoolEmulatorUnhold)(memory().address + 4096, 4096), CUDA_SUCCESS);
}

TEST_F(AccessRules, FreeingHeldMemoryIsReported) {
  const CUdeviceptr linear = NewMemory();
  COMMPOOL_EXTENSION(commpoolEmulatorHold)(linear, kUnit, "a registration");
  EXPECT_EQ(cuda().cuMemFree(linear), CUDA_SUCCESS);
  COMMPOOL_EXTENSION(commpoolEmulatorUnhold)(linear, kUnit);
  EXPECT_TRUE(Reported("cuMemFree while held by a registration"));
}

TEST_F(AccessRules, UnmappingWhatIsNoLongerHeldIsFine) {
  COMMPOOL_EXTENSION(commpoolEmulatorHold)(memory().address, kUnit, "a registration");
  COMMPOOL_EXTENSION(commpoolEmulatorUnhold)(memory().address, kUnit);
  mapped_.Unmap();
}

class AddressSpaces : public MachineTest {
 protected:
  CUresult Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr* address) {
    return cuda().cuMemAddressReserve(address, bytes, alignment, 0, 0);
  }
};

volatile uint8_t* Byte(CUdeviceptr address) { return reinterpret_cast<volatile uint8_t*>(address); }

class AddressSpacesDeathTest : public AddressSpaces {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(AddressSpacesDeathTest, TheHostReadsNoDeviceMemory) {
  const CUdeviceptr memory = Allocate();
  EXPECT_DEATH(static_cast<void>(*Byte(memory)), "");
  EXPECT_DEATH(*Byte(memory) = 1, "");
}

TEST_F(AddressSpacesDeathTest, TheHostReadsNoMappingOfADevice) {
  const MappedMemory memory = Map();
  EXPECT_DEATH(static_cast<void>(*Byte(memory.address())), "");
}

TEST_F(AddressSpaces, TheHostReadsPinnedMemory) {
  void* pinned = nullptr;
  ASSERT_EQ(cuda().cuMemAllocHost(&pinned, 4096), CUDA_SUCCESS);
  *static_cast<uint8_t*>(pinned) = 7;
  EXPECT_EQ(FirstByte(reinterpret_cast<CUdeviceptr>(pinned)), 7);
  EXPECT_EQ(cuda().cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(AddressSpaces, ReservationsDoNotOverlap) {
  CUdeviceptr one = 0;
  CUdeviceptr other = 0;
  ASSERT_EQ(Reserve(4 * kUnit, 0, &one), CUDA_SUCCESS);
  ASSERT_EQ(Reserve(4 * kUnit, 64 * kUnit, &other), CUDA_SUCCESS);
  EXPECT_EQ(one % kUnit, 0u);
  EXPECT_EQ(other % (64 * kUnit), 0u);
  EXPECT_TRUE(one + 4 * kUnit <= other || other + 4 * kUnit <= one);
  EXPECT_EQ(cuda().cuMemAddressFree(one, 4 * kUnit), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemAddressFree(other, 4 * kUnit), CUDA_SUCCESS);
}

TEST_F(AddressSpaces, BadReservationsAreRefused) {
  CUdeviceptr address = 0;
  EXPECT_EQ(Reserve(0, 0, &address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Reserve(kUnit + 1, 0, &address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Reserve(kUnit, 3 * kUnit, &address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Reserve(kUnit, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(Reserve(uint64_t{1} << 60, 0, &address), CUDA_SUCCESS) << "more than there are addresses";
  EXPECT_NE(Reserve(UINT64_MAX - kUnit + 1, 0, &address), CUDA_SUCCESS);
}

TEST_F(AddressSpaces, AReservationIsFreedWholeOnceAndEmpty) {
  CUdeviceptr address = 0;
  ASSERT_EQ(Reserve(2 * kUnit, 0, &address), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemAddressFree(address, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemAddressFree(address + kUnit, kUnit), CUDA_ERROR_INVALID_VALUE);
  PhysicalMemory physical = PhysicalMemory::Create(driver(), kUnit, Properties()).value();
  ASSERT_EQ(cuda().cuMemMap(address + kUnit, kUnit, 0, physical.get(), 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemAddressFree(address, 2 * kUnit), CUDA_ERROR_INVALID_VALUE) << "still mapped";
  EXPECT_EQ(cuda().cuMemUnmap(address + kUnit, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemAddressFree(address, 2 * kUnit), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemAddressFree(address, 2 * kUnit), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AddressSpaces, AllocationsAreFreedByTheCallThatFitsThem) {
  const CUdeviceptr memory = Allocate();
  EXPECT_EQ(cuda().cuMemUnmap(memory, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemAddressFree(memory, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemFreeHost(reinterpret_cast<void*>(memory)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemFree(memory + 512), CUDA_ERROR_INVALID_VALUE) << "a pointer into the middle";
  const CUmemAccessDesc access{{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(cuda().cuMemSetAccess(memory, kUnit, &access, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(AddressSpaces, OneMemoryAtTwoAddressesIsOneMemory) {
  AddressRange range = AddressRange::Reserve(driver(), 2 * kUnit, 0).value();
  PhysicalMemory physical = PhysicalMemory::Create(driver(), kUnit, Properties()).value();
  const CUmemAccessDesc access{{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(cuda().cuMemMap(range.address(), kUnit, 0, physical.get(), 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemMap(range.address() + kUnit, kUnit, 0, physical.get(), 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemSetAccess(range.address(), 2 * kUnit, &access, 1), CUDA_SUCCESS);
  ASSERT_EQ(Fill(range.address(), 0x5a, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(FirstByte(range.address() + kUnit), 0x5a);
  const auto find = COMMPOOL_EXTENSION(commpoolEmulatorFindMapping);
  commpoolEmulatorMapping one = {};
  commpoolEmulatorMapping other = {};
  ASSERT_EQ(find(range.address() + 5, &one), CUDA_SUCCESS);
  ASSERT_EQ(find(range.address() + kUnit, &other), CUDA_SUCCESS);
  EXPECT_EQ(one.base, range.address());
  EXPECT_EQ(one.bytes, kUnit);
  EXPECT_NE(one.physical, 0u);
  EXPECT_EQ(one.physical, other.physical);
  EXPECT_EQ(cuda().cuMemUnmap(range.address(), 2 * kUnit), CUDA_SUCCESS) << "two whole mappings at once";
  EXPECT_EQ(find(range.address(), &one), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace commpool::internal::testing
