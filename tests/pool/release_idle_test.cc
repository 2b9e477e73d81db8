// What pools give back for a call of somebody else that ran out of memory: without a wait.
#include <memory>
#include <thread>
#include <vector>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class ReleaseIdle : public PoolTest, public ::testing::WithParamInterface<Mode> {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("work is held"); }
  void TearDown() override {
    for (const PoolHandle pool : pools_) EXPECT_TRUE(runtime().DestroyPool(pool).ok());
  }

  PoolHandle Make(BackingKind kind = BackingKind::kVmm, int device = 0) {
    PoolConfiguration configuration = Configured("pool", device);
    configuration.mode = kind == BackingKind::kVmm ? GetParam() : Mode::kFixed;
    configuration.backing.kind = kind;
    pools_.push_back(Create(configuration));
    return pools_.back();
  }
  CUdeviceptr Allocate(PoolHandle pool, uint64_t bytes, CUstream stream = nullptr) {
    return runtime().AllocateFrom(pool, bytes, stream).value();
  }
  uint64_t Release(DeviceWork work = DeviceWork::kMayWork) { return runtime().search().ReleaseIdle(0, work); }

 private:
  std::vector<PoolHandle> pools_;
};

INSTANTIATE_TEST_SUITE_P(Modes, ReleaseIdle, ::testing::Values(Mode::kFixed, Mode::kExpandable),
                         [](const auto& mode) { return mode.param == Mode::kFixed ? "Fixed" : "Expandable"; });

TEST_P(ReleaseIdle, GivesFreeMemoryBackAndCachedBlocksToo) {
  const PoolHandle pool = Make();
  Free(Allocate(pool, 32 * kMiB));
  Free(Allocate(pool, 4096));
  EXPECT_GE(Release(), 32 * kMiB);
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 0u);
  EXPECT_EQ(Release(), 0u);
}

TEST_P(ReleaseIdle, LeavesLiveBlocksAndOtherDevices) {
  const PoolHandle pool = Make();
  const PoolHandle far = Make(BackingKind::kVmm, 1);
  const CUdeviceptr live = Allocate(pool, 32 * kMiB);
  Free(Allocate(far, 32 * kMiB));
  EXPECT_EQ(Release(), 0u);
  Free(live);
}

TEST_P(ReleaseIdle, WaitsForNoStream) {
  const TestStream stream;
  const PoolHandle pool = Make();
  const CUdeviceptr busy = Allocate(pool, 32 * kMiB, stream.get());
  HeldWork work(driver(), stream.get(), busy);
  Free(busy);
  EXPECT_EQ(Release(), 0u);
  work.End();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_GE(Release(), 32 * kMiB);
}

TEST_P(ReleaseIdle, WaitsForNoGrowthOfAnotherThread) {
  const PoolHandle pool = Make();
  Free(Allocate(pool, 32 * kMiB));
  uint64_t released = 1;
  {
    MutexLock growth(Get(pool).basis().growth());
    std::thread([&] { released = Release(); }).join();
  }
  EXPECT_EQ(released, 0u);
}

TEST_P(ReleaseIdle, TakesMemoryOfCudaMallocOnlyWhereNothingWorks) {
  const PoolHandle pool = Make(BackingKind::kCuda);
  Free(Allocate(pool, 32 * kMiB));
  EXPECT_EQ(Release(DeviceWork::kMayWork), 0u);
  EXPECT_EQ(Release(DeviceWork::kIdle), 32 * kMiB);
}

TEST_P(ReleaseIdle, CallsNoNccl) {
  const PoolHandle pool = Make(BackingKind::kNccl);
  Free(Allocate(pool, 32 * kMiB));
  EXPECT_EQ(Release(DeviceWork::kIdle), 0u);
}

TEST_P(ReleaseIdle, LeavesAPoolThatSleeps) {
  const PoolHandle pool = Make();
  Free(Allocate(pool, 32 * kMiB));
  const std::shared_ptr<Pool> asleep = runtime().pools().Find(pool).value();
  ASSERT_TRUE(SleepAlone(*asleep, {}).ok());
  EXPECT_EQ(Release(), 0u);
  ASSERT_TRUE(WakeAlone(*asleep, {}).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
