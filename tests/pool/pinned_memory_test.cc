// Pools of pinned memory: when a freed block serves again, how much the host gives for what was asked, and where it
// lies. The CPU writes into a block as soon as it has it, while a copy that was submitted before may still read there.
#include <algorithm>
#include <cstring>
#include <string>

#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBlock = 3 * kMiB;
const CUstream kOfNone = COMMPOOL_NO_STREAM;

class PinnedMemory : public PoolTest {
 protected:
  PoolHandle CreatePinned(engine::FreeOrder frees = engine::FreeOrder::kDeferred, Streams streams = Streams::kOutlive) {
    PoolConfiguration configuration =
        ConfiguredWith({.name = "pinned", .kind = BackingKind::kPinned, .streams = streams, .deadline_ms = 5000});
    configuration.frees = frees;
    return Create(configuration);
  }
  CUdeviceptr Allocate(PoolHandle pool, CUstream stream, uint64_t bytes = kBlock) {
    return PoolTest::Allocate(pool, bytes, stream);
  }
  // The CPU would overwrite what the copy reads.
  void ExpectNotServedBefore(HeldWork& copy, PoolHandle pool, CUdeviceptr block, CUstream stream, uint64_t bytes) {
    EXPECT_NE(Allocate(pool, stream, bytes), block);
    EXPECT_GE(CountersOf(pool).pending_bytes, bytes);
    EndAndReclaim(copy, pool);
  }
  void EndAndReclaim(HeldWork& copy, PoolHandle pool) {
    copy.End();
    Synchronize();
    ExpectOk(Get(pool).mode().Reclaim().status());
    EXPECT_EQ(CountersOf(pool).pending_bytes, 0u);
  }

  const TestStream stream_;
  const TestStream other_;
};

TEST_F(PinnedMemory, ServesItsOwnStreamOnlyOnceTheWorkHasPassed) {
  for (const uint64_t bytes : {kBlock, uint64_t{4096}}) {
    const PoolHandle pool = CreatePinned();
    const CUdeviceptr first = Allocate(pool, stream_, bytes);
    HeldWork copy(driver(), stream_, first);
    Free(first);
    ExpectNotServedBefore(copy, pool, first, stream_, bytes);
    CheckInvariants(Get(pool));
    EXPECT_EQ(Allocate(pool, stream_, bytes), first) << "it has passed, and is kept for the next request";
  }
}

TEST_F(PinnedMemory, ServesAtOnceAndNeedsNoEventWhereItsStreamsAreIdle) {
  const PoolHandle pool = CreatePinned();
  const CUdeviceptr first = Allocate(pool, stream_);
  EXPECT_TRUE(runtime().RecordStream(first, other_).ok());
  uint64_t events = CallCount("cuEventRecord");
  Free(first);
  EXPECT_EQ(CountersOf(pool).pending_bytes, 0u);
  EXPECT_EQ(Allocate(pool, stream_), first);
  EXPECT_EQ(CallCount("cuEventRecord"), events);
  HeldWork copy(driver(), other_, first);
  EXPECT_TRUE(runtime().RecordStream(first, other_).ok());
  events = CallCount("cuEventRecord");
  Free(first);
  EXPECT_EQ(CallCount("cuEventRecord"), events + 1) << "one of both is at work";
  EXPECT_NE(Allocate(pool, stream_), first);
  copy.End();
  Synchronize();
}

TEST_F(PinnedMemory, OfNoStreamServesAgainWithoutADriverCall) {
  const PoolHandle pool = CreatePinned();
  for (const uint64_t bytes : {kBlock, uint64_t{4096}}) {
    const CUdeviceptr first = Allocate(pool, kOfNone, bytes);
    const uint64_t calls = CallCount("*");
    Free(first);
    EXPECT_EQ(Allocate(pool, kOfNone, bytes), first);
    ExpectCalls("*", calls, 0);
    EXPECT_EQ(CountersOf(pool).pending_bytes, 0u);
    Free(first);
  }
}

