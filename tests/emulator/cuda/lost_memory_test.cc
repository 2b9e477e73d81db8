// Memory that disappears between a launch and its execution costs the context. Each test loses its own device.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class LostMemory : public EmulatorTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("devices=8"); }

  const CudaDriver& cuda() const { return driver().cuda; }
  static CUmemLocation At(int device) { return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}; }

  // Loses the device's context, which is current: a kernel finds its memory revoked.
  void Lose(int device) {
    CUstream stream = nullptr;
    ASSERT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = At(device);
    constexpr uint64_t kBytes = uint64_t{2} << 20;
    AddressRange range = AddressRange::Reserve(driver(), kBytes, 0).value();
    PhysicalMemory physical = PhysicalMemory::Create(driver(), kBytes, properties).value();
    Mapping mapping = Mapping::Map(driver(), range.address(), physical).value();
    ASSERT_TRUE(mapping.SetAccess(At(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE).ok());
    {
      Gate gate(stream);
      ASSERT_EQ(cuda().cuMemsetD8Async(range.address(), 1, kBytes, stream), CUDA_SUCCESS);
      ASSERT_TRUE(mapping.SetAccess(At(device), CU_MEM_ACCESS_FLAGS_PROT_NONE).ok());
    }
    lost_with_ = cuda().cuStreamSynchronize(stream);
    EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  }
  CUresult lost_with() const { return lost_with_; }

 private:
  CUresult lost_with_ = CUDA_SUCCESS;
};

TEST_F(LostMemory, IsReportedAndTheErrorOfWhoWaits) {
  PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  ContextGuard guard(driver(), context);
  Lose(0);
  EXPECT_EQ(lost_with(), CUDA_ERROR_ILLEGAL_ADDRESS);
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(AnyContains(reports, "memory that is not there")) << reports[0];
  EXPECT_TRUE(AnyContains(reports, "on device 0")) << reports[0];
}

TEST_F(LostMemory, MakesEveryLaterCallOfTheContextFail) {
  PrimaryContext context = PrimaryContext::Retain(driver(), 1).value();
  ContextGuard guard(driver(), context);
  CUevent event = nullptr;
  ASSERT_EQ(cuda().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
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
  PrimaryContext context = PrimaryContext::Retain(driver(), 2).value();
  ContextGuard guard(driver(), context);
  Lose(2);
  TakeReports();
  PrimaryContext other = PrimaryContext::Retain(driver(), 3).value();
  ContextGuard other_guard(driver(), other);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&memory, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemsetD8Async(memory, 1, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
}

TEST_F(LostMemory, AnOperationThatEndsInAnErrorCostsTheContextToo) {
  PrimaryContext context = PrimaryContext::Retain(driver(), 4).value();
  ContextGuard guard(driver(), context);
  Gate gate(nullptr);
  gate.Open(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuda().cuStreamSynchronize(nullptr), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED) << "the first error stays";
}

}  // namespace
}  // namespace commpool::internal::testing
