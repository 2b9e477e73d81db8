// Shared by the driver's conformance tests: a device's context for each test, and memory.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "src/library/driver/handles.h"
#include "tests/driver/device_fixture.h"

namespace commpool::internal::testing {

constexpr CUmemLocation DeviceLocation(int device) { return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}; }
constexpr CUmemLocation NumaLocation(int node) { return {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node}; }

uint64_t GranularityAt(const Driver& driver, CUmemLocation location);

// One physical handle, mapped; one device or nobody has access.
class MappedMemory {
 public:
  static Result<MappedMemory> Make(const Driver& driver, CUmemLocation location, uint64_t bytes,
                                   std::optional<int> granted_device);

  CUdeviceptr address() const { return mapping_.address(); }
  uint64_t bytes() const { return mapping_.bytes(); }
  PhysicalMemory& physical() { return physical_; }
  Mapping& mapping() { return mapping_; }

 private:
  AddressRange range_;
  PhysicalMemory physical_;
  Mapping mapping_;
};

// A test on device 0. In the end the device must have finished all work.
class ConformanceTest : public DeviceTest {
 protected:
  ~ConformanceTest() override;

  uint64_t granularity() const { return GranularityAt(driver(), DeviceLocation(0)); }

  MappedMemory MakeMapped(uint64_t bytes, std::optional<int> granted_device = 0);
  CUstream MakeStream(unsigned int flags = CU_STREAM_DEFAULT) { return DeviceTest::MakeStream(flags); }
  CUevent MakeEvent(unsigned int flags = CU_EVENT_DISABLE_TIMING) { return DeviceTest::MakeEvent(flags); }

  void Fill(CUdeviceptr address, uint8_t value, uint64_t bytes, CUstream stream = nullptr);
  std::vector<uint8_t> Read(CUdeviceptr address, uint64_t bytes);
};

}  // namespace commpool::internal::testing
