// cudaMalloc memory and pinned memory, pointer attributes, copies and memsets.
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

using Memory = ConformanceTest;

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
  size_t total_bytes = 0;
  EXPECT_LE(Get(cuda().cuMemGetInfo, &total_bytes), total_bytes);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAlloc(&address, 2 * total_bytes), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Memory, IsAlignedForAnyType) { EXPECT_EQ(Allocate(1) % 256, 0u); }

TEST_F(Memory, IsFreedOnlyOnce) {
  const CUdeviceptr address = Get(cuda().cuMemAlloc, 4096);
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
  EXPECT_EQ(AttributeOf<CUdeviceptr>(base + 100, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), base);
}

// Answers of an H200 (13.0).
TEST_F(Memory, APointerTellsWhatItsMemoryIsNot) {
  MappedMemory mapped = MakeMapped(granularity());
  const PinnedMemory pinned = PinnedMemory::Make(driver(), 4096).value();
  const CUdeviceptr plain = Allocate(4096);
  for (const CUdeviceptr address : {plain + 100, mapped.address(), pinned.address()}) {
    EXPECT_EQ(AttributeOf<unsigned>(address, CU_POINTER_ATTRIBUTE_IS_MANAGED), 0u);
    EXPECT_EQ(AttributeOf<unsigned>(address, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE),
              address == plain + 100 ? 1u : 0u);
  }
}

TEST_F(Memory, APointerTellsItsDeviceAndType) {
  MappedMemory mapped = MakeMapped(granularity());
  for (const CUdeviceptr address : {Allocate(4096), mapped.address() + 4096}) {
    EXPECT_EQ(AttributeOf<unsigned>(address, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), unsigned{CU_MEMORYTYPE_DEVICE});
    EXPECT_EQ(AttributeOf<int>(address, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  }
}

TEST_F(Memory, AForeignPointerTellsNothing) {
  unsigned type = 0;
  int on_the_stack = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(&on_the_stack);
  EXPECT_EQ(cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, APinnedPointerIsTheHostsToo) {
  PinnedMemory pinned = PinnedMemory::Make(driver(), 4096).value();
  std::memset(pinned.value().object, 0x11, 4096);
  EXPECT_EQ(AttributeOf<unsigned>(pinned.address(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE), unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(Read(pinned.address(), 4096), std::vector<uint8_t>(4096, 0x11));
  ExpectOk(pinned.Release());
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
  FillAndWait(from, 0x42, 4096);
  PrimaryContext peer = PrimaryContext::Retain(driver(), 1).value();
  ContextGuard current(driver(), peer);
  const CUdeviceptr to = Get(cuda().cuMemAlloc, 4096);
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
  CUresult Register() { return cuda().cuMemHostRegister(memory(), kBytes, kForAll); }
  CUresult Unregister() { return cuda().cuMemHostUnregister(memory()); }
  uint8_t* memory() { return static_cast<uint8_t*>(memory_.get()); }
  CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(memory()); }

 private:
  std::unique_ptr<void, decltype(&std::free)> memory_{std::aligned_alloc(kPage, kBytes), &std::free};
};

TEST_F(HostRegistration, LetsTheDeviceUseTheMemoryAtTheCpusAddresses) {
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  for (const size_t offset : {size_t{0}, kPage}) {
    EXPECT_EQ(Get(cuda().cuMemHostGetDevicePointer, memory() + offset, 0), address() + offset);
  }
  FillAndWait(address(), 0x3c, kBytes);
  EXPECT_EQ(memory()[kBytes - 1], 0x3c);
  std::memset(memory(), 0x4d, kBytes);
  EXPECT_EQ(Read(address(), kBytes), std::vector<uint8_t>(kBytes, 0x4d));
  EXPECT_EQ(Unregister(), CUDA_SUCCESS);
}

TEST_F(HostRegistration, IsRefusedASecondTime) {
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  EXPECT_EQ(Register(), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(Unregister(), CUDA_SUCCESS);
}

TEST_F(HostRegistration, EndsOnce) {
  EXPECT_EQ(Unregister(), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_EQ(Register(), CUDA_SUCCESS);
  EXPECT_EQ(Unregister(), CUDA_SUCCESS);
  EXPECT_EQ(Unregister(), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_EQ(Register(), CUDA_SUCCESS) << "and may begin again";
  EXPECT_EQ(Unregister(), CUDA_SUCCESS);
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
