// Unregistered pools grow inside a capture, in relaxed mode. The graph owns the new memory, and the pool waits for
// nothing, moves nothing and gives nothing back.
#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kPage = 2 * kMiB;

class CaptureGrowth : public PoolTest {
 protected:
  void BeginCapture(PoolHandle pool) { ExpectOk(capture_.Begin(runtime(), pool, stream_)); }
  // The memory goes back with the graph.
  void DestroyGraph(PoolHandle pool) {
    capture_.DestroyGraph();
    AwaitGraphsEnd(Get(pool));
    CheckInvariants(Get(pool));
  }
  void EndCapture(PoolHandle pool) {
    ExpectOk(capture_.End());
    DestroyGraph(pool);
  }

  const TestStream stream_;  // captures
  const TestStream other_;
  AnnouncedCapture capture_;
};

class CaptureGrowthOf : public CaptureGrowth, public ::testing::WithParamInterface<Mode> {
 protected:
  void SetUp() override { unpromised_ = NewStream(); }
  void TearDown() override {
    PoolTest::TearDown();
    DestroyStream(unpromised_);
  }

  PoolHandle Make(PoolOptions options = {}) {
    options.mode = GetParam();
    return CreateWith(options);
  }
  // A block of the captured stream that the unpromised one uses as a fork, and joins again.
  CUdeviceptr AllocateForAFork(PoolHandle pool, CUstream origin) {
    const CUdeviceptr block = Allocate(pool, 2 * kMiB, origin);
    WaitFor(unpromised_, origin);
    Fill(unpromised_, block, 4096, 1);
    EXPECT_TRUE(runtime().RecordStream(block, unpromised_).ok());
    WaitFor(origin, unpromised_);
    return block;
  }

  CUstream unpromised_ = nullptr;
};

TEST_P(CaptureGrowthOf, ServesARequestOfAnySizeAndReplays) {
  const PoolHandle pool = Make();
  BeginCapture(pool);
  const CUdeviceptr large = Allocate(pool, 64 * kMiB, stream_);
  const CUdeviceptr small = Allocate(pool, 4096, stream_);
  Fill(stream_, large, kMiB, 7);
  Fill(stream_, small, 4096, 9);
  ASSERT_TRUE(capture_.End().ok());
  ASSERT_NE(capture_.graph(), nullptr) << "growth broke the capture";
  capture_.Replay(stream_);
  ExpectBytes(stream_, large, kMiB, 7);
  ExpectBytes(stream_, small, 4096, 9);
  capture_.DestroyGraph();
  FreeAll({large, small});
  AwaitGraphsEnd(Get(pool));
}

TEST_P(CaptureGrowthOf, IsTheGraphsUntilItIsGone) {
  const PoolHandle pool = Make();
  BeginCapture(pool);
  const CUdeviceptr block = Allocate(pool, 64 * kMiB, stream_);
  Free(block);
  EXPECT_EQ(Allocate(pool, 64 * kMiB, stream_), block) << "what is freed in a capture is reused in it";
  Free(block);
  ASSERT_TRUE(capture_.End().ok());
  const CUdeviceptr outside = Allocate(pool, 64 * kMiB, stream_);
  EXPECT_NE(outside, block);
  Free(outside);
  EXPECT_GE(Reserved(pool), 128 * kMiB);
  DestroyGraph(pool);
}

TEST_P(CaptureGrowthOf, NeitherWaitsNorMovesNorGivesBack) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  const PoolHandle pool = Make();
  for (const uint64_t bytes : {100 * kMiB, 120 * kMiB}) Free(Allocate(pool, bytes, other_));
  ASSERT_TRUE(Get(pool).blocks().WaitForDevice().ok());
  BeginCapture(pool);
  const uint64_t unmapped = CallCount("cuMemUnmap");
  const uint64_t waited = CallCount("cuCtxSynchronize") + CallCount("cuEventSynchronize") + CallCount("cuEventQuery");
  const uint64_t before = Reserved(pool);
  const CUdeviceptr block = Allocate(pool, 256 * kMiB, stream_);
  EXPECT_EQ(CallCount("cuMemUnmap"), unmapped);
  EXPECT_EQ(CallCount("cuCtxSynchronize") + CallCount("cuEventSynchronize") + CallCount("cuEventQuery"), waited);
  EXPECT_EQ(Reserved(pool), before + 256 * kMiB);
  EXPECT_EQ(CountersOf(pool).moved_bytes, 0u);
  Free(block);
  EndCapture(pool);
}

TEST_P(CaptureGrowthOf, StopsAtThePoolsLimitAndLeavesTheCaptureSound) {
  const PoolHandle pool = Make({.limit_bytes = 32 * kMiB});
  BeginCapture(pool);
  for (const uint64_t bytes : {64 * kMiB, uint64_t{1} << 60}) {
    ExpectFailure(TryAllocate(pool, bytes, stream_).status(), StatusCode::kOutOfMemory, "reserve() before the capture");
  }
  Free(Allocate(pool, 16 * kMiB, stream_));
  EndCapture(pool);
}

