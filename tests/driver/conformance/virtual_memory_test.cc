// Handles, ranges and mappings: sizes, offsets, lifetimes.
#include <cstring>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/driver/device_info.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr CUmemAccessDesc kOwner = {DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
constexpr CUmemAccessDesc kPeer = {DeviceLocation(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

// Physical memory side by side in one range of addresses, each piece of one granularity.
struct Row {
  AddressRange range;
  std::vector<PhysicalMemory> memories;
  std::vector<Mapping> mappings;
};

class VirtualMemory : public ConformanceTest {
 protected:
  AddressRange Reserve(uint64_t bytes) { return AddressRange::Reserve(driver(), bytes, 0).value(); }
  PhysicalMemory MakePhysical(uint64_t bytes) {
    return PhysicalMemory::Create(driver(), bytes, PropertiesAt(DeviceLocation(0))).value();
  }
  // Mapped at these places of so many; nobody has access.
  Row MakeRow(uint64_t places, const std::vector<uint64_t>& mapped) {
    Row row{Reserve(places * granularity()), {}, {}};
    for (const uint64_t place : mapped) {
      row.memories.push_back(MakePhysical(granularity()));
      const CUdeviceptr address = row.range.address() + place * granularity();
      row.mappings.push_back(Mapping::Map(driver(), address, row.memories.back()).value());
    }
    return row;
  }
  CUresult SetAccess(CUdeviceptr address, uint64_t bytes, const std::vector<CUmemAccessDesc>& access = {kOwner}) {
    return cuda().cuMemSetAccess(address, bytes, access.data(), access.size());
  }
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
  const size_t minimum = Get(cuda().cuMemGetAllocationGranularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
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
  const uint64_t total = DescribeDevice(driver(), 0).value().total_bytes;
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
  AddressRange range = Reserve(2 * granularity());
  EXPECT_NE(cuda().cuMemAddressFree(range.address(), granularity()), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, MapsOnlyWithOffsetZero) {
  AddressRange range = Reserve(granularity());
  PhysicalMemory memory = MakePhysical(2 * granularity());
  EXPECT_EQ(cuda().cuMemMap(range.address(), granularity(), granularity(), memory.get(), 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(VirtualMemory, MapsOnlyToReservedAddresses) {
  PhysicalMemory memory = MakePhysical(granularity());
  const CUdeviceptr nowhere = uint64_t{1} << 40;
  EXPECT_NE(cuda().cuMemMap(nowhere, granularity(), 0, memory.get(), 0), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, MapsOnlyWhereNothingIsMapped) {
  MappedMemory mapped = MakeMapped(granularity());
  PhysicalMemory other = MakePhysical(granularity());
  EXPECT_NE(cuda().cuMemMap(mapped.address(), granularity(), 0, other.get(), 0), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, UnmapsOnlyWholeMappings) {
  MappedMemory mapped = MakeMapped(2 * granularity());
  EXPECT_EQ(cuda().cuMemUnmap(mapped.address(), granularity()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemUnmap(mapped.address() + granularity(), granularity()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, UnmapsSeveralWholeMappingsInOneCall) {
  Row row = MakeRow(3, {0, 1, 2});
  ASSERT_EQ(cuda().cuMemUnmap(row.range.address(), row.range.bytes()), CUDA_SUCCESS);
  for (uint64_t place = 0; place < 3; ++place) {  // the addresses are free again
    EXPECT_TRUE(Mapping::Map(driver(), row.mappings[place].address(), row.memories[place]).ok());
    row.mappings[place].Abandon();
  }
}

TEST_F(VirtualMemory, UnmappingTwiceIsNoErrorButABrokenRule) {
  MappedMemory mapped = MakeMapped(granularity(), std::nullopt);
  const CUdeviceptr address = mapped.address();
  ASSERT_TRUE(mapped.mapping().Release().ok());
  EXPECT_EQ(cuda().cuMemUnmap(address, granularity()), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports().size(), OnEmulator() ? 1u : 0u);
}

TEST_F(VirtualMemory, AHandleIsReleasedOnlyOnce) {
  PhysicalMemory memory = MakePhysical(granularity());
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
  PhysicalMemory memory = MakePhysical(granularity());
  AddressRange range = Reserve(2 * granularity());
  for (const CUdeviceptr address : {range.address(), range.address() + granularity()}) {
    Mapping mapping = Mapping::Map(driver(), address, memory).value();
    ASSERT_TRUE(mapping.SetAccess(DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
    if (address == range.address()) Fill(address, 0x77, 4096);
    EXPECT_EQ(Read(address, 4096), std::vector<uint8_t>(4096, 0x77));
  }
}

TEST_F(VirtualMemory, TwoHandlesSideBySideAreOnePieceToACopy) {
  Row row = MakeRow(2, {0, 1});
  for (Mapping& mapping : row.mappings) ExpectOk(mapping.SetAccess(kOwner.location, kOwner.flags));
  const CUdeviceptr across = row.range.address() + granularity() - 2048;
  Fill(across, 0x33, 4096);
  EXPECT_EQ(Read(across, 4096), std::vector<uint8_t>(4096, 0x33));
}

TEST_F(VirtualMemory, AHandleTellsItsProperties) {
  PhysicalMemory memory = MakePhysical(granularity());
  const CUmemAllocationProp properties = Get(cuda().cuMemGetAllocationPropertiesFromHandle, memory.get());
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(properties.location.id, 0);
  EXPECT_EQ(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST_F(VirtualMemory, AMappedAddressGivesItsHandleOnceMore) {
  MappedMemory mapped = MakeMapped(granularity());
  PhysicalMemory again = PhysicalMemory::At(driver(), mapped.address() + 4096, granularity());
  ASSERT_TRUE(again.valid());
  ExpectOk(again.Release());
  EXPECT_TRUE(mapped.physical().Release().ok());
}

// Who may use mapped memory: devices of the process, the CPU, other processes by handle.

class Access : public VirtualMemory {
 protected:
  unsigned long long AccessOf(CUdeviceptr address, CUmemLocation location) {
    unsigned long long flags = ~0ull;
    EXPECT_EQ(cuda().cuMemGetAccess(&flags, &location, address), CUDA_SUCCESS);
    return flags;
  }
  CUmemLocation NumaNode() { return NumaLocation(NearestNode(DescribeDevice(driver(), 0).value())); }
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
  MappedMemory mapped = MakeMapped(granularity());
  const CUdeviceptr address = mapped.address();
  ASSERT_TRUE(mapped.mapping().Release().ok());
  mapped.mapping() = Mapping::Map(driver(), address, mapped.physical()).value();
  EXPECT_EQ(AccessOf(address, DeviceLocation(0)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(Access, IsRefusedWhereNothingIsMapped) {
  AddressRange range = Reserve(granularity());
  EXPECT_EQ(SetAccess(range.address(), granularity()), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Access, OfOneCallMaySpanMappingsAndReachSeveralDevices) {
  const Row row = MakeRow(3, {0, 1, 2});
  std::vector<CUmemAccessDesc> access = {kOwner};
  if (DeviceCountOfTests() > 1 && CheckReachable(driver(), 1, 0).ok()) access.push_back(kPeer);
  ASSERT_EQ(SetAccess(row.range.address(), row.range.bytes(), access), CUDA_SUCCESS);
  for (const Mapping& mapping : row.mappings) {
    for (const CUmemAccessDesc& one : access) EXPECT_EQ(AccessOf(mapping.address(), one.location), one.flags);
  }
  const CUmemAccessDesc none{DeviceLocation(0), CU_MEM_ACCESS_FLAGS_PROT_NONE};
  ASSERT_EQ(SetAccess(row.mappings[1].address(), granularity(), {none}), CUDA_SUCCESS);
  EXPECT_EQ(AccessOf(row.range.address(), DeviceLocation(0)), kOwner.flags) << "the others keep it";
}

TEST_F(Access, OfOneCallIsRefusedWhereARangeEndsBehindItsMappings) {
  const Row row = MakeRow(2, {0});
  EXPECT_EQ(SetAccess(row.range.address(), row.range.bytes()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SetAccess(row.range.address(), granularity()), CUDA_SUCCESS);
}

// Driver 13.0 returns success (seen on H200s) and grants nothing behind the gap; the emulator returns an error.
TEST_F(Access, OfOneCallDoesNotReachBehindAGap) {
  const Row row = MakeRow(3, {0, 2});
  EXPECT_EQ(SetAccess(row.range.address(), row.range.bytes()), OnEmulator() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
  EXPECT_EQ(AccessOf(row.mappings[1].address(), DeviceLocation(0)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(Access, IsRefusedToAMissingDevice) {
  MappedMemory mapped = MakeMapped(granularity());
  EXPECT_FALSE(mapped.mapping().SetAccess(DeviceLocation(DeviceCountOfTests()), kOwner.flags).ok());
}

TEST_F(Access, ReachesAPeerThatIsGranted) {
  COMMPOOL_REQUIRE_DEVICES(2);
  if (!CheckReachable(driver(), 1, 0).ok()) GTEST_SKIP() << CheckReachable(driver(), 1, 0).message();
  MappedMemory mapped = MakeMapped(granularity());
  EXPECT_EQ(AccessOf(mapped.address(), DeviceLocation(1)), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_TRUE(mapped.mapping().SetAccess(DeviceLocation(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
  FillAndWait(mapped.address(), 0x21, 4096);
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
  const std::vector<CUmemAccessDesc> access = {kOwner, {DeviceLocation(1), CU_MEM_ACCESS_FLAGS_PROT_READ}};
  ASSERT_EQ(SetAccess(mapped.address(), granularity(), access), CUDA_SUCCESS);
  for (const CUmemAccessDesc& one : access) EXPECT_EQ(AccessOf(mapped.address(), one.location), one.flags);
  FillAndWait(mapped.address(), 0x21, 4096);
  PrimaryContext peer = PrimaryContext::Retain(driver(), 1).value();
  ContextGuard current(driver(), peer);
  EXPECT_EQ(Read(mapped.address(), 4096), std::vector<uint8_t>(4096, 0x21));
  if (!OnEmulator()) return;  // tests/pool/peer_write_test.cc tries what a write costs
  EXPECT_EQ(cuda().cuMemsetD8Async(mapped.address(), 1, 4096, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Access, HostMemoryOfANumaNodeServesTheDevice) {
  if (!DescribeDevice(driver(), 0).value().host_numa_memory) GTEST_SKIP() << "no VMM memory on host NUMA nodes";
  MappedMemory mapped(driver(), NumaNode(), GranularityAt(driver(), NumaNode()), 0);
  Fill(mapped.address(), 0x66, 4096);
  EXPECT_EQ(Read(mapped.address(), 4096), std::vector<uint8_t>(4096, 0x66));
}

TEST_F(Access, TheCpuReadsAndWritesHostMemoryThatIsGrantedToIt) {
  if (!DescribeDevice(driver(), 0).value().host_numa_memory) GTEST_SKIP() << "no VMM memory on host NUMA nodes";
  MappedMemory mapped(driver(), NumaNode(), GranularityAt(driver(), NumaNode()), 0);
  ASSERT_TRUE(mapped.mapping().SetAccess(NumaNode(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
  std::memset(reinterpret_cast<void*>(mapped.address()), 0x3c, 4096);
  EXPECT_EQ(Read(mapped.address(), 4096), std::vector<uint8_t>(4096, 0x3c));
}

TEST_F(Access, TheCpuIsNotGrantedDeviceMemory) {
  MappedMemory mapped = MakeMapped(granularity());
  EXPECT_FALSE(mapped.mapping().SetAccess(NumaNode(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
}

TEST_F(Access, TheCurrentNumaNodeIsNoLocationForMemory) {
  const CUmemAllocationProp properties = PropertiesAt({.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, .id = 0});
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuda().cuMemCreate(&handle, granularity(), &properties, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Access, AnImportedFileDescriptorIsTheSameMemory) {
  MappedMemory mapped = MakeMapped(granularity());
  Fill(mapped.address(), 0x19, 4096);
  const FileDescriptor descriptor = mapped.physical().Export().value();
  MappedMemory imported(PhysicalMemory::Import(driver(), descriptor, granularity()).value(), 0);
  EXPECT_EQ(Read(imported.address(), 4096), std::vector<uint8_t>(4096, 0x19));
  ExpectOk(imported.Release());
}

TEST_F(Access, MemoryMadeWithoutAHandleTypeIsNotExported) {
  CUmemAllocationProp properties = PropertiesAt(DeviceLocation(0));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  PhysicalMemory memory = PhysicalMemory::Create(driver(), granularity(), properties).value();
  EXPECT_FALSE(memory.Export().ok());
}

}  // namespace
}  // namespace commpool::internal::testing
