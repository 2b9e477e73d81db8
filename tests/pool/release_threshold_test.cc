// The release threshold: free memory above it goes back once the device is done with it; the rest stays.
#include <deque>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class ReleaseThreshold : public PoolTest, public ::testing::WithParamInterface<Mode> {
 protected:
  // An expandable pool's end releases its addresses.
  ~ReleaseThreshold() override {
    for (const std::shared_ptr<Pool>& pool : runtime().pools().All()) {
      EXPECT_TRUE(runtime().DestroyPool(pool->handle()).ok());
    }
  }
  PoolHandle CreateWith(uint64_t threshold) {
    PoolConfiguration configuration = Configured("threshold");
    configuration.mode = GetParam();
    configuration.segment_bytes = 2 * kMiB;
    configuration.release_threshold_bytes = threshold;
    return Create(configuration);
  }
  CUdeviceptr Allocate(PoolHandle pool, uint64_t bytes) { return runtime().AllocateFrom(pool, bytes, nullptr).value(); }
  uint64_t Reserved(PoolHandle pool) { return CountersOf(pool).reserved_bytes.current; }
};

TEST_P(ReleaseThreshold, OfZeroGivesEverythingBack) {
  const PoolHandle pool = CreateWith(0);
  const CUdeviceptr block = Allocate(pool, 64 * kMiB);
  ASSERT_TRUE(runtime().Free(block).ok());
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 0u);
}

TEST_P(ReleaseThreshold, BoundsTheReservedBytes) {
  const PoolHandle pool = CreateWith(64 * kMiB);
  std::vector<CUdeviceptr> blocks;
  for (int block = 0; block < 6; ++block) blocks.push_back(Allocate(pool, 32 * kMiB));
  for (const CUdeviceptr block : blocks) ASSERT_TRUE(runtime().Free(block).ok());
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 64 * kMiB);
}

TEST_P(ReleaseThreshold, ThatIsMetExactlyCostsNoCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  const PoolHandle pool = CreateWith(64 * kMiB);
  ASSERT_TRUE(runtime().Free(Allocate(pool, 64 * kMiB)).ok());
  ASSERT_EQ(Reserved(pool), 64 * kMiB);
  const uint64_t calls = CallCount("*");
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_P(ReleaseThreshold, DoesNotTouchWhatWasReservedUpToIt) {
  const PoolHandle pool = CreateWith(4 * kMiB);
  ASSERT_TRUE(Get(pool).mode().Reserve(4 * kMiB).ok());
  const CUdeviceptr block = Allocate(pool, 64 * kKiB);
  if (GetParam() == Mode::kFixed) {
    EXPECT_EQ(Reserved(pool), 4 * kMiB) << "it serves blocks of every size";
  }
  ASSERT_TRUE(runtime().Free(block).ok());
}

TEST_P(ReleaseThreshold, LeavesLiveBlocksAlone) {
  const PoolHandle pool = CreateWith(0);
  const CUdeviceptr live = Allocate(pool, 32 * kMiB);
  Fill(nullptr, live, 4096, 7);
  ASSERT_TRUE(runtime().Free(Allocate(pool, 64 * kMiB)).ok());
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 32 * kMiB);
  ExpectBytes(nullptr, live, 4096, 7);
  ASSERT_TRUE(runtime().Free(live).ok());
}

TEST_P(ReleaseThreshold, WaitsForTheDeviceWithoutBlockingTheHost) {
  COMMPOOL_REQUIRE_EMULATOR("on hardware a host function holds no declared memory");
  const PoolHandle pool = CreateWith(0);
  const TestStream stream;
  const CUdeviceptr block = runtime().AllocateFrom(pool, 64 * kMiB, stream.get()).value();
  HeldWork work(driver(), stream.get(), block);
  ASSERT_TRUE(runtime().Free(block).ok());
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 64 * kMiB);
  work.End();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 0u);
}

// A busy stream is asked once, by an event behind its work, and events are reused.
TEST_P(ReleaseThreshold, AsksABusyStreamByOneEventThatServesAgain) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream, and counts calls");
  const PoolHandle pool = CreateWith(0);
  const TestStream stream;
  uint64_t made = 0;
  for (int round = 0; round < 4; ++round) {
    const CUdeviceptr block = runtime().AllocateFrom(pool, 64 * kMiB, stream.get()).value();
    HeldWork work(driver(), stream.get(), block);
    const uint64_t recorded = CallCount("cuEventRecord");
    ASSERT_TRUE(runtime().Free(block).ok());
    for (int time = 0; time < 3; ++time) ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
    EXPECT_EQ(CallCount("cuEventRecord"), recorded + 1);
    EXPECT_EQ(Reserved(pool), 64 * kMiB);
    work.End();
    ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
    EXPECT_EQ(Reserved(pool), 0u);
    if (round == 1) made = CallCount("cuEventCreate");
  }
  EXPECT_EQ(CallCount("cuEventCreate"), made);
}

// Of two busy streams one is released: the pool still knows about the other.
TEST_P(ReleaseThreshold, ForgetsTheEventOfAReleasedStreamAlone) {
  COMMPOOL_REQUIRE_EMULATOR("it holds streams");
  const PoolHandle pool = CreateWith(0);
  const TestStream goes;
  const TestStream stays;
  std::deque<HeldWork> works;
  for (size_t stream = 0; stream < 2; ++stream) {
    const CUstream on = stream == 0 ? goes.get() : stays.get();
    const CUdeviceptr block = runtime().AllocateFrom(pool, 64 * kMiB, on).value();
    works.emplace_back(driver(), on, block);
    ASSERT_TRUE(runtime().Free(block).ok());
  }
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  works[0].End();
  ASSERT_TRUE(runtime().ReleaseStream(goes.get()).ok());
  const uint64_t recorded = CallCount("cuEventRecord");
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 64 * kMiB) << "the released stream's memory went";
  EXPECT_EQ(CallCount("cuEventRecord"), recorded) << "the other's event is still there";
  works[1].End();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 0u);
}

TEST_P(ReleaseThreshold, WithoutLimitKeepsEverything) {
  const PoolHandle pool = CreateWith(UINT64_MAX);
  ASSERT_TRUE(runtime().Free(Allocate(pool, 64 * kMiB)).ok());
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Get(pool).mode().Reclaim().value(), 0u);
  EXPECT_EQ(Reserved(pool), 64 * kMiB);
}

TEST_P(ReleaseThreshold, LeavesNothingInThreadsCaches) {
  const PoolHandle pool = CreateWith(0);
  ASSERT_TRUE(runtime().Free(Allocate(pool, 4096)).ok());
  EXPECT_EQ(Get(pool).Statistics().cached_bytes, 0u);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, ReleaseThreshold, ::testing::Values(Mode::kFixed, Mode::kExpandable),
                         [](const auto& mode) { return mode.param == Mode::kFixed ? "Fixed" : "Expandable"; });

}  // namespace
}  // namespace commpool::internal::testing
