// What pools give back without a wait: free memory above the release threshold, once the device is done with it, and
// all that is idle for a call of somebody else that ran out of memory.
#include <deque>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class ReleaseThreshold : public PoolTestInEachMode {
 protected:
  PoolHandle CreateUpTo(uint64_t threshold) {
    return CreateWith({.mode = GetParam(), .segment_bytes = 2 * kMiB, .release_threshold_bytes = threshold});
  }
  // A reclaim, after which the pool has so much.
  void ExpectReclaimedTo(PoolHandle pool, uint64_t bytes, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
    const ::testing::ScopedTrace trace(file, line, "a reclaim");
    ExpectOk(Get(pool).mode().Reclaim().status());
    EXPECT_EQ(Reserved(pool), bytes);
  }
};

TEST_P(ReleaseThreshold, OfZeroGivesEverythingBack) {
  const PoolHandle pool = CreateUpTo(0);
  Free(Allocate(pool, 64 * kMiB));
  Synchronize();
  ExpectReclaimedTo(pool, 0u);
}

TEST_P(ReleaseThreshold, BoundsTheReservedBytes) {
  const PoolHandle pool = CreateUpTo(64 * kMiB);
  std::vector<CUdeviceptr> blocks;
  for (int block = 0; block < 6; ++block) blocks.push_back(Allocate(pool, 32 * kMiB));
  FreeAll(blocks);
  Synchronize();
  ExpectReclaimedTo(pool, 64 * kMiB);
}

TEST_P(ReleaseThreshold, ThatIsMetExactlyCostsNoCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  const PoolHandle pool = CreateUpTo(64 * kMiB);
  Free(Allocate(pool, 64 * kMiB));
  ASSERT_EQ(Reserved(pool), 64 * kMiB);
  const uint64_t calls = CallCount("*");
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_P(ReleaseThreshold, DoesNotTouchWhatWasReservedUpToIt) {
  const PoolHandle pool = CreateUpTo(4 * kMiB);
  ASSERT_TRUE(Get(pool).mode().Reserve(4 * kMiB).ok());
  Allocate(pool, 64 * kKiB);
  if (GetParam() == Mode::kFixed) {
    EXPECT_EQ(Reserved(pool), 4 * kMiB) << "it serves blocks of every size";
  }
}

TEST_P(ReleaseThreshold, LeavesLiveBlocksAlone) {
  const PoolHandle pool = CreateUpTo(0);
  const CUdeviceptr live = Allocate(pool, 32 * kMiB);
  Fill(nullptr, live, 4096, 7);
  Free(Allocate(pool, 64 * kMiB));
  Synchronize();
  ExpectReclaimedTo(pool, 32 * kMiB);

  ExpectBytes(nullptr, live, 4096, 7);
}

TEST_P(ReleaseThreshold, WaitsForTheDeviceWithoutBlockingTheHost) {
  COMMPOOL_REQUIRE_EMULATOR("on hardware a host function holds no declared memory");
  const PoolHandle pool = CreateUpTo(0);
  const TestStream stream;
  const CUdeviceptr block = Allocate(pool, 64 * kMiB, stream);
  HeldWork work(driver(), stream, block);
  Free(block);
  ExpectReclaimedTo(pool, 64 * kMiB);

  work.End();
  Synchronize();
  ExpectReclaimedTo(pool, 0u);
}

// A busy stream is asked once, by an event behind its work, and events are reused.
TEST_P(ReleaseThreshold, AsksABusyStreamByOneEventThatServesAgain) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream, and counts calls");
  const PoolHandle pool = CreateUpTo(0);
  const TestStream stream;
  uint64_t made = 0;
  for (int round = 0; round < 4; ++round) {
    const CUdeviceptr block = Allocate(pool, 64 * kMiB, stream);
    HeldWork work(driver(), stream, block);
    const uint64_t recorded = CallCount("cuEventRecord");
    Free(block);
    for (int time = 0; time < 3; ++time) ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
    EXPECT_EQ(CallCount("cuEventRecord"), recorded + 1);
    EXPECT_EQ(Reserved(pool), 64 * kMiB);
    work.End();
    Synchronize();
    ExpectReclaimedTo(pool, 0u);

    if (round == 1) made = CallCount("cuEventCreate");
  }
  EXPECT_EQ(CallCount("cuEventCreate"), made);
}

