// Handles, ranges and mappings: sizes, offsets, lifetimes.
#include <cuda.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/driver/device_info.h"
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

// Who may use mapped memory: devices of the process, the CPU, other processes by handle.

class Access : public ConformanceTest {
 protected:
  unsigned long long AccessOf(CUdeviceptr address, CUmemLocation location) {
    unsigned long long flags = ~0ull;
    EXPECT_EQ(cuda().cuMemGetAccess(&flags, &location, address), CUDA_SUCCESS);
    return flags;
  }
  int NumaNode() { return NearestNode(DescribeDevice(driver(), 0).value()); }
};

TEST_F(Access, IsNobodysBeforeItIsGranted) {
  MappedMemory mapped = MakeMapped(granularity(), std::nullopt);
  EXPECT_EQ(AccessOf(mapped.address(), DeviceLocation(0)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(Access, IsGrantedAndTakenBack) {
  MappedMemory mapped = MakeMapped(granularity());
  EXPECT_EQ(AccessOf(mapped.address(), DeviceLocation(0)), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_TRUE(mapped.mapping().SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_NONE).ok());
  EXPECT_EQ(AccessOf(mapped.address(), DeviceLocation(0)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(Access, EndsWithTheMapping) {
  AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value();
  {
    Mapping mapping = Mapping::Map(driver(), range.address(), memory).value();
    ASSERT_TRUE(mapping.SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
  }
  Mapping mapping = Mapping::Map(driver(), range.address(), memory).value();
  EXPECT_EQ(AccessOf(range.address(), DeviceLocation(0)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(Access, IsRefusedWhereNothingIsMapped) {
  AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
  const CUmemAccessDesc access{.location = DeviceLocation(0), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(cuda().cuMemSetAccess(range.address(), granularity(), &access, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Access, OfOneCallMaySpanMappingsAndReachSeveralDevices) {
  AddressRange range = AddressRange::Reserve(driver(), 3 * granularity(), 0).value();
  std::vector<PhysicalMemory> memories;
  std::vector<Mapping> mappings;
  for (uint64_t offset = 0; offset < range.bytes(); offset += granularity()) {
    memories.push_back(PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value());
    mappings.push_back(Mapping::Map(driver(), range.address() + offset, memories.back()).value());
  }
  std::vector<CUmemAccessDesc> access = {{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  const bool peer = DeviceCountOfTests() > 1 && CheckReachable(driver(), 1, 0).ok();
  if (peer) access.push_back({DeviceLocation(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  ASSERT_EQ(cuda().cuMemSetAccess(range.address(), range.bytes(), access.data(), access.size()), CUDA_SUCCESS);
  for (uint64_t offset = 0; offset < range.bytes(); offset += granularity()) {
    for (const CUmemAccessDesc& one : access) {
      EXPECT_EQ(AccessOf(range.address() + offset, one.location), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
  }
  const CUmemAccessDesc none{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_NONE};
  ASSERT_EQ(cuda().cuMemSetAccess(range.address() + granularity(), granularity(), &none, 1), CUDA_SUCCESS);
  EXPECT_EQ(AccessOf(range.address(), DeviceLocation(0)), CU_MEM_ACCESS_FLAGS_PROT_READWRITE) << "the others keep it";
}

TEST_F(Access, OfOneCallIsRefusedWhereARangeEndsBehindItsMappings) {
  AddressRange range = AddressRange::Reserve(driver(), 2 * granularity(), 0).value();
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value();
  Mapping mapping = Mapping::Map(driver(), range.address(), memory).value();
  const CUmemAccessDesc access{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(cuda().cuMemSetAccess(range.address(), 2 * granularity(), &access, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemSetAccess(range.address(), granularity(), &access, 1), CUDA_SUCCESS);
}

// Driver 13.0 returns success (seen on H200s) and grants nothing behind the gap; the emulator returns an error.
TEST_F(Access, OfOneCallDoesNotReachBehindAGap) {
  AddressRange range = AddressRange::Reserve(driver(), 3 * granularity(), 0).value();
  std::vector<PhysicalMemory> memories;
  std::vector<Mapping> mappings;
  for (const uint64_t place : {0, 2}) {
    memories.push_back(PhysicalMemory::Create(driver(), granularity(), PropertiesAt(DeviceLocation(0))).value());
    mappings.push_back(Mapping::Map(driver(), range.address() + place * granularity(), memories.back()).value());
  }
  const CUmemAccessDesc access{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(cuda().cuMemSetAccess(range.address(), 3 * granularity(), &access, 1),
            OnEmulator() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
  EXPECT_EQ(AccessOf(range.address() + 2 * granularity(), DeviceLocation(0)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(Access, IsRefusedToAMissingDevice) {
  MappedMemory mapped = MakeMapped(granularity());
  Status status = mapped.mapping().SetAccess(DeviceLocation(DeviceCountOfTests()), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_FALSE(status.ok());
}

TEST_F(Access, ReachesAPeerThatIsGranted) {
  COMMPOOL_REQUIRE_DEVICES(2);
  if (!CheckReachable(driver(), 1, 0).ok()) GTEST_SKIP() << CheckReachable(driver(), 1, 0).message();
  MappedMemory mapped = MakeMapped(granularity());
  EXPECT_EQ(AccessOf(mapped.address(), DeviceLocation(1)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_TRUE(mapped.mapping().SetAccess(DeviceLocation(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
  Fill(mapped.address(), 0x21, 4096);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  PrimaryContext peer = PrimaryContext::Retain(driver(), 1).value();
  ContextGuard current(driver(), peer);
  Fill(mapped.address() + 2048, 0x43, 2048);  // by the peer
  std::vector<uint8_t> expected(2048, 0x21);
  expected.resize(4096, 0x43);
  EXPECT_EQ(Read(mapped.address(), 4096), expected);
}

// No page says what a mapping gets whose devices are granted differently: the emulator takes each by itself.
TEST_F(Access, OfOneCallMayLetThePeerReadAloneAndTheOwnerWrite) {
  COMMPOOL_REQUIRE_DEVICES(2);
  if (!CheckReachable(driver(), 1, 0).ok()) GTEST_SKIP() << CheckReachable(driver(), 1, 0).message();
  MappedMemory mapped = MakeMapped(granularity(), std::nullopt);
  const CUmemAccessDesc access[] = {{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                    {DeviceLocation(1), CU_MEM_ACCESS_FLAGS_PROT_READ}};
  ASSERT_EQ(cuda().cuMemSetAccess(mapped.address(), granularity(), access, std::size(access)), CUDA_SUCCESS);
  for (const CUmemAccessDesc& one : access) EXPECT_EQ(AccessOf(mapped.address(), one.location), one.flags);
  Fill(mapped.address(), 0x21, 4096);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  PrimaryContext peer = PrimaryContext::Retain(driver(), 1).value();
  ContextGuard current(driver(), peer);
  EXPECT_EQ(Read(mapped.address(), 4096), std::vector<uint8_t>(4096, 0x21));
  if (!OnEmulator()) return;  // tests/pool/peer_write_test.cc tries what a write costs
  EXPECT_EQ(cuda().cuMemsetD8Async(mapped.address(), 1, 4096, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Access, HostMemoryOfANumaNodeServesTheDevice) {
  if (!DescribeDevice(driver(), 0).value().host_numa_memory) GTEST_SKIP() << "no VMM memory on host NUMA nodes";
  const uint64_t bytes = GranularityAt(driver(), NumaLocation(NumaNode()));
  MappedMemory mapped = MappedMemory::Make(driver(), NumaLocation(NumaNode()), bytes, 0).value();
  Fill(mapped.address(), 0x66, 4096);
  EXPECT_EQ(Read(mapped.address(), 4096), std::vector<uint8_t>(4096, 0x66));
}

TEST_F(Access, TheCpuReadsAndWritesHostMemoryThatIsGrantedToIt) {
  if (!DescribeDevice(driver(), 0).value().host_numa_memory) GTEST_SKIP() << "no VMM memory on host NUMA nodes";
  const uint64_t bytes = GranularityAt(driver(), NumaLocation(NumaNode()));
  MappedMemory mapped = MappedMemory::Make(driver(), NumaLocation(NumaNode()), bytes, 0).value();
  ASSERT_TRUE(mapped.mapping().SetAccess(NumaLocation(NumaNode()), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
  std::memset(reinterpret_cast<void*>(mapped.address()), 0x3c, 4096);
  EXPECT_EQ(Read(mapped.address(), 4096), std::vector<uint8_t>(4096, 0x3c));
}

TEST_F(Access, TheCpuIsNotGrantedDeviceMemory) {
  MappedMemory mapped = MakeMapped(granularity());
  EXPECT_FALSE(mapped.mapping().SetAccess(NumaLocation(NumaNode()), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
}

TEST_F(Access, TheCurrentNumaNodeIsNoLocationForMemory) {
  const CUmemAllocationProp properties = PropertiesAt({.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, .id = 0});
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuda().cuMemCreate(&handle, granularity(), &properties, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Access, AnImportedFileDescriptorIsTheSameMemory) {
  MappedMemory mapped = MakeMapped(granularity());
  Fill(mapped.address(), 0x19, 4096);
  int descriptor = -1;
  ASSERT_EQ(cuda().cuMemExportToShareableHandle(&descriptor, mapped.physical().get(),
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(cuda().cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(descriptor);
  {
    AddressRange range = AddressRange::Reserve(driver(), granularity(), 0).value();
    ASSERT_EQ(cuda().cuMemMap(range.address(), granularity(), 0, imported, 0), CUDA_SUCCESS);
    const CUmemAccessDesc access{.location = DeviceLocation(0), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(cuda().cuMemSetAccess(range.address(), granularity(), &access, 1), CUDA_SUCCESS);
    EXPECT_EQ(Read(range.address(), 4096), std::vector<uint8_t>(4096, 0x19));
    EXPECT_EQ(cuda().cuMemUnmap(range.address(), granularity()), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuda().cuMemRelease(imported), CUDA_SUCCESS);
}

TEST_F(Access, MemoryMadeWithoutAHandleTypeIsNotExported) {
  CUmemAllocationProp properties = PropertiesAt(DeviceLocation(0));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), properties).value();
  int descriptor = -1;
  EXPECT_NE(cuda().cuMemExportToShareableHandle(&descriptor, memory.get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
