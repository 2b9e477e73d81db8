#include "tests/driver/device_fixture.h"

namespace commpool::internal::testing {

CUmemAllocationProp PropertiesAt(CUmemLocation location) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = location;
  return properties;
}

DeviceTest::DeviceTest(int device) : context_(PrimaryContext::Retain(driver(), device).value()) {
  current_.emplace(driver(), context_);
}

DeviceTest::~DeviceTest() {
  for (const CUevent event : events_) EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
  // Before the streams go: the emulator reports the end of a stream that memory still names.
  for (const CUdeviceptr address : allocations_) EXPECT_EQ(cuda().cuMemFree(address), CUDA_SUCCESS);
  for (const CUstream stream : streams_) EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

CUdeviceptr DeviceTest::Allocate(uint64_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAlloc(&address, bytes), CUDA_SUCCESS);
  allocations_.push_back(address);
  return address;
}

CUstream DeviceTest::MakeStream(unsigned int flags) {
  CUstream stream = nullptr;
  EXPECT_EQ(cuda().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
  streams_.push_back(stream);
  return stream;
}

CUevent DeviceTest::MakeEvent(unsigned int flags) {
  CUevent event = nullptr;
  EXPECT_EQ(cuda().cuEventCreate(&event, flags), CUDA_SUCCESS);
  events_.push_back(event);
  return event;
}

}  // namespace commpool::internal::testing
