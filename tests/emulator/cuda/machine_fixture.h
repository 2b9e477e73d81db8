// Shared by tests of the emulated machine: a machine that the test declares, and streams that stop until the test lets
// them go on.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/driver/device_fixture.h"
#include "tests/driver/emulator_extension.h"

namespace commpool::internal::testing {

// Makes the emulator the driver and declares its machine. Call it before the first use of the driver, in
// SetUpTestSuite.
void DeclareMachine(const char* description);

// Whether one of the lines contains the text.
bool AnyContains(const std::vector<std::string>& lines, const std::string& text);

// An operation that stops its stream until it is opened.
class Gate {
 public:
  // Declares that it writes `range`, if there is one.
  explicit Gate(CUstream stream, std::optional<commpoolEmulatorRange> range = std::nullopt);
  ~Gate() { Open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Waits until it is at the head of its stream, then lets the stream go on. Later calls do nothing.
  void Open(CUresult result = CUDA_SUCCESS);

 private:
  struct State;
  State* state_;  // owned; the worker's callback uses it until the gate is open
};

// Makes a device's primary context current, for a block.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, int device)
      : context_(PrimaryContext::Retain(driver, device).value()), guard_(driver, context_) {}

 private:
  PrimaryContext context_;
  ContextGuard guard_;
};

// Memory of a device at addresses of its own; given back at the end of the block, unless it was before.
class MappedMemory {
 public:
  enum class Access { kOfItsDevice, kNone };
  MappedMemory(const Driver& driver, const CUmemAllocationProp& properties, uint64_t bytes,
               Access access = Access::kOfItsDevice);

  CUdeviceptr address() const { return range_.address(); }
  PhysicalMemory& physical() { return physical_; }
  Mapping& mapping() { return mapping_; }
  void Unmap() { EXPECT_TRUE(mapping_.Release().ok()); }

 private:
  AddressRange range_;
  PhysicalMemory physical_;
  Mapping mapping_;
};

// A test on one device of the emulated machine. The device may be lost.
class MachineTest : public DeviceTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine(""); }

  explicit MachineTest(int device = 0) : DeviceTest(device) {}
  ~MachineTest() override { cuda().cuCtxSynchronize(); }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("the test is about it alone"); }

  static constexpr uint64_t kUnit = uint64_t{2} << 20;  // the granularity

  CUdeviceptr Allocate(uint64_t bytes = kUnit) { return DeviceTest::Allocate(bytes); }
  CUstream MakeStream(unsigned int flags = CU_STREAM_NON_BLOCKING) { return DeviceTest::MakeStream(flags); }
  CUevent MakeEvent(unsigned int flags = CU_EVENT_DEFAULT) { return DeviceTest::MakeEvent(flags); }
  static CUmemAllocationProp Properties(int device = 0) {
    return PropertiesAt({.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device});
  }
  MappedMemory Map(int device = 0, MappedMemory::Access access = MappedMemory::Access::kOfItsDevice) {
    return {driver(), Properties(device), kUnit, access};
  }
  // What the test gives back.
  CUmemGenericAllocationHandle CreateMemory(const CUmemAllocationProp& properties, uint64_t bytes = kUnit) {
    return Get(cuda().cuMemCreate, bytes, &properties, 0);
  }
  CUdeviceptr NewMemory(uint64_t bytes = kUnit) { return Get(cuda().cuMemAlloc, bytes); }
  CUstream NewStream(unsigned int flags = CU_STREAM_NON_BLOCKING) { return Get(cuda().cuStreamCreate, flags); }

  static double Now() { return COMMPOOL_EXTENSION(commpoolEmulatorNow)(); }
  // A new event behind what the stream has now, and the virtual time between two.
  CUevent Record(CUstream stream);
  float MicrosecondsBetween(CUevent start, CUevent end) { return Get(cuda().cuEventElapsedTime, start, end) * 1000; }
  // Makes `to` wait for what `from` has now.
  void Order(CUstream from, CUstream to);

  // A kernel that takes this virtual time and does nothing with its ranges.
  CUresult Launch(CUstream stream, std::vector<commpoolEmulatorRange> writes, double duration_us = 1,
                  std::vector<commpoolEmulatorRange> reads = {});
  // Sets memory and waits. The other reads its first byte.
  CUresult Fill(CUdeviceptr address, uint8_t value, uint64_t bytes);
  uint8_t FirstByte(CUdeviceptr address);
};

}  // namespace commpool::internal::testing
