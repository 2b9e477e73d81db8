// Virtual time: declared times add up, on any machine.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class VirtualTime : public MachineTest {
 protected:
  const CUstream stream_ = MakeStream();
};

TEST_F(VirtualTime, OfAStreamIsTheSumOfItsWork) {
  const CUevent start = Record(stream_);
  ASSERT_EQ(Launch(stream_, {}, 5000), CUDA_SUCCESS);
  const CUevent middle = Record(stream_);
  ASSERT_EQ(Launch(stream_, {}, 7000), CUDA_SUCCESS);
  const CUevent end = Record(stream_);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_NEAR(MicrosecondsBetween(middle, end), 7000, 1);
  EXPECT_NEAR(MicrosecondsBetween(start, end), MicrosecondsBetween(start, middle) + 7000, 1);
  EXPECT_GE(MicrosecondsBetween(start, middle), 5000);
}

TEST_F(VirtualTime, OfCopiesGrowsWithTheirBytes) {
  const CUdeviceptr memory = Allocate(32 * kUnit);
  ASSERT_EQ(Launch(stream_, {}, 1000), CUDA_SUCCESS);  // the host's own time is behind the stream's
  const CUevent start = Record(stream_);
  ASSERT_EQ(cuda().cuMemsetD8Async(memory, 1, kUnit, stream_), CUDA_SUCCESS);
  const CUevent middle = Record(stream_);
  ASSERT_EQ(cuda().cuMemsetD8Async(memory, 2, 32 * kUnit, stream_), CUDA_SUCCESS);
  const CUevent end = Record(stream_);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_GT(MicrosecondsBetween(start, middle), 0);
  EXPECT_GT(MicrosecondsBetween(middle, end), MicrosecondsBetween(start, middle));
}

TEST_F(VirtualTime, RunsSideBySideInIndependentStreams) {
  const CUstream other = MakeStream();
  const double before = Now();
  ASSERT_EQ(Launch(stream_, {}, 10000), CUDA_SUCCESS);
  ASSERT_EQ(Launch(other, {}, 10000), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_GE(Now() - before, 10000);
  EXPECT_LT(Now() - before, 15000);
}

TEST_F(VirtualTime, OfAWaitIsTheLaterOfBothStreams) {
  const CUstream slow = MakeStream();
  const CUstream quick = MakeStream();
  const CUevent start = Record(slow);
  ASSERT_EQ(Launch(slow, {}, 20000), CUDA_SUCCESS);
  const CUevent passed = Record(slow);
  ASSERT_EQ(cuda().cuStreamWaitEvent(quick, passed, 0), CUDA_SUCCESS);
  ASSERT_EQ(Launch(quick, {}, 100), CUDA_SUCCESS);
  const CUevent end = Record(quick);
  ASSERT_EQ(cuda().cuStreamSynchronize(quick), CUDA_SUCCESS);
  EXPECT_NEAR(MicrosecondsBetween(passed, end), 100, 1);
  EXPECT_GE(MicrosecondsBetween(start, end), 20100);
}

TEST_F(VirtualTime, OfTheHostJoinsItsWaits) {
  const double before = Now();
  ASSERT_EQ(Launch(stream_, {}, 30000), CUDA_SUCCESS);
  EXPECT_LT(Now() - before, 1000) << "submitting is not waiting";
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_GE(Now() - before, 30000);
}

TEST_F(VirtualTime, OfTheHostPassesWithItsCalls) {
  const auto cost_of_creating = [&](uint64_t bytes) {
    const double before = Now();
    const CUmemGenericAllocationHandle handle = CreateMemory(Properties(), bytes);
    const double cost = Now() - before;
    EXPECT_EQ(cuda().cuMemRelease(handle), CUDA_SUCCESS);
    return cost;
  };
  EXPECT_GT(cost_of_creating(kUnit), 0);
  EXPECT_GT(cost_of_creating(512 * kUnit), cost_of_creating(kUnit));
}

TEST_F(VirtualTime, OfTheHostCanBeAdvanced) {
  const double before = Now();
  COMMPOOL_EXTENSION(commpoolEmulatorAdvance)(1234);
  EXPECT_NEAR(Now() - before, 1234, 1);
}

TEST_F(VirtualTime, IsNotMeasuredByEventsWithoutTiming) {
  const CUevent timed = Record(nullptr);
  const CUevent untimed = MakeEvent(CU_EVENT_DISABLE_TIMING);
  ASSERT_EQ(cuda().cuEventRecord(untimed, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  float milliseconds = 0;
  EXPECT_EQ(cuda().cuEventElapsedTime(&milliseconds, timed, untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuda().cuEventElapsedTime(&milliseconds, timed, MakeEvent()), CUDA_ERROR_INVALID_HANDLE) << "no record";
}

TEST_F(VirtualTime, IsNotKnownBeforeTheEventHasPassed) {
  const CUevent start = Record(stream_);
  Gate gate(stream_);
  const CUevent end = Record(stream_);
  float milliseconds = 0;
  EXPECT_EQ(cuda().cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
}

}  // namespace
}  // namespace commpool::internal::testing
