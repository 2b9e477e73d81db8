// Blocks of a fixed pool: which memory serves, and the order of streams that use it.
#include <optional>
#include <thread>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBytes = 256 * kKiB;

class FixedPoolBlocks : public PoolTest {
 protected:
  using PoolTest::Allocate;
  CUdeviceptr Allocate(uint64_t bytes, const TestStream& stream) { return Allocate(pool_, bytes, stream); }
  // The stream's work: fills a block for a while, then looks at it.
  void FillAndCompare(CUstream stream, CUdeviceptr block, uint8_t value, int times, uint64_t* wrong) {
    for (int round = 0; round < times; ++round) Fill(stream, block, 2 * kMiB, value);
    Compare(stream, block, 2 * kMiB, value, wrong);
  }

  const TestStream stream_;
  const TestStream other_;
  PoolHandle pool_ = Create(Configured("blocks"));
};

TEST_F(FixedPoolBlocks, ACachedPairMakesNoDriverCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  Free(Allocate(kBytes, stream_));
  const uint64_t before = CallCount("*");
  Free(Allocate(kBytes, stream_));
  EXPECT_EQ(CallCount("*"), before);
}

TEST_F(FixedPoolBlocks, TheSameStreamTakesAFreedBlockAgain) {
  const CUdeviceptr first = Allocate(kBytes, stream_);
  Free(first);
  EXPECT_EQ(Allocate(kBytes, stream_), first);
}

TEST_F(FixedPoolBlocks, AnotherStreamGetsOtherMemoryWhileThereIsSome) {
  const CUdeviceptr first = Allocate(kBytes, stream_);
  Free(first);
  EXPECT_NE(Allocate(kBytes, other_), first);
}

TEST_F(FixedPoolBlocks, FreeMemoryMakesWayForSizesThatTheProgramNeedsNow) {
  Free(Allocate(256 * kMiB, stream_));
  Synchronize();  // how long a pool waits for busy memory depends on the clock
  Allocate(512 * kMiB, stream_);
  EXPECT_EQ(Reserved(pool_), 512 * kMiB);
}

// rmm#496: growth by more than a request left a rest of each segment that served nobody.
TEST_F(FixedPoolBlocks, BlocksOfOneSizeFillTheLimit) {
  for (const uint64_t bytes : {12 * kMiB, 20 * kMiB, 50 * kMiB, 80 * kMiB, 100 * kMiB}) {
    const PoolHandle pool = CreateWith({.name = "full", .limit_bytes = 40 * kGiB});
    std::vector<CUdeviceptr> blocks;
    for (;;) {
      const Result<CUdeviceptr> block = TryAllocate(pool, bytes, stream_);
      if (!block.ok()) break;
      blocks.push_back(*block);
    }
    EXPECT_GE(blocks.size() * bytes, 99 * 40 * kGiB / 100) << bytes;
    FreeAll(blocks);
    Destroy(pool);
  }
}

TEST_F(FixedPoolBlocks, ASegmentThatStandsFreeIsCutForABlockThatIsMuchSmaller) {
  const CUdeviceptr large = Allocate(512 * kMiB, stream_);
  Allocate(512 * kMiB, stream_);
  Free(large);
  Synchronize();
  EXPECT_EQ(Allocate(96 * kMiB, stream_), large);
  EXPECT_EQ(Reserved(pool_), kGiB);
}

TEST_F(FixedPoolBlocks, OfARepeatedStepNeedNoDriverAfterTheFirst) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const auto step = [&] {
    for (const uint64_t bytes : {512 * kMiB, 96 * kMiB, 640 * kMiB}) {
      const CUdeviceptr block = Allocate(bytes, stream_);
      const CUdeviceptr other = Allocate(64 * kMiB, stream_);
      FreeAll({block, other});
      Synchronize();
    }
  };
  const uint64_t unmapped = CallCount("cuMemUnmap");
  step();
  const uint64_t made = CallCount("cuMemCreate");
  for (int times = 0; times < 10; ++times) step();
  EXPECT_EQ(CallCount("cuMemCreate"), made);
  EXPECT_EQ(CallCount("cuMemUnmap") - unmapped, 2u) << "the first two segments made way for the largest";
}

TEST_F(FixedPoolBlocks, ASegmentThatIsBusyIsCutRatherThanWaitedFor) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const CUdeviceptr busy = Allocate(512 * kMiB, stream_);
  Allocate(512 * kMiB, stream_);
  HeldWork work(driver(), stream_, busy);
  Free(busy);
  EXPECT_EQ(Allocate(96 * kMiB, stream_), busy) << "on its own stream, behind the work";
  EXPECT_EQ(Reserved(pool_), kGiB);
  EXPECT_EQ(CountersOf(pool_).host_waits, 0u);
}

