// A test on one device. The device's primary context is current. What the test made with Make... is released at its
// end.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

// Pinned memory at a location, exportable as a file descriptor.
CUmemAllocationProp PropertiesAt(CUmemLocation location);

class DeviceTest : public DriverTest {
 protected:
  explicit DeviceTest(int device = 0);
  // The derived fixture must have waited for the device.
  ~DeviceTest() override;

  const CudaDriver& cuda() const { return driver().cuda; }
  CUcontext context() const { return context_.get(); }

  CUdeviceptr Allocate(uint64_t bytes);
  CUstream MakeStream(unsigned int flags);
  CUevent MakeEvent(unsigned int flags);

 private:
  PrimaryContext context_;
  std::optional<ContextGuard> current_;
  std::vector<CUdeviceptr> allocations_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
};

}  // namespace commpool::internal::testing
