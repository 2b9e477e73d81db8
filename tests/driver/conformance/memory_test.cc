// cudaMalloc memory and pinned memory, pointer attributes, copies and memsets.
#include <cuda.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

class Memory : public ConformanceTest {
 protected:
  template <typename T>
  CUresult Ask(CUpointer_attribute attribute, CUdeviceptr address, T& value) {
    return cuda().cuPointerGetAttribute(&value, attribute, address);
  }
};

std::vector<uint8_t> Pattern(uint64_t bytes) {
  std::vector<uint8_t> values(bytes);
  std::iota(values.begin(), values.end(), uint8_t{1});
  return values;
}

TEST_F(Memory, RefusesZeroBytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, MoreThanTheDeviceHasIsOutOfMemory) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  ASSERT_EQ(cuda().cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_LE(free_bytes, total_bytes);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAlloc(&address, 2 * total_bytes), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Memory, IsAlignedForAnyType) { EXPECT_EQ(Allocate(1) % 256, 0u); }

TEST_F(Memory, IsFreedOnlyOnce) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&address, 4096), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, NeedsACurrentContext) {
  ContextGuard none(driver(), nullptr);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAlloc(&address, 4096), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Memory, APointerTellsItsAllocation) {
  const CUdeviceptr base = Allocate(8192);
  CUdeviceptr start = 0;
  size_t bytes = 0;
  ASSERT_EQ(cuda().cuMemGetAddressRange(&start, &bytes, base + 100), CUDA_SUCCESS);
  EXPECT_EQ(start, base);
  EXPECT_GE(bytes, 8192u);
  ASSERT_EQ(Ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, base + 100, start), CUDA_SUCCESS);
  EXPECT_EQ(start, base);
}

// Answers of an H200 (13.0).
TEST_F(Memory, APointerTellsWhatItsMemoryIsNot) {
  MappedMemory mapped = MakeMapped(granularity());
  void* pinned = nullptr;
  ASSERT_EQ(cuda().cuMemAllocHost(&pinned, 4096), CUDA_SUCCESS);
  const CUdeviceptr plain = Allocate(4096);
  for (const CUdeviceptr address : {plain + 100, mapped.address(), reinterpret_cast<CUdeviceptr>(pinned)}) {
    unsigned managed = 7;
    unsigned shared = 7;
    ASSERT_EQ(Ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, managed), CUDA_SUCCESS);
    ASSERT_EQ(Ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address, shared), CUDA_SUCCESS);
    EXPECT_EQ(managed, 0u);
    EXPECT_EQ(shared, address == plain + 100 ? 1u : 0u);
  }
  EXPECT_EQ(cuda().cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(Memory, APointerTellsItsDeviceAndType) {
  MappedMemory mapped = MakeMapped(granularity());
  for (const CUdeviceptr address : {Allocate(4096), mapped.address() + 4096}) {
    unsigned type = 0;
    int device = -1;
    ASSERT_EQ(Ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, type), CUDA_SUCCESS);
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
    ASSERT_EQ(Ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, device), CUDA_SUCCESS);
    EXPECT_EQ(device, 0);
  }
}

TEST_F(Memory, AForeignPointerTellsNothing) {
  unsigned type = 0;
  int on_the_stack = 0;
  EXPECT_EQ(Ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&on_the_stack), type),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, APinnedPointerIsTheHostsToo) {
  void* pinned = nullptr;
  ASSERT_EQ(cuda().cuMemAllocHost(&pinned, 4096), CUDA_SUCCESS);
  std::memset(pinned, 0x11, 4096);
  unsigned type = 0;
  EXPECT_EQ(Ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(pinned), type), CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(Read(reinterpret_cast<CUdeviceptr>(pinned), 4096), std::vector<uint8_t>(4096, 0x11));
  EXPECT_EQ(cuda().cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(Memory, ComesBackAsItWasCopied) {
  const CUdeviceptr address = Allocate(4096);
  const std::vector<uint8_t> values = Pattern(4096);
  ASSERT_EQ(cuda().cuMemcpyHtoD(address, values.data(), values.size()), CUDA_SUCCESS);
  EXPECT_EQ(Read(address, 4096), values);
}

TEST_F(Memory, IsCopiedWithinTheDeviceInStreamOrder) {
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr from = Allocate(4096);
  const CUdeviceptr to = Allocate(4096);
  Fill(from, 7, 4096, stream);
  ASSERT_EQ(cuda().cuMemcpyDtoDAsync(to, from, 4096, stream), CUDA_SUCCESS);
  Fill(from, 8, 4096, stream);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(to, 4096), std::vector<uint8_t>(4096, 7));
}

TEST_F(Memory, IsCopiedWithoutSayingWhereItLies) {
  const CUdeviceptr address = Allocate(4096);
  const std::vector<uint8_t> values = Pattern(4096);
  ASSERT_EQ(cuda().cuMemcpy(address, reinterpret_cast<CUdeviceptr>(values.data()), 4096), CUDA_SUCCESS);
  EXPECT_EQ(Read(address, 4096), values);
}

TEST_F(Memory, IsSetInWordsOf32Bits) {
  const CUdeviceptr address = Allocate(16);
  ASSERT_EQ(cuda().cuMemsetD32Async(address, 0x01020304, 4, nullptr), CUDA_SUCCESS);
  std::array<uint32_t, 4> words = {};
  ASSERT_EQ(cuda().cuMemcpyDtoH(words.data(), address, sizeof(words)), CUDA_SUCCESS);
  EXPECT_EQ(words, (std::array<uint32_t, 4>{0x01020304, 0x01020304, 0x01020304, 0x01020304}));
}

TEST_F(Memory, IsCopiedBetweenDevices) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const CUdeviceptr from = Allocate(4096);
  Fill(from, 0x42, 4096);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  PrimaryContext peer = PrimaryContext::Retain(driver(), 1).value();
  ContextGuard current(driver(), peer);
  CUdeviceptr to = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&to, 4096), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemcpyPeerAsync(to, peer.get(), from, context(), 4096, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Read(to, 4096), std::vector<uint8_t>(4096, 0x42));
  EXPECT_EQ(cuda().cuMemFree(to), CUDA_SUCCESS);
}

// A program's own host memory, registered for devices.

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