// Of two busy streams one is released: the pool still knows about the other.
TEST_P(ReleaseThreshold, ForgetsTheEventOfAReleasedStreamAlone) {
  COMMPOOL_REQUIRE_EMULATOR("it holds streams");
  const PoolHandle pool = CreateUpTo(0);
  const TestStream goes;
  const TestStream stays;
  std::deque<HeldWork> works;
  for (size_t stream = 0; stream < 2; ++stream) {
    const CUstream on = stream == 0 ? goes : stays;
    const CUdeviceptr block = Allocate(pool, 64 * kMiB, on);
    works.emplace_back(driver(), on, block);
    Free(block);
  }
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  works[0].End();
  ASSERT_TRUE(runtime().ReleaseStream(goes).ok());
  const uint64_t recorded = CallCount("cuEventRecord");
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 64 * kMiB) << "the released stream's memory went";
  EXPECT_EQ(CallCount("cuEventRecord"), recorded) << "the other's event is still there";
  works[1].End();
  Synchronize();
  ExpectReclaimedTo(pool, 0u);
}

TEST_P(ReleaseThreshold, WithoutLimitKeepsEverything) {
  const PoolHandle pool = CreateUpTo(UINT64_MAX);
  Free(Allocate(pool, 64 * kMiB));
  Synchronize();
  EXPECT_EQ(Get(pool).mode().Reclaim().value(), 0u);
  EXPECT_EQ(Reserved(pool), 64 * kMiB);
}

TEST_P(ReleaseThreshold, LeavesNothingInThreadsCaches) {
  const PoolHandle pool = CreateUpTo(0);
  Free(Allocate(pool, 4096));
  EXPECT_EQ(CountersOf(pool).cached_bytes, 0u);
  Synchronize();
  ExpectReclaimedTo(pool, 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, ReleaseThreshold, EachMode(), NameOfMode);

class ReleaseIdle : public PoolTestInEachMode {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("work is held"); }
  PoolHandle Make(BackingKind kind = BackingKind::kVmm, int device = 0) {
    const Mode mode = kind == BackingKind::kVmm ? GetParam() : Mode::kFixed;
    return CreateWith({.kind = kind, .device = device, .mode = mode});
  }
  uint64_t Release(DeviceWork work = DeviceWork::kMayWork) { return runtime().search().ReleaseIdle(0, work); }
};

INSTANTIATE_TEST_SUITE_P(Modes, ReleaseIdle, EachMode(), NameOfMode);

TEST_P(ReleaseIdle, GivesFreeMemoryBackAndCachedBlocksToo) {
  const PoolHandle pool = Make();
  Free(Allocate(pool, 32 * kMiB));
  Free(Allocate(pool, 4096));
  EXPECT_GE(Release(), 32 * kMiB);
  EXPECT_EQ(Reserved(pool), 0u);
  EXPECT_EQ(Release(), 0u);
}

TEST_P(ReleaseIdle, LeavesLiveBlocksAndOtherDevices) {
  const PoolHandle pool = Make();
  const PoolHandle far = Make(BackingKind::kVmm, 1);
  Allocate(pool, 32 * kMiB);
  Free(Allocate(far, 32 * kMiB));
  EXPECT_EQ(Release(), 0u);
}

TEST_P(ReleaseIdle, WaitsForNoStream) {
  const TestStream stream;
  const PoolHandle pool = Make();
  const CUdeviceptr busy = Allocate(pool, 32 * kMiB, stream);
  HeldWork work(driver(), stream, busy);
  Free(busy);
  EXPECT_EQ(Release(), 0u);
  work.End();
  Synchronize();
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
