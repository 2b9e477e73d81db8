// Shared by the tests of backings: makes a backing, and uses its memory from a device as a kernel would.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/library/backing/backing_table.h"
#include "tests/stream/stream_fixture.h"

namespace commpool::internal::testing {

// Device memory, and host memory of the node nearest to the device.
Placement OnDevice(int device = 0);
Placement OnHost(int node = -1);

// Functions of a user that take memory from cuMemAlloc. LastUserCall() has the arguments of the last call.
UserAllocator WorkingUserAllocator();
struct UserCall {
  ptrdiff_t bytes = 0;
  int device = -1;
  CUstream stream = nullptr;
  void* context = nullptr;
};
UserCall& LastUserCall();

// The tests' driver, with another answer for one attribute of every device.
Driver DriverWhere(CUdevice_attribute attribute, int answer);

class BackingTest : public DriverTest {
 protected:
  BackingTest();
  // The driver remembers refused fabric handles for good. Each test must find out for itself.
  void SetUp() override { driver().refusals->fabric_handles = false; }
  // Grants of cudaMalloc memory belong to the process and outlive segments. No test may see those of another.
  void TearDown() override;

  const CudaDriver& cuda() const { return driver().cuda; }

  // Fails the test, and throws, where the backing cannot be made.
  std::unique_ptr<Backing> Make(const BackingRequest& request) { return MakeBacking(driver(), request).value(); }

  // Makes a call fail while `act` runs, and expects that its status names the call.
  static void ExpectFailureOf(const Fault& fault, const std::function<Status()>& act,
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());
  static void ExpectFailureOf(const char* call, const std::function<Status()>& act, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    ExpectFailureOf({.call = call, .result = CUDA_ERROR_UNKNOWN}, act, file, line);
  }

  // Uses memory from a device, by copies and memsets. Returns the driver's first error, else CUDA_SUCCESS.
  CUresult Fill(int device, CUdeviceptr address, uint8_t value, uint64_t bytes);
  CUresult Read(int device, CUdeviceptr address, std::vector<uint8_t>* bytes);
  std::vector<uint8_t> Read(int device, CUdeviceptr address, uint64_t bytes);

  // The flags by which a device, or a node of the host, may use mapped memory.
  unsigned long long AccessOf(int id, CUdeviceptr address, CUmemLocationType type = CU_MEM_LOCATION_TYPE_DEVICE);

  // Another device that reaches device 0's memory; -1 where there is none.
  int ReachablePeer() const;
};

}  // namespace commpool::internal::testing
