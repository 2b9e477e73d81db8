#include "tests/driver/conformance/conformance_fixture.h"

#include <utility>

#include "tools/common/launch.h"

namespace commpool::internal::testing {

uint64_t GranularityAt(const Driver& driver, CUmemLocation location) {
  const CUmemAllocationProp properties = PropertiesAt(location);
  size_t granularity = 0;
  EXPECT_EQ(driver.cuda.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            CUDA_SUCCESS);
  return granularity;
}

Result<MappedMemory> MappedMemory::Make(const Driver& driver, CUmemLocation location, uint64_t bytes,
                                        std::optional<int> granted_device) {
  MappedMemory memory;
  Result<AddressRange> range = AddressRange::Reserve(driver, bytes, 0);
  if (!range.ok()) return range.status();
  memory.range_ = std::move(*range);
  Result<PhysicalMemory> physical = PhysicalMemory::Create(driver, bytes, PropertiesAt(location));
  if (!physical.ok()) return physical.status();
  memory.physical_ = std::move(*physical);
  Result<Mapping> mapping = Mapping::Map(driver, memory.range_.address(), memory.physical_);
  if (!mapping.ok()) return mapping.status();
  memory.mapping_ = std::move(*mapping);
  if (granted_device) {
    Status status = memory.mapping_.SetAccess(DeviceLocation(*granted_device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (!status.ok()) return status;
  }
  return memory;
}

ConformanceTest::~ConformanceTest() {
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  FreeFinishedLaunches();
}

MappedMemory ConformanceTest::MakeMapped(uint64_t bytes, std::optional<int> granted_device) {
  return MappedMemory::Make(driver(), DeviceLocation(0), bytes, granted_device).value();
}

void ConformanceTest::Fill(CUdeviceptr address, uint8_t value, uint64_t bytes, CUstream stream) {
  EXPECT_EQ(cuda().cuMemsetD8Async(address, value, bytes, stream), CUDA_SUCCESS);
}

std::vector<uint8_t> ConformanceTest::Read(CUdeviceptr address, uint64_t bytes) {
  std::vector<uint8_t> values(bytes);
  EXPECT_EQ(cuda().cuMemcpyDtoH(values.data(), address, bytes), CUDA_SUCCESS);
  return values;
}

}  // namespace commpool::internal::testing