TEST_F(PinnedMemory, OfNoStreamWaitsForTheStreamsThatWereRecorded) {
  for (const uint64_t bytes : {kBlock, uint64_t{4096}}) {
    const PoolHandle pool = CreatePinned();
    Free(Allocate(pool, kOfNone, bytes));  // the small one goes into this thread's cache, which serves it next
    const CUdeviceptr first = Allocate(pool, kOfNone, bytes);
    HeldWork copy(driver(), other_, first);
    EXPECT_TRUE(runtime().RecordStream(first, other_).ok());
    Free(first);
    ExpectNotServedBefore(copy, pool, first, kOfNone, bytes);
  }
}

TEST_F(PinnedMemory, OfNoStreamThatACaptureReadsIsNotServedBeforeItEnds) {
  const PoolHandle pool = CreatePinned();
  AnnouncedCapture capture;
  const CUdeviceptr block = Allocate(pool, kOfNone);
  EXPECT_TRUE(capture.Begin(runtime(), pool, stream_).ok());
  EXPECT_TRUE(runtime().RecordStream(block, stream_).ok());
  Free(block);
  const CUdeviceptr other = Allocate(pool, kOfNone);
  EXPECT_NE(other, block);
  Free(other);
  EXPECT_TRUE(capture.End().ok());
}

TEST_F(PinnedMemory, OfNoStreamIsServedWhileAStreamCaptures) {
  const PoolHandle pool = CreatePinned();
  Free(Allocate(pool, stream_));  // the capture of the pool may not grow it
  AnnouncedCapture capture;
  EXPECT_TRUE(capture.Begin(runtime(), pool, stream_).ok());
  const CUdeviceptr block = Allocate(pool, kOfNone);
  Free(block);
  EXPECT_EQ(Allocate(pool, kOfNone), block) << "no graph has it";
  Free(block);
  EXPECT_TRUE(capture.End().ok());
}

