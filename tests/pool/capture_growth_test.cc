// Unregistered pools grow inside a capture, in relaxed mode. The graph owns the new memory, and the pool waits for
// nothing, moves nothing and gives nothing back.
#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/pool_invariants.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kPage = 2 * kMiB;

class CaptureGrowth : public PoolTest {
 protected:
  static PoolConfiguration Of(Mode mode) {
    PoolConfiguration configuration = Configured("grows");
    configuration.mode = mode;
    return configuration;
  }
  CUdeviceptr Allocate(PoolHandle pool, uint64_t bytes, const TestStream& stream) {
    return runtime().AllocateFrom(pool, bytes, stream.get()).value();
  }
  void BeginCapture(PoolHandle pool) {
    const Status begun = capture_.Begin(runtime(), pool, stream_.get());
    ASSERT_TRUE(begun.ok()) << begun.message();
  }
  void End(PoolHandle pool) {
    AwaitGraphsEnd(Get(pool));
    CheckInvariants(Get(pool));
    EXPECT_TRUE(runtime().DestroyPool(pool).ok());
  }

  const TestStream stream_;  // captures
  const TestStream other_;
  AnnouncedCapture capture_;
};

class CaptureGrowthOf : public CaptureGrowth, public ::testing::WithParamInterface<Mode> {
 protected:
  void SetUp() override { ASSERT_EQ(cuda().cuStreamCreate(&unpromised_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS); }
  void TearDown() override { EXPECT_EQ(cuda().cuStreamDestroy(unpromised_), CUDA_SUCCESS); }

  // A block of the captured stream that the unpromised one uses as a fork, and joins again.
  CUdeviceptr AllocateForAFork(PoolHandle pool, CUstream origin, CUevent fork) {
    const CUdeviceptr block = runtime().AllocateFrom(pool, 2 * kMiB, origin).value();
    EXPECT_EQ(cuda().cuEventRecord(fork, origin), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamWaitEvent(unpromised_, fork, 0), CUDA_SUCCESS);
    Fill(unpromised_, block, 4096, 1);
    EXPECT_TRUE(runtime().RecordStream(block, unpromised_).ok());
    EXPECT_EQ(cuda().cuEventRecord(fork, unpromised_), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamWaitEvent(origin, fork, 0), CUDA_SUCCESS);
    return block;
  }

  CUstream unpromised_ = nullptr;
};

TEST_P(CaptureGrowthOf, ServesARequestOfAnySizeAndReplays) {
  const PoolHandle pool = Create(Of(GetParam()));
  BeginCapture(pool);
  const CUdeviceptr large = Allocate(pool, 64 * kMiB, stream_);
  const CUdeviceptr small = Allocate(pool, 4096, stream_);
  Fill(stream_.get(), large, kMiB, 7);
  Fill(stream_.get(), small, 4096, 9);
  ASSERT_TRUE(capture_.End().ok());
  ASSERT_NE(capture_.graph(), nullptr) << "growth broke the capture";
  capture_.Replay(stream_.get());
  uint64_t wrong[2] = {1, 1};
  Compare(stream_.get(), large, kMiB, 7, &wrong[0]);
  Compare(stream_.get(), small, 4096, 9, &wrong[1]);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  EXPECT_EQ(wrong[0] + wrong[1], 0u);
  capture_.DestroyGraph();
  Free(large);
  Free(small);
  End(pool);
}

TEST_P(CaptureGrowthOf, IsTheGraphsUntilItIsGone) {
  const PoolHandle pool = Create(Of(GetParam()));
  BeginCapture(pool);
  const CUdeviceptr block = Allocate(pool, 64 * kMiB, stream_);
  Free(block);
  EXPECT_EQ(Allocate(pool, 64 * kMiB, stream_), block) << "what is freed in a capture is reused in it";
  Free(block);
  ASSERT_TRUE(capture_.End().ok());
  const CUdeviceptr outside = Allocate(pool, 64 * kMiB, stream_);
  EXPECT_NE(outside, block);
  Free(outside);
  EXPECT_GE(CountersOf(pool).reserved_bytes.current, 128 * kMiB);
  capture_.DestroyGraph();
  End(pool);
}

TEST_P(CaptureGrowthOf, NeitherWaitsNorMovesNorGivesBack) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  const PoolHandle pool = Create(Of(GetParam()));
  for (const uint64_t bytes : {100 * kMiB, 120 * kMiB}) Free(Allocate(pool, bytes, other_));
  ASSERT_TRUE(Get(pool).blocks().WaitForDevice().ok());
  BeginCapture(pool);
  const uint64_t unmapped = CallCount("cuMemUnmap");
  const uint64_t waited = CallCount("cuCtxSynchronize") + CallCount("cuEventSynchronize") + CallCount("cuEventQuery");
  const uint64_t before = CountersOf(pool).reserved_bytes.current;
  const CUdeviceptr block = Allocate(pool, 256 * kMiB, stream_);
  EXPECT_EQ(CallCount("cuMemUnmap"), unmapped);
  EXPECT_EQ(CallCount("cuCtxSynchronize") + CallCount("cuEventSynchronize") + CallCount("cuEventQuery"), waited);
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, before + 256 * kMiB);
  EXPECT_EQ(Get(pool).Statistics().moved_bytes, 0u);
  Free(block);
  ASSERT_TRUE(capture_.End().ok());
  capture_.DestroyGraph();
  End(pool);
}

