// A program's own host memory, registered for devices.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 4 * kPage;
constexpr unsigned kForAll = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

class HostRegistration : public ConformanceTest {
 protected:
  uint8_t* memory() { return static_cast<uint8_t*>(memory_.get()); }
  CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(memory()); }

 private:
  std::unique_ptr<void, decltype(&std::free)> memory_{std::aligned_alloc(kPage, kBytes), &std::free};
};

TEST_F(HostRegistration, LetsTheDeviceUseTheMemoryAtTheCpusAddresses) {
  ASSERT_EQ(cuda().cuMemHostRegister(memory(), kBytes, kForAll), CUDA_SUCCESS);
  for (const size_t offset : {size_t{0}, kPage}) {
    CUdeviceptr of_device = 0;
    EXPECT_EQ(cuda().cuMemHostGetDevicePointer(&of_device, memory() + offset, 0), CUDA_SUCCESS);
    EXPECT_EQ(of_device, address() + offset);
  }
  Fill(address(), 0x3c, kBytes);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(memory()[kBytes - 1], 0x3c);
  std::memset(memory(), 0x4d, kBytes);
  EXPECT_EQ(Read(address(), kBytes), std::vector<uint8_t>(kBytes, 0x4d));
  EXPECT_EQ(cuda().cuMemHostUnregister(memory()), CUDA_SUCCESS);
}

TEST_F(HostRegistration, IsRefusedASecondTime) {
  ASSERT_EQ(cuda().cuMemHostRegister(memory(), kBytes, kForAll), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemHostRegister(memory(), kBytes, kForAll), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuda().cuMemHostUnregister(memory()), CUDA_SUCCESS);
}

TEST_F(HostRegistration, EndsOnce) {
  EXPECT_EQ(cuda().cuMemHostUnregister(memory()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_EQ(cuda().cuMemHostRegister(memory(), kBytes, kForAll), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemHostUnregister(memory()), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemHostUnregister(memory()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_EQ(cuda().cuMemHostRegister(memory(), kBytes, kForAll), CUDA_SUCCESS) << "and may begin again";
  EXPECT_EQ(cuda().cuMemHostUnregister(memory()), CUDA_SUCCESS);
}

TEST_F(HostRegistration, OfNothingAndWithUnknownFlagsIsRefused) {
  EXPECT_EQ(cuda().cuMemHostRegister(nullptr, kBytes, kForAll), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemHostRegister(memory(), 0, kForAll), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuMemHostRegister(memory(), kBytes, 0x100), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostRegistration, MemoryWithoutItHasNoDevicePointer) {
  CUdeviceptr of_device = 0;
  EXPECT_EQ(cuda().cuMemHostGetDevicePointer(&of_device, memory(), 0), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace commpool::internal::testing