TEST_F(PinnedMemory, AloneMayBeOfNoStream) {
  const PoolHandle ordered = CreatePinned(engine::FreeOrder::kOrdered);
  const PoolHandle of_device = Create(Configured("device"));
  for (const PoolHandle pool : {ordered, of_device}) {
    ExpectFailure(TryAllocate(pool, kBlock, kOfNone).status(), StatusCode::kInvalidArgument, "COMMPOOL_NO_STREAM");
  }
  const CUdeviceptr block = Allocate(CreatePinned(), kOfNone);
  for (const Status& status : {runtime().RecordStream(block, kOfNone), runtime().PromiseStream(kOfNone),
                               runtime().ReleaseStream(kOfNone), runtime().Allocate(0, kBlock, kOfNone).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  }
}

TEST_F(PinnedMemory, IsThatOfTwoStepsAtMostWhereEachEndsBeforeTheNext) {
  const PoolHandle pool = CreatePinned();
  for (int step = 0; step < 20; ++step) {
    for (const uint64_t bytes : {kBlock, uint64_t{20000}, 9 * kMiB}) {
      const CUdeviceptr block = Allocate(pool, stream_, bytes);
      HeldWork copy(driver(), stream_, block);
      copy.End();
      Free(block);
    }
    Synchronize();
  }
  EXPECT_LE(Reserved(pool), 2 * (kBlock + 2 * kMiB + 9 * kMiB));
}

TEST_F(PinnedMemory, WaitsForEveryStreamThatUsedABlock) {
  const PoolHandle pool = CreatePinned();
  const CUdeviceptr first = Allocate(pool, stream_);
  HeldWork copy(driver(), other_, first);
  EXPECT_TRUE(runtime().RecordStream(first, other_).ok());
  Free(first);
  EXPECT_NE(Allocate(pool, stream_), first);
  copy.End();
  Synchronize();
  EXPECT_EQ(Allocate(pool, other_), first) << "any stream's";
}

TEST_F(PinnedMemory, ServesNoOtherStreamBehindAWaitOfTheDevice) {
  const PoolHandle pool = CreatePinned();
  const CUdeviceptr first = Allocate(pool, stream_);
  HeldWork copy(driver(), stream_, first);
  Free(first);
  const uint64_t waits = CallCount("cuStreamWaitEvent");
  EXPECT_NE(Allocate(pool, other_), first);
  EXPECT_EQ(CallCount("cuStreamWaitEvent"), waits);
  copy.End();
  Synchronize();
}

TEST_F(PinnedMemory, ServesAtOnceWhereTheProgramKeepsToTheStreamsOrder) {
  const PoolHandle pool = CreatePinned(engine::FreeOrder::kOrdered);
  const CUdeviceptr first = Allocate(pool, stream_);
  HeldWork copy(driver(), stream_, first);
  Free(first);
  EXPECT_EQ(Allocate(pool, stream_), first);
}

// The CPU writes while the capture is made, and both copies read when the graph runs.
TEST_F(PinnedMemory, IsNotReusedInACaptureThatFreedIt) {
  const PoolHandle pool = CreatePinned();
  ASSERT_TRUE(Get(pool).mode().Reserve(4 * kBlock).ok());
  AnnouncedCapture capture;
  ASSERT_TRUE(capture.Begin(runtime(), pool, stream_).ok());
  const CUdeviceptr first = Allocate(pool, stream_);
  Free(first);
  const CUdeviceptr second = Allocate(pool, stream_);
  EXPECT_NE(second, first);
  Free(second);
  EXPECT_TRUE(capture.End().ok());
  CheckInvariants(Get(pool));
}

// A free that asked the capturing stream how far it is, or recorded an event on it, would break the capture.
TEST_F(PinnedMemory, FreedInACaptureThatNobodyAnnouncedServesAfterIt) {
  const PoolHandle pool = CreatePinned();
  for (const CUstream captured : {stream_.get(), other_.get()}) {
    const CUdeviceptr first = Allocate(pool, stream_);
    EXPECT_TRUE(runtime().RecordStream(first, other_).ok());
    HeldWork copy(driver(), captured, first);
    ASSERT_EQ(cuda().cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    Free(first);
    EXPECT_TRUE(Get(pool).mode().Reclaim().ok());
    EndAndDropGraph(captured);
    const CUdeviceptr second = Allocate(pool, stream_);
    EXPECT_NE(second, first) << "the copy that was submitted before has not passed";
    EndAndReclaim(copy, pool);
    EXPECT_EQ(Allocate(pool, stream_), first);
    FreeAll({first, second});
    EXPECT_TRUE(Get(pool).Trim(0).ok());
  }
}

TEST_F(PinnedMemory, OfAStreamThatIsGoneServesAfterAWaitForTheDevice) {
  const PoolHandle pool = CreatePinned(engine::FreeOrder::kDeferred, Streams::kMayDie);
  uint64_t most = 0;
  for (int round = 0; round < 40; ++round) {
    const CUstream gone = NewStream();
    Free(Allocate(pool, gone, 8 * kMiB));
    DestroyStream(gone);
    most = std::max(most, Reserved(pool));
  }
  EXPECT_LE(most, 64 * kMiB) << "320 MiB were allocated, 8 MiB at a time";
}

TEST_F(PinnedMemory, IsTakenByExactSize) {
  const PoolHandle pool = CreatePinned();
  uint64_t seed = 7;
  for (int block = 0; block < 300; ++block) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bytes = block % 3 == 0 ? 1 + (seed >> 33) % (64 * kKiB) : kMiB + (seed >> 33) % (40 * kMiB);
    Allocate(pool, stream_, bytes);
  }
  const commpool_statistics counters = CountersOf(pool);
  const double ratio =
      static_cast<double>(counters.reserved_bytes.current) / static_cast<double>(counters.requested_bytes.current);
  RecordProperty("resident_of_requested", std::to_string(ratio));
  EXPECT_LE(ratio, 1.01);
}

TEST_F(PinnedMemory, ThatComesBackIsTheHostsAgain) {
  const PoolHandle pool = CreatePinned();
  Free(Allocate(pool, stream_));
  EXPECT_EQ(Get(pool).Trim(0).value(), kBlock);
  EXPECT_EQ(Reserved(pool), 0u);
}

TEST_F(PinnedMemory, IsReadAndWrittenByCpuAndDevices) {
  const PoolHandle pool = CreatePinned();
  const CUdeviceptr block = Allocate(pool, stream_);
  std::memset(reinterpret_cast<void*>(block), 0x3c, kBlock);
  ExpectBytes(stream_, block, kBlock, 0x3c);
}

TEST_F(PinnedMemory, BeyondTheHostsIsOutOfMemoryAndThePoolGoesOn) {
  ASSERT_EQ(EmulatorSetting("host_memory"), "8GiB") << "BUILD sets it";
  const PoolHandle pool = CreatePinned();
  ExpectFailure(TryAllocate(pool, 9 * kGiB, stream_).status(), StatusCode::kOutOfMemory, "cuMemHostAlloc of 9 GiB");
  Free(Allocate(pool, stream_));
}

// Each thread holds at most one block. What one wait freed another thread may take, so a request waits again.
TEST_F(PinnedMemory, OfThreadsThatHoldNoMoreThanTheLimitServesThemAll) {
  const PoolHandle pool =
      CreateWith({.kind = BackingKind::kPinned, .streams = Streams::kMayDie, .limit_bytes = 4 * kBlock});
  OnThreads(4, [&](int) {
    const ContextGuard current(driver(), context());
    const CUstream own = NewStream();
    for (int step = 0; step < 10000; ++step) {
      const CUdeviceptr block = Allocate(pool, own);
      if (block == 0) break;
      EXPECT_EQ(cuda().cuMemsetD8Async(block, 1, 100, own), CUDA_SUCCESS);
      Free(block);
    }
    DestroyStream(own);
  });
}

TEST_F(PinnedMemory, InPiecesIsNotToldToMove) {
  const PoolHandle pool =
      CreateWith({.kind = BackingKind::kPinned, .segment_bytes = 12 * kMiB, .limit_bytes = 12 * kMiB});
  std::vector<CUdeviceptr> blocks;
  for (int block = 0; block < 4; ++block) blocks.push_back(Allocate(pool, stream_));
  Free(blocks[0]);
  Free(blocks[2]);
  const Status full = TryAllocate(pool, 2 * kBlock, stream_).status();
  EXPECT_EQ(full.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(full.message().find("EXPANDABLE"), std::string::npos) << full.message();
}

TEST_F(PinnedMemory, LiesOnTheNodeThatIsNamed) {
  PoolConfiguration configuration = Configured("pinned");
  configuration.backing = {.kind = BackingKind::kPinned, .placement = {.device = 0, .numa_node = 1}};
  const PoolHandle pool = Create(configuration);
  EXPECT_EQ(Get(pool).segments().backing->Facts().what,
            "host NUMA node 1, bound and registered, no handle, node not proven");
  Allocate(pool, stream_, 5 * kMiB + 1);
  EXPECT_EQ(Reserved(pool), 5 * kMiB + 4096);
  configuration.backing.placement.numa_node = 63;
  ExpectFailure(runtime().CreatePool(configuration).status(), StatusCode::kInvalidArgument, "no host NUMA node 63");
}

TEST_F(PinnedMemory, CountsOnTheHostAndNotOnTheDevice) {
  runtime().devices().Get(0).value()->account().SetLimit(kMiB);
  const PoolHandle pool = CreatePinned();
  EXPECT_EQ(Get(pool).segments().backing->Facts().what, "host");
  Free(Allocate(pool, stream_));
}

}  // namespace
}  // namespace commpool::internal::testing