TEST_P(CaptureGrowthOf, StopsAtThePoolsLimitAndLeavesTheCaptureSound) {
  PoolConfiguration configuration = Of(GetParam());
  configuration.limit_bytes = 32 * kMiB;
  const PoolHandle pool = Create(configuration);
  BeginCapture(pool);
  for (const uint64_t bytes : {64 * kMiB, uint64_t{1} << 60}) {
    ExpectFailure(runtime().AllocateFrom(pool, bytes, stream_.get()).status(), StatusCode::kOutOfMemory,
                  "reserve() before the capture");
  }
  const CUdeviceptr block = Allocate(pool, 16 * kMiB, stream_);
  Free(block);
  ASSERT_TRUE(capture_.End().ok());
  capture_.DestroyGraph();
  End(pool);
}

// What streams used counts as reserved only where a capture may take it.
TEST_P(CaptureGrowthOf, TakesWhatWasReservedWhoeverUsedItBefore) {
  PoolConfiguration configuration = Of(GetParam());
  configuration.limit_bytes = 64 * kMiB;
  for (const CUstream before : {CUstream{nullptr}, other_.get(), unpromised_}) {
    const PoolHandle pool = Create(configuration);
    const CUdeviceptr used = runtime().AllocateFrom(pool, 64 * kMiB, before).value();
    Fill(before, used, 4096, 1);
    Free(used);
    ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    const Status reserved = Get(pool).mode().Reserve(64 * kMiB);
    ASSERT_TRUE(reserved.ok()) << reserved.message();
    BeginCapture(pool);
    Free(Allocate(pool, 64 * kMiB, stream_));
    ASSERT_TRUE(capture_.End().ok());
    capture_.DestroyGraph();
    End(pool);
  }
}

// New memory must not merge with what another stream of the capture used: the request could not take it, and grew
// again.
TEST_P(CaptureGrowthOf, GrowsOnceBesideMemoryThatAForkUsed) {
  const PoolHandle pool = Create(Of(GetParam()));
  BeginCapture(pool);
  CUevent fork = nullptr;
  ASSERT_EQ(cuda().cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventRecord(fork, stream_.get()), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(other_.get(), fork, 0), CUDA_SUCCESS);
  Free(Allocate(pool, 2 * kMiB, other_));
  const uint64_t before = CountersOf(pool).reserved_bytes.current;
  const CUdeviceptr block = Allocate(pool, 2 * kMiB, stream_);
  EXPECT_LE(CountersOf(pool).reserved_bytes.current, 2 * before);
  Free(block);
  ASSERT_EQ(cuda().cuEventRecord(fork, other_.get()), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(stream_.get(), fork, 0), CUDA_SUCCESS);
  ASSERT_TRUE(capture_.End().ok());
  EXPECT_EQ(cuda().cuEventDestroy(fork), CUDA_SUCCESS);
  capture_.DestroyGraph();
  End(pool);
}

