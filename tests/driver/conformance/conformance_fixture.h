// Shared by the driver's conformance tests: a device's context for each test, memory, and work that takes as long as a
// test wants.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "src/library/base/try.h"
#include "src/library/driver/handles.h"
#include "tests/driver/device_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {

constexpr CUmemLocation DeviceLocation(int device) { return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}; }
constexpr CUmemLocation NumaLocation(int node) { return {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node}; }

inline uint64_t GranularityAt(const Driver& driver, CUmemLocation location) {
  const CUmemAllocationProp properties = PropertiesAt(location);
  return Get(driver.cuda.cuMemGetAllocationGranularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

// One physical handle, mapped; one device or nobody has access. What the driver refuses is thrown.
class MappedMemory {
 public:
  MappedMemory(PhysicalMemory physical, std::optional<int> granted_device)
      : range_(AddressRange::Reserve(physical.driver(), physical.bytes(), 0).value()),
        physical_(std::move(physical)),
        mapping_(Mapping::Map(range_.driver(), range_.address(), physical_).value()) {
    if (!granted_device) return;
    mapping_.SetAccess(DeviceLocation(*granted_device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).or_throw();
  }
  MappedMemory(const Driver& driver, CUmemLocation location, uint64_t bytes, std::optional<int> granted_device)
      : MappedMemory(PhysicalMemory::Create(driver, bytes, PropertiesAt(location)).value(), granted_device) {}

  CUdeviceptr address() const { return mapping_.address(); }
  uint64_t bytes() const { return mapping_.bytes(); }
  PhysicalMemory& physical() { return physical_; }
  Mapping& mapping() { return mapping_; }
  Status Release() {
    COMMPOOL_TRY(mapping_.Release());
    COMMPOOL_TRY(physical_.Release());
    return range_.Release();
  }

 private:
  AddressRange range_;
  PhysicalMemory physical_;
  Mapping mapping_;
};

// target = source + 1, for each byte, in stream order.
inline void AddOne(const Driver& driver, CUdeviceptr source, CUdeviceptr target, uint64_t bytes, CUstream stream) {
  const auto add = [bytes](const std::vector<const void*>& reads, const std::vector<void*>& writes) {
    const auto* const from = static_cast<const uint8_t*>(reads.at(0));
    std::transform(from, from + bytes, static_cast<uint8_t*>(writes.at(0)),
                   [](uint8_t value) { return static_cast<uint8_t>(value + 1); });
  };
  ExpectOk(Launch(driver, stream, {{source, bytes}}, {{target, bytes}}, add));
}

// A test on device 0. In the end the device must have finished all work.
class ConformanceTest : public DeviceTest {
 protected:
  ~ConformanceTest() override {
    LetGo();
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    FreeFinishedLaunches();
  }

  uint64_t granularity() const { return GranularityAt(driver(), DeviceLocation(0)); }

  MappedMemory MakeMapped(uint64_t bytes, std::optional<int> granted_device = 0) {
    return MappedMemory(driver(), DeviceLocation(0), bytes, granted_device);
  }
  CUstream MakeStream(unsigned int flags = CU_STREAM_DEFAULT) { return DeviceTest::MakeStream(flags); }
  CUevent MakeEvent(unsigned int flags = CU_EVENT_DISABLE_TIMING) { return DeviceTest::MakeEvent(flags); }
  uint64_t FreeBytes() { return Get(cuda().cuMemGetInfo, nullptr); }

  template <typename T>
  T AttributeOf(CUdeviceptr address, CUpointer_attribute attribute) {
    T value;
    std::memset(&value, 0x77, sizeof(value));  // no answer
    EXPECT_EQ(cuda().cuPointerGetAttribute(&value, attribute, address), CUDA_SUCCESS) << attribute;
    return value;
  }

  void Fill(CUdeviceptr address, uint8_t value, uint64_t bytes, CUstream stream = nullptr) {
    EXPECT_EQ(cuda().cuMemsetD8Async(address, value, bytes, stream), CUDA_SUCCESS);
  }
  void FillAndWait(CUdeviceptr address, uint8_t value, uint64_t bytes) {
    Fill(address, value, bytes);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  std::vector<uint8_t> Read(CUdeviceptr address, uint64_t bytes) {
    std::vector<uint8_t> values(bytes);
    EXPECT_EQ(cuda().cuMemcpyDtoH(values.data(), address, bytes), CUDA_SUCCESS);
    return values;
  }

  // Work that runs until LetGo or the test's end; once in a test.
  void Hold(CUstream stream) {
    const auto wait = [](void* gate) { static_cast<std::promise<void>*>(gate)->get_future().wait(); };
    EXPECT_EQ(cuda().cuLaunchHostFunc(stream, wait, &gate_), CUDA_SUCCESS);
  }
  void LetGo() {
    if (!std::exchange(is_open_, true)) gate_.set_value();
  }

 private:
  std::promise<void> gate_;
  bool is_open_ = false;
};

}  // namespace commpool::internal::testing
