// Stream-ordered memory where hardware gives no answer: uses outside its life, leaks, modelled costs.

#include <limits>

#include "tests/driver/capturing.h"
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = 1 << 20;

class AsyncMemoryRules : public Capturing<MachineTest> {
 protected:
  ~AsyncMemoryRules() override { SetThreshold(0); }

  CUdeviceptr AllocateOn(CUstream stream, uint64_t bytes = kBytes) {
    return Get(cuda().cuMemAllocAsync, bytes, stream);
  }
  void FreeOn(CUstream stream, CUdeviceptr address) { EXPECT_EQ(cuda().cuMemFreeAsync(address, stream), CUDA_SUCCESS); }
  CUmemoryPool Pool() { return Get(cuda().cuDeviceGetDefaultMemPool, 0); }
  void SetThreshold(cuuint64_t bytes) {
    EXPECT_EQ(cuda().cuMemPoolSetAttribute(Pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  bool TakeReport(const char* text) { return AnyContains(TakeReports(), text); }
  // Virtual time of a loop that allocates, frees and waits.
  double TimeOfLoop(CUstream stream) {
    const double start = Now();
    for (int round = 0; round < 10; ++round) {
      FreeOn(stream, AllocateOn(stream, 64 << 20));
      EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    }
    return Now() - start;
  }

  const CUstream stream_ = MakeStream();
};

TEST_F(AsyncMemoryRules, ACaptureIsToldThatNodesOfMemoryAreNotSupported) {
  const CUdeviceptr before = AllocateOn(stream_);
  Begin(stream_);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuda().cuMemAllocAsync(&address, kBytes, stream_), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuda().cuMemAllocFromPoolAsync(&address, kBytes, Pool(), stream_), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuda().cuMemFreeAsync(before, stream_), CUDA_ERROR_NOT_SUPPORTED);
  const CUstream other = MakeStream();
  FreeOn(other, AllocateOn(other));
  End(stream_);  // the capture goes on
  FreeOn(stream_, before);
}

TEST_F(AsyncMemoryRules, UseAfterTheFreeIsReported) {
  const CUdeviceptr address = AllocateOn(stream_);
  FreeOn(stream_, address);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, stream_), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReport("use of stream-ordered memory outside its life"));
}

TEST_F(AsyncMemoryRules, UseBeforeTheFreeIsNot) {
  const CUdeviceptr address = AllocateOn(stream_);
  Gate gate(stream_);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, stream_), CUDA_SUCCESS);
  FreeOn(stream_, address);
  gate.Open();
}

TEST_F(AsyncMemoryRules, UseOnAStreamThatDidNotWaitForTheAllocationIsReported) {
  const CUstream other = MakeStream();
  Gate gate(stream_);
  const CUdeviceptr address = AllocateOn(stream_);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, other), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReport("not ordered behind its allocation"));
  Order(stream_, other);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, other), CUDA_SUCCESS);
  gate.Open();
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  FreeOn(stream_, address);
}

TEST_F(AsyncMemoryRules, UsePastTheEndIsReported) {
  const CUdeviceptr address = AllocateOn(stream_, 1000);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, 1001, stream_), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReport("runs past the end of its allocation"));
  FreeOn(stream_, address);
}

TEST_F(AsyncMemoryRules, FreeingWhatNcclHoldsIsReported) {
  const CUdeviceptr address = AllocateOn(stream_);
  COMMPOOL_EXTENSION(commpoolEmulatorHold)(address, kBytes, "a registration");
  FreeOn(stream_, address);
  EXPECT_TRUE(TakeReport("held by a registration"));
  COMMPOOL_EXTENSION(commpoolEmulatorUnhold)(address, kBytes);
}

TEST_F(AsyncMemoryRules, CuMemFreeUnderAnOperationToComeIsReported) {
  const CUdeviceptr address = AllocateOn(stream_);
  FreeOn(stream_, AllocateOn(stream_));  // of the same step; it stays until the host waits
  Gate gate(stream_);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReport("memory in use"));
  gate.Open();
}

TEST_F(AsyncMemoryRules, UnfreedMemoryIsALeak) {
  const CUdeviceptr address = AllocateOn(stream_);
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemoryPool pool = Get(cuda().cuMemPoolCreate, &properties);
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "stream-ordered memory"));
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "memory pool"));
  FreeOn(stream_, address);
  EXPECT_EQ(cuda().cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(AsyncMemoryRules, APoolsAddressesAreItsOwn) {
  const CUdeviceptr address = AllocateOn(stream_, 32 << 20);
  EXPECT_EQ(cuda().cuMemUnmap(address, 32 << 20), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(cuda().cuMemSetAccess(address, 32 << 20, &access, 1), CUDA_ERROR_INVALID_VALUE);
  FreeOn(stream_, address);
}

TEST_F(AsyncMemoryRules, ACachedPairTakesLessThanAMicrosecond) {
  SetThreshold(std::numeric_limits<cuuint64_t>::max());
  FreeOn(stream_, AllocateOn(stream_));
  const double start = Now();
  FreeOn(stream_, AllocateOn(stream_));
  EXPECT_NEAR(Now() - start, 0.8, 1e-6);
}

TEST_F(AsyncMemoryRules, AThresholdSparesALoopThatWaitsTheCostOfMemory) {
  const double giving_back = TimeOfLoop(stream_);
  SetThreshold(std::numeric_limits<cuuint64_t>::max());
  TimeOfLoop(stream_);
  EXPECT_GT(giving_back, 20 * TimeOfLoop(stream_));
}

}  // namespace
}  // namespace commpool::internal::testing
