// Memory that disappears between a launch and its execution costs the context. Each test loses its own device.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class LostMemory : public EmulatorTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("devices=8"); }

  const CudaDriver& cuda() const { return driver().cuda; }

  // Loses the device's context, which is current: a kernel finds its memory revoked. What the stream's waiter gets.
  CUresult Lose(int device) {
    const CUstream stream = Get(cuda().cuStreamCreate, CU_STREAM_NON_BLOCKING);
    constexpr uint64_t kBytes = uint64_t{2} << 20;
    const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    MappedMemory memory(driver(), PropertiesAt(location), kBytes);
    {
      Gate gate(stream);
      EXPECT_EQ(cuda().cuMemsetD8Async(memory.address(), 1, kBytes, stream), CUDA_SUCCESS);
      EXPECT_TRUE(memory.mapping().SetAccess(location, CU_MEM_ACCESS_FLAGS_PROT_NONE).ok());
    }
    const CUresult lost_with = cuda().cuStreamSynchronize(stream);
    EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
    return lost_with;
  }
};

TEST_F(LostMemory, IsReportedAndTheErrorOfWhoWaits) {
  const CurrentContext context(driver(), 0);
  EXPECT_EQ(Lose(0), CUDA_ERROR_ILLEGAL_ADDRESS);
  ExpectOneReport({"memory that is not there", "on device 0"});
}

TEST_F(LostMemory, MakesEveryLaterCallOfTheContextFail) {
  const CurrentContext context(driver(), 1);
  const CUevent event = Get(cuda().cuEventCreate, CU_EVENT_DEFAULT);
  Lose(1);
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  EXPECT_EQ(cuda().cuMemAlloc(&memory, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS) << "what is left can be given back";
  TakeReports();
}

TEST_F(LostMemory, LeavesOtherDevicesAlone) {
  const CurrentContext context(driver(), 2);
  Lose(2);
  TakeReports();
  const CurrentContext other(driver(), 3);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  const CUdeviceptr memory = Get(cuda().cuMemAlloc, 1);
  EXPECT_EQ(cuda().cuMemsetD8Async(memory, 1, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
}

TEST_F(LostMemory, AnOperationThatEndsInAnErrorCostsTheContextToo) {
  const CurrentContext context(driver(), 4);
  Gate gate(nullptr);
  gate.Open(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuda().cuStreamSynchronize(nullptr), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED) << "the first error stays";
}

}  // namespace
}  // namespace commpool::internal::testing
