// Handles, ranges and mappings: sizes, offsets, lifetimes.
#include <cuda.h>

#include <vector>

#include "src/library/base/bytes.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

class VirtualMemory : public ConformanceTest {
 protected:
  CUresult Create(uint64_t bytes, const CUmemAllocationProp& properties) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = cuda().cuMemCreate(&handle, bytes, &properties, 0);
    if (result == CUDA_SUCCESS) {
      EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
    }
    return result;
  }
};

TEST_F(VirtualMemory, RecommendedGranularityIsAMultipleOfTheMinimum) {
  const CUmemAllocationProp properties = PropertiesAt(DeviceLocation(0));
  size_t minimum = 0;
  ASSERT_EQ(cuda().cuMemGetAllocationGranularity(&minimum, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  EXPECT_TRUE(IsPowerOfTwo(minimum));
  EXPECT_EQ(granularity() % minimum, 0u);
}

TEST_F(VirtualMemory, RefusesSizesThatAreNoMultipleOfTheGranularity) {
  EXPECT_EQ(Create(granularity() + 4096, PropertiesAt(DeviceLocation(0))), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, RefusesZeroBytes) {
  EXPECT_EQ(Create(0, PropertiesAt(DeviceLocation(0))), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAddressReserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, RefusesAMissingDevice) {
  EXPECT_NE(Create(granularity(), PropertiesAt(DeviceLocation(DeviceCountOfTests()))), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, MoreThanTheDeviceHasIsOutOfMemory) {
  size_t total = 0;
  ASSERT_EQ(cuda().cuDeviceTotalMem(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(Create(RoundUp(total, granularity()) * 2, PropertiesAt(DeviceLocation(0))), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(VirtualMemory, AFabricHandleIsGivenOrRefusedAsNotPermittedOrNotSupported) {
  CUmemAllocationProp properties = PropertiesAt(DeviceLocation(0));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  const CUresult result = Create(granularity(), properties);
  EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED)
      << result;
}

TEST_F(VirtualMemory, ReservesAtTheAlignmentAskedFor) {
  const uint64_t alignment = 64 * granularity();
  AddressRange range = AddressRange::Reserve(driver(), granularity(), alignment).value();
  EXPECT_EQ(range.address() % alignment, 0u);
}

TEST_F(VirtualMemory, RefusesAnAlignmentThatIsNoPowerOfTwo) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAddressReserve(&address, granularity(), 3 * granularity(), 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, FreesOnlyWholeReservations) {
  AddressRange range = AddressRange::Reserve(driver(), 2 * granularity(), 0).value();
  EXPECT_NE(cuda().cuMemAddressFree(range.address(), granularity()), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, MapsOnlyWithOffsetZero) {
  AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  PhysicalMemory memory = PhysicalMemory::Create(driver(), 2 * granularity(), PropertiesAt(DeviceLocation(0))).value();
  EXPECT_EQ(cuda().cuMemMap(range.address(), granularity(), granularity(), memory.get(), 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(VirtualMemory, MapsOnlyToReservedAddresses) {
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value();
  const CUdeviceptr nowhere = uint64_t{1} << 40;
  EXPECT_NE(cuda().cuMemMap(nowhere, granularity(), 0, memory.get(), 0), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, MapsOnlyWhereNothingIsMapped) {
  MappedMemory mapped = MakeMapped(granularity());
  PhysicalMemory other = PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value();
  EXPECT_NE(cuda().cuMemMap(mapped.address(), granularity(), 0, other.get(), 0), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, UnmapsOnlyWholeMappings) {
  MappedMemory mapped = MakeMapped(2 * granularity());
  EXPECT_EQ(cuda().cuMemUnmap(mapped.address(), granularity()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemUnmap(mapped.address() + granularity(), granularity()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, UnmapsSeveralWholeMappingsInOneCall) {
  AddressRange range = AddressRange::Reserve(driver(), 3 * granularity(), 0).value();
  std::vector<PhysicalMemory> memory;
  for (uint64_t place = 0; place < 3; ++place) {
    memory.push_back(PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value());
    Mapping mapping = Mapping::Map(driver(), range.address() + place * granularity(), memory.back()).value();
    mapping.Abandon();
  }
  ASSERT_EQ(cuda().cuMemUnmap(range.address(), 3 * granularity()), CUDA_SUCCESS);
  for (uint64_t place = 0; place < 3; ++place) {  // the addresses are free again
    EXPECT_TRUE(Mapping::Map(driver(), range.address() + place * granularity(), memory[place]).ok());
  }
}

TEST_F(VirtualMemory, UnmappingTwiceIsNoErrorButABrokenRule) {
  AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value();
  Mapping mapping = Mapping::Map(driver(), range.address(), memory).value();
  ASSERT_TRUE(mapping.Release().ok());
  EXPECT_EQ(cuda().cuMemUnmap(range.address(), granularity()), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports().size(), OnEmulator() ? 1u : 0u);
}

TEST_F(VirtualMemory, AHandleIsReleasedOnlyOnce) {
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value();
  const CUmemGenericAllocationHandle handle = memory.get();
  ASSERT_TRUE(memory.Release().ok());
  EXPECT_NE(cuda().cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, AMappingKeepsMemoryWhoseHandleIsReleased) {
  MappedMemory mapped = MakeMapped(granularity());
  ASSERT_TRUE(mapped.physical().Release().ok());
  Fill(mapped.address(), 0x5a, 4096);
  EXPECT_EQ(Read(mapped.address(), 4096), std::vector<uint8_t>(4096, 0x5a));
}

TEST_F(VirtualMemory, AHandleKeepsMemoryThatIsMappedElsewhereNext) {
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value();
  AddressRange range = AddressRange::Reserve(driver(), 2 * granularity(), 0).value();
  for (const CUdeviceptr address : {range.address(), range.address() + granularity()}) {
    Mapping mapping = Mapping::Map(driver(), address, memory).value();
    ASSERT_TRUE(mapping.SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
    if (address == range.address()) Fill(address, 0x77, 4096);
    EXPECT_EQ(Read(address, 4096), std::vector<uint8_t>(4096, 0x77));
  }
}

TEST_F(VirtualMemory, TwoHandlesSideBySideAreOnePieceToACopy) {
  AddressRange range = AddressRange::Reserve(driver(), 2 * granularity(), 0).value();
  std::vector<PhysicalMemory> memories;
  std::vector<Mapping> mappings;
  for (uint64_t offset = 0; offset < range.bytes(); offset += granularity()) {
    memories.push_back(PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value());
    mappings.push_back(Mapping::Map(driver(), range.address() + offset, memories.back()).value());
    ASSERT_TRUE(mappings.back().SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
  }
  const CUdeviceptr across = range.address() + granularity() - 2048;
  Fill(across, 0x33, 4096);
  EXPECT_EQ(Read(across, 4096), std::vector<uint8_t>(4096, 0x33));
}

TEST_F(VirtualMemory, AHandleTellsItsProperties) {
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value();
  CUmemAllocationProp properties = {};
  ASSERT_EQ(cuda().cuMemGetAllocationPropertiesFromHandle(&properties, memory.get()), CUDA_SUCCESS);
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(properties.location.id, 0);
  EXPECT_EQ(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_F(VirtualMemory, AMappedAddressGivesItsHandleOnceMore) {
  MappedMemory mapped = MakeMapped(granularity());
  CUmemGenericAllocationHandle handle = 0;
  void* const inside = reinterpret_cast<void*>(mapped.address() + 4096);
  ASSERT_EQ(cuda().cuMemRetainAllocationHandle(&handle, inside), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_TRUE(mapped.physical().Release().ok());
}

}  // namespace
}  // namespace commpool::internal::testing
