// Stream-ordered memory where hardware gives no answer: uses outside its life, leaks, modelled costs.
#include <cuda.h>

#include <limits>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = 1 << 20;

class AsyncMemoryRules : public MachineTest {
 protected:
  ~AsyncMemoryRules() override { SetThreshold(0); }

  CUdeviceptr AllocateOn(CUstream stream, uint64_t bytes = kBytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuda().cuMemAllocAsync(&address, bytes, stream), CUDA_SUCCESS);
    return address;
  }
  void FreeOn(CUstream stream, CUdeviceptr address) { EXPECT_EQ(cuda().cuMemFreeAsync(address, stream), CUDA_SUCCESS); }
  void SetThreshold(cuuint64_t bytes) {
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(cuda().cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  bool TakeReport(const char* text) { return AnyContains(TakeReports(), text); }
  double Now() { return COMMPOOL_EXTENSION(commpoolEmulatorNow)(); }
  // Virtual time of a loop that allocates, frees and waits.
  double TimeOfLoop(CUstream stream) {
    const double start = Now();
    for (int round = 0; round < 10; ++round) {
      FreeOn(stream, AllocateOn(stream, 64 << 20));
      EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    }
    return Now() - start;
  }
};

TEST_F(AsyncMemoryRules, ACaptureIsToldThatNodesOfMemoryAreNotSupported) {
  const CUstream stream = MakeStream();
  const CUdeviceptr before = AllocateOn(stream);
  ASSERT_EQ(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuda().cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemAllocAsync(&address, kBytes, stream), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuda().cuMemAllocFromPoolAsync(&address, kBytes, pool, stream), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuda().cuMemFreeAsync(before, stream), CUDA_ERROR_NOT_SUPPORTED);
  const CUstream other = MakeStream();
  FreeOn(other, AllocateOn(other));
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << "the capture goes on";
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  FreeOn(stream, before);
}

TEST_F(AsyncMemoryRules, UseAfterTheFreeIsReported) {
  const CUstream stream = MakeStream();
  const CUdeviceptr address = AllocateOn(stream);
  FreeOn(stream, address);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, stream), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReport("use of stream-ordered memory outside its life"));
}

TEST_F(AsyncMemoryRules, UseBeforeTheFreeIsNot) {
  const CUstream stream = MakeStream();
  const CUdeviceptr address = AllocateOn(stream);
  Gate gate(stream);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, stream), CUDA_SUCCESS);
  FreeOn(stream, address);
  gate.Open();
}

TEST_F(AsyncMemoryRules, UseOnAStreamThatDidNotWaitForTheAllocationIsReported) {
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream other = MakeStream(CU_STREAM_NON_BLOCKING);
  Gate gate(stream);
  const CUdeviceptr address = AllocateOn(stream);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, other), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReport("not ordered behind its allocation"));
  const CUevent event = MakeEvent();
  EXPECT_EQ(cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, other), CUDA_SUCCESS);
  gate.Open();
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  FreeOn(stream, address);
}

TEST_F(AsyncMemoryRules, UsePastTheEndIsReported) {
  const CUstream stream = MakeStream();
  const CUdeviceptr address = AllocateOn(stream, 1000);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, 1001, stream), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReport("runs past the end of its allocation"));
  FreeOn(stream, address);
}

TEST_F(AsyncMemoryRules, FreeingWhatNcclHoldsIsReported) {
  const CUstream stream = MakeStream();
  const CUdeviceptr address = AllocateOn(stream);
  COMMPOOL_EXTENSION(commpoolEmulatorHold)(address, kBytes, "a registration");
  FreeOn(stream, address);
  EXPECT_TRUE(TakeReport("held by a registration"));
  COMMPOOL_EXTENSION(commpoolEmulatorUnhold)(address, kBytes);
}

TEST_F(AsyncMemoryRules, CuMemFreeUnderAnOperationToComeIsReported) {
  const CUstream stream = MakeStream();
  const CUdeviceptr address = AllocateOn(stream);
  FreeOn(stream, AllocateOn(stream));  // of the same step; it stays until the host waits
  Gate gate(stream);
  EXPECT_EQ(cuda().cuMemsetD8Async(address, 1, kBytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFree(address), CUDA_SUCCESS);
  EXPECT_TRUE(TakeReport("memory in use"));
  gate.Open();
}

TEST_F(AsyncMemoryRules, UnfreedMemoryIsALeak) {
  const CUstream stream = MakeStream();
  const CUdeviceptr address = AllocateOn(stream);
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuda().cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "stream-ordered memory"));
  EXPECT_TRUE(AnyContains(EmulatorLeaks(), "memory pool"));
  FreeOn(stream, address);
  EXPECT_EQ(cuda().cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(AsyncMemoryRules, APoolsAddressesAreItsOwn) {
  const CUstream stream = MakeStream();
  const CUdeviceptr address = AllocateOn(stream, 32 << 20);
  EXPECT_EQ(cuda().cuMemUnmap(address, 32 << 20), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(cuda().cuMemSetAccess(address, 32 << 20, &access, 1), CUDA_ERROR_INVALID_VALUE);
  FreeOn(stream, address);
}

TEST_F(AsyncMemoryRules, ACachedPairTakesLessThanAMicrosecond) {
  const CUstream stream = MakeStream();
  SetThreshold(std::numeric_limits<cuuint64_t>::max());
  FreeOn(stream, AllocateOn(stream));
  const double start = Now();
  FreeOn(stream, AllocateOn(stream));
  EXPECT_NEAR(Now() - start, 0.8, 1e-6);
}

TEST_F(AsyncMemoryRules, AThresholdSparesALoopThatWaitsTheCostOfMemory) {
  const CUstream stream = MakeStream();
  const double giving_back = TimeOfLoop(stream);
  SetThreshold(std::numeric_limits<cuuint64_t>::max());
  TimeOfLoop(stream);
  EXPECT_GT(giving_back, 20 * TimeOfLoop(stream));
}

}  // namespace
}  // namespace commpool::internal::testing
