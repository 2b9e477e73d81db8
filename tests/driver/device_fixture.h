// A test on one device. The device's primary context is current. What the test made with Make... is released at its
// end.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {

// Pinned memory at a location, exportable as a file descriptor.
inline CUmemAllocationProp PropertiesAt(CUmemLocation location) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = location;
  return properties;
}

// What a driver's function writes to its first argument. It must succeed; a failure tells the function by its types.
template <typename Value, typename... Parameters>
Value Get(CUresult (*function)(Value*, Parameters...), std::type_identity_t<Parameters>... arguments) {
  Value value = {};
  EXPECT_EQ(function(&value, arguments...), CUDA_SUCCESS) << __PRETTY_FUNCTION__;
  return value;
}

class DeviceTest : public DriverTest {
 protected:
  explicit DeviceTest(int device = 0) : context_(PrimaryContext::Retain(driver(), device).value()) {}
  // The derived fixture must have waited for the device.
  ~DeviceTest() override {
    for (const CUevent event : events_) EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
    // Before the streams go: the emulator reports the end of a stream that memory still names.
    for (const CUdeviceptr address : allocations_) EXPECT_EQ(cuda().cuMemFree(address), CUDA_SUCCESS);
    for (const CUstream stream : streams_) EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  }

  const CudaDriver& cuda() const { return driver().cuda; }
  CUcontext context() const { return context_.get(); }

  CUdeviceptr Allocate(uint64_t bytes) {
    EXPECT_EQ(cuda().cuMemAlloc(&allocations_.emplace_back(), bytes), CUDA_SUCCESS);
    return allocations_.back();
  }
  CUstream MakeStream(unsigned int flags) {
    EXPECT_EQ(cuda().cuStreamCreate(&streams_.emplace_back(), flags), CUDA_SUCCESS);
    return streams_.back();
  }
  CUevent MakeEvent(unsigned int flags) {
    EXPECT_EQ(cuda().cuEventCreate(&events_.emplace_back(), flags), CUDA_SUCCESS);
    return events_.back();
  }
  CUstreamCaptureStatus StatusOf(CUstream stream) {
    auto status = static_cast<CUstreamCaptureStatus>(3);  // no answer
    EXPECT_EQ(cuda().cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    return status;
  }
  // Makes `to` wait for `from`; in captures a fork, or a join.
  void Order(CUstream from, CUstream to) {
    const CUevent event = MakeEvent(CU_EVENT_DISABLE_TIMING);
    EXPECT_EQ(cuda().cuEventRecord(event, from), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamWaitEvent(to, event, 0), CUDA_SUCCESS);
  }

 private:
  PrimaryContext context_;
  ContextGuard current_{driver(), context_};
  std::vector<CUdeviceptr> allocations_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
};

}  // namespace commpool::internal::testing