// pytorch#175560: nobody can ask later for streams without a promise, so what a graph used on them never came back.
TEST_P(CaptureGrowthOf, TakesAgainWhatGraphsThatAreGoneUsedOnStreamsWithoutAPromise) {
  PoolConfiguration configuration = Of(GetParam());
  configuration.streams = Streams::kMayDie;
  const PoolHandle pool = Create(configuration);
  CUstream origin = nullptr;
  CUevent fork = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  uint64_t after_first = 0;
  for (int round = 0; round < 16; ++round) {
    ASSERT_TRUE(capture_.Begin(runtime(), pool, origin).ok());
    const CUdeviceptr block = AllocateForAFork(pool, origin, fork);
    Free(block);
    capture_.EndOnTheStream();
    ASSERT_TRUE(capture_.EndForThePool().ok());
    capture_.Replay(origin);
    capture_.DestroyGraph();
    Get(pool).captures().AwaitEndedGraphs();
    if (round == 0) after_first = CountersOf(pool).reserved_bytes.current;
    EXPECT_EQ(CountersOf(pool).reserved_bytes.current, after_first);
  }
  EXPECT_EQ(cuda().cuEventDestroy(fork), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamDestroy(origin), CUDA_SUCCESS);
  End(pool);
}

// The stream left the capture, and used the block again before the announcement ended.
TEST_P(CaptureGrowthOf, TakesNothingThatAStreamUsesBesideTheGraph) {
  COMMPOOL_REQUIRE_EMULATOR("work that a test ends");
  PoolConfiguration configuration = Of(GetParam());
  configuration.streams = Streams::kMayDie;
  const PoolHandle pool = Create(configuration);
  CUstream origin = nullptr;
  CUevent fork = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_TRUE(capture_.Begin(runtime(), pool, origin).ok());
  const CUdeviceptr block = AllocateForAFork(pool, origin, fork);
  capture_.EndOnTheStream();
  HeldWork work(driver(), unpromised_, block);
  ASSERT_TRUE(runtime().RecordStream(block, unpromised_).ok());
  Free(block);
  ASSERT_TRUE(capture_.EndForThePool().ok());
  capture_.DestroyGraph();
  Get(pool).captures().AwaitEndedGraphs();
  const CUdeviceptr other = Allocate(pool, 2 * kMiB, other_);
  Fill(other_.get(), other, 4096, 2);  // the emulator tells of a race where it is the block, and waits for nothing
  work.End();
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  Free(other);
  EXPECT_EQ(cuda().cuEventDestroy(fork), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamDestroy(origin), CUDA_SUCCESS);
  End(pool);
}

INSTANTIATE_TEST_SUITE_P(Modes, CaptureGrowthOf, ::testing::Values(Mode::kFixed, Mode::kExpandable));

// Pages of an expandable pool merge with free neighbours. But nobody can wait for a captured stream, so new pages must
// not merge with memory that such a stream used.
TEST_F(CaptureGrowth, ServesOtherStreamsBesideMemoryThatTheCapturedOneUsed) {
  constexpr int kPlaces = 6;
  PoolConfiguration configuration = Of(Mode::kExpandable);
  configuration.segment_bytes = kPage;
  const PoolHandle pool = Create(configuration);
  std::vector<CUdeviceptr> idle, holes, used, live;
  for (int place = 0; place < kPlaces; ++place) {
    idle.push_back(Allocate(pool, kPage, other_));
    holes.push_back(Allocate(pool, kPage, other_));
    used.push_back(Allocate(pool, kPage, stream_));
    live.push_back(Allocate(pool, kPage, other_));
  }
  for (const CUdeviceptr page : holes) Free(page);
  ASSERT_TRUE(Get(pool).Trim(0).ok());
  for (const CUdeviceptr page : idle) Free(page);
  ASSERT_TRUE(Get(pool).blocks().WaitForDevice().ok());
  for (const CUdeviceptr page : used) Free(page);
  const uint64_t before = CountersOf(pool).reserved_bytes.current;
  EXPECT_EQ(before, 3 * kPlaces * kPage);

  BeginCapture(pool);
  const CUdeviceptr block = Allocate(pool, 2 * kPage, other_);
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, before + kPage) << "one growth, of what was missing";
  Free(block);
  for (const CUdeviceptr page : live) Free(page);
  ASSERT_TRUE(capture_.End().ok());
  capture_.DestroyGraph();
  End(pool);
}

}  // namespace
}  // namespace commpool::internal::testing