TEST_F(FixedPoolBlocks, AreNotAskedAboutBehindWorkThatStillRuns) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const CUdeviceptr busy = Allocate(16 * kMiB, stream_);
  HeldWork work(driver(), stream_, busy);
  Free(busy);
  constexpr uint64_t kTimes = 8;
  const uint64_t asked = CallCount("cuEventQuery");
  const uint64_t recorded = CallCount("cuEventRecord");
  for (uint64_t time = 1; time <= kTimes; ++time) Free(Allocate((16 + 2 * time) * kMiB, stream_));
  EXPECT_GE(CallCount("cuEventRecord") - recorded, kTimes) << "each looks whether memory may make way";
  EXPECT_LE(CallCount("cuEventQuery") - asked, 2 * kTimes) << "the first alone is asked about";
}

TEST_F(FixedPoolBlocks, MemoryThatIsBusyIsNotWaitedForWhileThePoolMayGrow) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  constexpr uint64_t kHuge = 4 * kGiB;
  const CUdeviceptr busy = Allocate(kHuge, stream_);
  HeldWork work(driver(), stream_, busy);
  Free(busy);
  const uint64_t waits = CountersOf(pool_).host_waits;
  Allocate(kHuge + kGiB, stream_);
  EXPECT_EQ(CountersOf(pool_).host_waits, waits);
  EXPECT_EQ(Reserved(pool_), 2 * kHuge + kGiB);
}

TEST_F(FixedPoolBlocks, OfEverySizeAreServedFromReservedMemory) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(64 * kMiB).ok());
  for (const uint64_t bytes : {kKiB, kMiB, 16 * kMiB}) Allocate(bytes, stream_);
  EXPECT_EQ(Reserved(pool_), 64 * kMiB);
}

TEST_F(FixedPoolBlocks, ReservedMemoryStaysUntilATrim) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(256 * kMiB).ok());
  Free(Allocate(512 * kMiB, stream_));
  Synchronize();
  EXPECT_EQ(Reserved(pool_), 768 * kMiB);
  ASSERT_TRUE(Get(pool_).Trim(256 * kMiB).ok());
  Allocate(1024 * kMiB, stream_);
  EXPECT_EQ(Reserved(pool_), 1024 * kMiB);
}

TEST_F(FixedPoolBlocks, AreDescribedWithTheirStreams) {
  const CUdeviceptr first = Allocate(kBytes, stream_);
  const CUdeviceptr second = Allocate(kBytes, other_);
  EXPECT_EQ(Get(pool_).FindBlock(first)->stream, stream_.key());
  EXPECT_EQ(Get(pool_).FindBlock(second)->stream, other_.key());
}

TEST_F(FixedPoolBlocks, AreAlignedAndDoNotOverlap) {
  std::vector<DeviceRange> blocks;
  for (const uint64_t bytes : {1, 511, 512, 513, 4096, 1000000}) {
    const CUdeviceptr address = Allocate(bytes, stream_);
    EXPECT_EQ(address % 512, 0u);
    for (const DeviceRange& block : blocks) {
      EXPECT_TRUE(address + bytes <= block.address || block.address + block.bytes <= address);
    }
    blocks.push_back({address, bytes});
  }
  for (const DeviceRange& block : blocks) Free(block.address);
  EXPECT_EQ(CountersOf(pool_).allocated_blocks.current, 0u);
}

TEST_F(FixedPoolBlocks, TheAlignmentOptionHoldsForEveryBlock) {
  PoolConfiguration configuration = Configured("aligned");
  configuration.alignment_bytes = 64 * kKiB;
  const PoolHandle pool = Create(configuration);
  for (int count = 0; count < 3; ++count) EXPECT_EQ(Allocate(pool, 1, stream_) % (64 * kKiB), 0u);
}

TEST_F(FixedPoolBlocks, ABlockThatAnotherStreamUsesIsNotReusedBeforeItsEvent) {
  const CUdeviceptr address = Allocate(kBytes, stream_);
  Fill(other_, address, kBytes, 1);
  ASSERT_TRUE(runtime().RecordStream(address, other_).ok());
  Free(address);
  // The other stream's work may be done or not: in both cases the next user's data must be right.
  const CUdeviceptr next = Allocate(kBytes, stream_);
  Fill(stream_, next, kBytes, 2);
  ExpectBytes(stream_, next, kBytes, 2);
}

