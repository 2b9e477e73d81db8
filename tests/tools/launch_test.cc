// `Launch` for a real device, tested on the emulator: with a Driver that hides the emulator's own launch.
#include "tools/common/launch.h"

#include <cstring>

#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal {
namespace {

constexpr uint64_t kBytes = 4096;

class StagedLaunch : public testing::ConformanceTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("on hardware every launch is staged");
    staged_.cuda = driver().cuda;
  }
  // The fixture's check of leaks comes next.
  void TearDown() override { FreeFinishedLaunches(); }
  Status LaunchOver(CUdeviceptr memory) const {
    return Launch(staged_, nullptr, {{memory, kBytes}}, {{memory, kBytes}}, Copy);
  }
  // Launches over the memory, and waits for it.
  void Finish(CUdeviceptr memory) const {
    ASSERT_TRUE(LaunchOver(memory).ok());
    ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  static void Copy(const std::vector<const void*>& reads, const std::vector<void*>& writes) {
    std::memcpy(writes.at(0), reads.at(0), kBytes);
  }

  Driver staged_;
};

TEST_F(StagedLaunch, CopiesOutRunsAndCopiesBack) {
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr from = Allocate(kBytes);
  const CUdeviceptr to = Allocate(kBytes);
  Fill(from, 9, kBytes, stream);
  for (int round = 0; round < 3; ++round) {
    const Status status = Launch(staged_, stream, {{from, kBytes}}, {{to, kBytes}}, Copy);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(to, kBytes), std::vector<uint8_t>(kBytes, 9));
}

TEST_F(StagedLaunch, FreesTheCopiesOfFinishedLaunches) {
  const CUdeviceptr memory = Allocate(kBytes);
  const uint64_t freed = testing::CallCount("cuMemFreeHost");
  for (int round = 0; round < 3; ++round) Finish(memory);
  EXPECT_GE(testing::CallCount("cuMemFreeHost"), freed + 4);
}

TEST_F(StagedLaunch, FreesTheCopiesOfTheLastOneWhenAsked) {
  const std::vector<std::string> leaks = testing::EmulatorLeaks();
  const CUdeviceptr memory = Allocate(kBytes);
  Finish(memory);
  FreeFinishedLaunches();
  ASSERT_EQ(testing::EmulatorLeaks().size(), leaks.size() + 1) << "the block itself";
}

TEST_F(StagedLaunch, FreesCopiesInTheContextTheyWereMadeIn) {
  COMMPOOL_REQUIRE_DEVICES(2);
  static CUcontext freed_in = nullptr;
  static Driver real;
  real.cuda = driver().cuda;
  staged_.cuda.cuMemFreeHost = [](void* copy) {
    real.cuda.cuCtxGetCurrent(&freed_in);
    return real.cuda.cuMemFreeHost(copy);
  };
  const CUdeviceptr memory = Allocate(kBytes);
  CUcontext made_in = nullptr;
  ASSERT_EQ(cuda().cuCtxGetCurrent(&made_in), CUDA_SUCCESS);
  Finish(memory);
  const PrimaryContext other = PrimaryContext::Retain(driver(), 1).value();
  {
    const ContextGuard current(driver(), other);
    FreeFinishedLaunches();
    CUcontext after = nullptr;
    EXPECT_EQ(cuda().cuCtxGetCurrent(&after), CUDA_SUCCESS);
    EXPECT_EQ(after, other.get());
  }
  EXPECT_EQ(freed_in, made_in);
}

TEST_F(StagedLaunch, LeavesNothingWhereAStepFails) {
  const CUdeviceptr memory = Allocate(kBytes);
  {
    // Ends the staging of an earlier launch.
    const testing::InjectedFault fault({.call = "cuMemAllocHost", .result = CUDA_ERROR_OUT_OF_MEMORY});
    EXPECT_EQ(Launch(staged_, nullptr, {{memory, kBytes}}, {}, Copy).code(), StatusCode::kOutOfMemory);
  }
  const std::vector<std::string> leaks = testing::EmulatorLeaks();
  const testing::Fault faults[] = {{.call = "cuMemAllocHost", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 1},
                                   {.call = "cuMemcpyDtoHAsync", .result = CUDA_ERROR_UNKNOWN},
                                   {.call = "cuLaunchHostFunc", .result = CUDA_ERROR_UNKNOWN},
                                   {.call = "cuMemcpyHtoDAsync", .result = CUDA_ERROR_UNKNOWN},
                                   {.call = "cuLaunchHostFunc", .result = CUDA_ERROR_UNKNOWN, .skip = 1}};
  for (const testing::Fault& fault : faults) {
    const testing::InjectedFault injected(fault);
    const Status status = LaunchOver(memory);
    EXPECT_NE(status.message().find(fault.call), std::string::npos) << status.message();
    EXPECT_EQ(testing::EmulatorLeaks(), leaks) << fault.call;
  }
}

}  // namespace
}  // namespace commpool::internal