// What streams used counts as reserved only where a capture may take it.
TEST_P(CaptureGrowthOf, TakesWhatWasReservedWhoeverUsedItBefore) {
  for (const CUstream before : {CUstream{nullptr}, other_.get(), unpromised_}) {
    const PoolHandle pool = Make({.limit_bytes = 64 * kMiB});
    const CUdeviceptr used = Allocate(pool, 64 * kMiB, before);
    Fill(before, used, 4096, 1);
    Free(used);
    Synchronize();
    ExpectOk(Get(pool).mode().Reserve(64 * kMiB));
    BeginCapture(pool);
    Free(Allocate(pool, 64 * kMiB, stream_));
    EndCapture(pool);
  }
}

// New memory must not merge with what another stream of the capture used: the request could not take it, and grew
// again.
TEST_P(CaptureGrowthOf, GrowsOnceBesideMemoryThatAForkUsed) {
  const PoolHandle pool = Make();
  BeginCapture(pool);
  WaitFor(other_, stream_);
  Free(Allocate(pool, 2 * kMiB, other_));
  const uint64_t before = Reserved(pool);
  const CUdeviceptr block = Allocate(pool, 2 * kMiB, stream_);
  EXPECT_LE(Reserved(pool), 2 * before);
  Free(block);
  WaitFor(stream_, other_);
  EndCapture(pool);
}

// pytorch#175560: nobody can ask later for streams without a promise, so what a graph used on them never came back.
TEST_P(CaptureGrowthOf, TakesAgainWhatGraphsThatAreGoneUsedOnStreamsWithoutAPromise) {
  const PoolHandle pool = Make({.streams = Streams::kMayDie});
  const CUstream origin = NewStream();
  uint64_t after_first = 0;
  for (int round = 0; round < 16; ++round) {
    ASSERT_TRUE(capture_.Begin(runtime(), pool, origin).ok());
    Free(AllocateForAFork(pool, origin));
    capture_.EndOnTheStream();
    ASSERT_TRUE(capture_.EndForThePool().ok());
    capture_.Replay(origin);
    capture_.DestroyGraph();
    Get(pool).captures().AwaitEndedGraphs();
    if (round == 0) after_first = Reserved(pool);
    EXPECT_EQ(Reserved(pool), after_first);
  }
  DestroyStream(origin);
  AwaitGraphsEnd(Get(pool));
}

// The stream left the capture, and used the block again before the announcement ended.
TEST_P(CaptureGrowthOf, TakesNothingThatAStreamUsesBesideTheGraph) {
  COMMPOOL_REQUIRE_EMULATOR("work that a test ends");
  const PoolHandle pool = Make({.streams = Streams::kMayDie});
  const CUstream origin = NewStream();
  ASSERT_TRUE(capture_.Begin(runtime(), pool, origin).ok());
  const CUdeviceptr block = AllocateForAFork(pool, origin);
  capture_.EndOnTheStream();
  HeldWork work(driver(), unpromised_, block);
  ASSERT_TRUE(runtime().RecordStream(block, unpromised_).ok());
  Free(block);
  ASSERT_TRUE(capture_.EndForThePool().ok());
  capture_.DestroyGraph();
  Get(pool).captures().AwaitEndedGraphs();
  const CUdeviceptr other = Allocate(pool, 2 * kMiB, other_);
  Fill(other_, other, 4096, 2);  // the emulator tells of a race where it is the block, and waits for nothing
  work.End();
  Synchronize();
  Free(other);
  DestroyStream(origin);
  AwaitGraphsEnd(Get(pool));
}

INSTANTIATE_TEST_SUITE_P(Modes, CaptureGrowthOf, EachMode(), NameOfMode);

// Pages of an expandable pool merge with free neighbours. But nobody can wait for a captured stream, so new pages must
// not merge with memory that such a stream used.
TEST_F(CaptureGrowth, ServesOtherStreamsBesideMemoryThatTheCapturedOneUsed) {
  constexpr int kPlaces = 6;
  const PoolHandle pool = CreateWith({.mode = Mode::kExpandable, .segment_bytes = kPage});
  std::vector<CUdeviceptr> idle, holes, used, live;
  for (int place = 0; place < kPlaces; ++place) {
    idle.push_back(Allocate(pool, kPage, other_));
    holes.push_back(Allocate(pool, kPage, other_));
    used.push_back(Allocate(pool, kPage, stream_));
    live.push_back(Allocate(pool, kPage, other_));
  }
  FreeAll(holes);
  ASSERT_TRUE(Get(pool).Trim(0).ok());
  FreeAll(idle);
  ASSERT_TRUE(Get(pool).blocks().WaitForDevice().ok());
  FreeAll(used);
  const uint64_t before = Reserved(pool);
  EXPECT_EQ(before, 3 * kPlaces * kPage);

  BeginCapture(pool);
  const CUdeviceptr block = Allocate(pool, 2 * kPage, other_);
  EXPECT_EQ(Reserved(pool), before + kPage) << "one growth, of what was missing";
  Free(block);
  FreeAll(live);
  EndCapture(pool);
}

}  // namespace
}  // namespace commpool::internal::testing