TEST_F(FixedPoolBlocks, RecordingTheBlocksOwnStreamCostsNoEvent) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const CUdeviceptr address = Allocate(kBytes, stream_);
  ASSERT_TRUE(runtime().RecordStream(address, stream_).ok());
  const uint64_t before = CallCount("cuEventRecord");
  Free(address);
  EXPECT_EQ(CallCount("cuEventRecord"), before);
}

TEST_F(FixedPoolBlocks, EventsAreMadeOnceAndRecycled) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const auto use_on_both = [&] {
    const CUdeviceptr address = Allocate(kBytes, stream_);
    ASSERT_TRUE(runtime().RecordStream(address, other_).ok());
    Free(address);
    Synchronize(other_);
  };
  // Only some allocations ask which fences have passed, so it takes a while until enough memory is back.
  for (int round = 0; round < 20; ++round) use_on_both();
  const uint64_t before = CallCount("cuEventCreate");
  for (int round = 0; round < 20; ++round) use_on_both();
  EXPECT_EQ(CallCount("cuEventCreate"), before);
}

TEST_F(FixedPoolBlocks, AreFreedOnAnyThread) {
  const CUdeviceptr address = Allocate(kBytes, stream_);
  std::thread([&] { Free(address); }).join();
  EXPECT_EQ(CountersOf(pool_).allocated_blocks.current, 0u);
}

TEST_F(FixedPoolBlocks, TheCallersDeviceStaysCurrent) {
  COMMPOOL_REQUIRE_DEVICES(2);
  CUcontext before = nullptr;
  CUcontext after = nullptr;
  ASSERT_EQ(cuda().cuCtxGetCurrent(&before), CUDA_SUCCESS);
  const PoolHandle far = Create(Configured("far", 1));
  Free(Allocate(far, kBytes));
  ASSERT_TRUE(Get(far).Trim(0).ok());
  ASSERT_EQ(cuda().cuCtxGetCurrent(&after), CUDA_SUCCESS);
  EXPECT_EQ(after, before);
}

// A pool of one segment: streams must share its memory.
class SharedBlock : public FixedPoolBlocks {
 protected:
  SharedBlock() { pool_ = CreateWith({.name = "shared", .limit_bytes = 2 * kMiB}); }
};

TEST_F(SharedBlock, GoesToAnotherStreamWhenMemoryIsOutBehindADeviceSideWait) {
  const CUdeviceptr first = Allocate(2 * kMiB, stream_);
  std::optional<HeldWork> held;  // for the emulator; on hardware the fills last long enough
  if (OnEmulator()) held.emplace(driver(), stream_, first);
  uint64_t first_wrong = kBytes;
  FillAndCompare(stream_, first, 1, 20, &first_wrong);
  Free(first);
  const uint64_t waits = CallCount("cuStreamWaitEvent");
  const uint64_t host_waits = CallCount("cuCtxSynchronize");
  const CUdeviceptr second = Allocate(2 * kMiB, other_);
  EXPECT_EQ(second, first);
  if (OnEmulator()) {
    EXPECT_EQ(CallCount("cuStreamWaitEvent"), waits + 1);
    EXPECT_EQ(CallCount("cuCtxSynchronize"), host_waits);
    held->End();
  }
  uint64_t second_wrong = kBytes;
  FillAndCompare(other_, second, 2, 1, &second_wrong);
  Synchronize();
  EXPECT_EQ(first_wrong, 0u) << "the second stream wrote before the first had read";
  EXPECT_EQ(second_wrong, 0u) << "the first stream wrote after the second";
}

TEST_F(SharedBlock, WaitsForAStreamThatRecordStreamNamed) {
  const CUdeviceptr first = Allocate(2 * kMiB, stream_);
  uint64_t first_wrong = kBytes;
  FillAndCompare(other_, first, 1, 20, &first_wrong);
  ASSERT_TRUE(runtime().RecordStream(first, other_).ok());
  Free(first);
  const CUdeviceptr second = Allocate(2 * kMiB, stream_);
  EXPECT_EQ(second, first);
  uint64_t second_wrong = kBytes;
  FillAndCompare(stream_, second, 2, 1, &second_wrong);
  Synchronize();
  EXPECT_EQ(first_wrong, 0u);
  EXPECT_EQ(second_wrong, 0u);
}

TEST_F(SharedBlock, PiecesThatDifferentStreamsUsedMergeAfterAHostWait) {
  const CUdeviceptr lower = Allocate(1 * kMiB, stream_);
  const CUdeviceptr upper = Allocate(1 * kMiB, other_);
  Free(lower);
  Free(upper);
  Allocate(pool_, 2 * kMiB, stream_);
}

}  // namespace
}  // namespace commpool::internal::testing
