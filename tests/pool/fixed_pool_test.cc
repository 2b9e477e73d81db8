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
  CUdeviceptr Allocate(uint64_t bytes, const TestStream& stream) {
    return runtime().AllocateFrom(pool_, bytes, stream.get()).value();
  }
  Status Free(CUdeviceptr address) { return runtime().Free(address); }

  const TestStream stream_;
  const TestStream other_;
  PoolHandle pool_ = Create(Configured("blocks"));
};

TEST_F(FixedPoolBlocks, ACachedPairMakesNoDriverCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  ASSERT_TRUE(Free(Allocate(kBytes, stream_)).ok());
  const uint64_t before = CallCount("*");
  const CUdeviceptr address = Allocate(kBytes, stream_);
  ASSERT_TRUE(Free(address).ok());
  EXPECT_EQ(CallCount("*"), before);
}

TEST_F(FixedPoolBlocks, TheSameStreamTakesAFreedBlockAgain) {
  const CUdeviceptr first = Allocate(kBytes, stream_);
  ASSERT_TRUE(Free(first).ok());
  const CUdeviceptr second = Allocate(kBytes, stream_);
  EXPECT_EQ(second, first);
  EXPECT_TRUE(Free(second).ok());
}

TEST_F(FixedPoolBlocks, AnotherStreamGetsOtherMemoryWhileThereIsSome) {
  const CUdeviceptr first = Allocate(kBytes, stream_);
  ASSERT_TRUE(Free(first).ok());
  const CUdeviceptr second = Allocate(kBytes, other_);
  EXPECT_NE(second, first);
  EXPECT_TRUE(Free(second).ok());
}

TEST_F(FixedPoolBlocks, FreeMemoryMakesWayForSizesThatTheProgramNeedsNow) {
  ASSERT_TRUE(Free(Allocate(256 * kMiB, stream_)).ok());
  driver().cuda.cuCtxSynchronize();  // how long a pool waits for busy memory depends on the clock
  const CUdeviceptr larger = Allocate(512 * kMiB, stream_);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 512 * kMiB);
  EXPECT_TRUE(Free(larger).ok());
}

// rmm#496: growth by more than a request left a rest of each segment that served nobody.
TEST_F(FixedPoolBlocks, BlocksOfOneSizeFillTheLimit) {
  for (const uint64_t bytes : {12 * kMiB, 20 * kMiB, 50 * kMiB, 80 * kMiB, 100 * kMiB}) {
    PoolConfiguration configuration = Configured("full");
    configuration.limit_bytes = 40 * kGiB;
    const PoolHandle pool = Create(configuration);
    std::vector<CUdeviceptr> blocks;
    for (;;) {
      const Result<CUdeviceptr> block = runtime().AllocateFrom(pool, bytes, stream_.get());
      if (!block.ok()) break;
      blocks.push_back(*block);
    }
    EXPECT_GE(blocks.size() * bytes, 99 * 40 * kGiB / 100) << bytes;
    for (const CUdeviceptr block : blocks) EXPECT_TRUE(Free(block).ok());
    EXPECT_TRUE(runtime().DestroyPool(pool).ok());
  }
}

TEST_F(FixedPoolBlocks, ASegmentThatStandsFreeIsCutForABlockThatIsMuchSmaller) {
  const CUdeviceptr large = Allocate(512 * kMiB, stream_);
  const CUdeviceptr kept = Allocate(512 * kMiB, stream_);
  ASSERT_TRUE(Free(large).ok());
  driver().cuda.cuCtxSynchronize();
  const CUdeviceptr small = Allocate(96 * kMiB, stream_);
  EXPECT_EQ(small, large);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, kGiB);
  for (const CUdeviceptr block : {kept, small}) EXPECT_TRUE(Free(block).ok());
}

TEST_F(FixedPoolBlocks, OfARepeatedStepNeedNoDriverAfterTheFirst) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const auto step = [&] {
    for (const uint64_t bytes : {512 * kMiB, 96 * kMiB, 640 * kMiB}) {
      const CUdeviceptr block = Allocate(bytes, stream_);
      const CUdeviceptr other = Allocate(64 * kMiB, stream_);
      for (const CUdeviceptr address : {block, other}) ASSERT_TRUE(Free(address).ok());
      driver().cuda.cuCtxSynchronize();
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
  const CUdeviceptr kept = Allocate(512 * kMiB, stream_);
  HeldWork work(driver(), stream_.get(), busy);
  ASSERT_TRUE(Free(busy).ok());
  const CUdeviceptr small = Allocate(96 * kMiB, stream_);
  EXPECT_EQ(small, busy) << "on its own stream, behind the work";
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, kGiB);
  EXPECT_EQ(Get(pool_).Statistics().host_waits, 0u);
  work.End();
  for (const CUdeviceptr block : {kept, small}) EXPECT_TRUE(Free(block).ok());
}

TEST_F(FixedPoolBlocks, AreNotAskedAboutBehindWorkThatStillRuns) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const CUdeviceptr busy = Allocate(16 * kMiB, stream_);
  HeldWork work(driver(), stream_.get(), busy);
  ASSERT_TRUE(Free(busy).ok());
  constexpr uint64_t kTimes = 8;
  const uint64_t asked = CallCount("cuEventQuery");
  const uint64_t recorded = CallCount("cuEventRecord");
  for (uint64_t time = 1; time <= kTimes; ++time) {
    ASSERT_TRUE(Free(Allocate((16 + 2 * time) * kMiB, stream_)).ok());
  }
  EXPECT_GE(CallCount("cuEventRecord") - recorded, kTimes) << "each looks whether memory may make way";
  EXPECT_LE(CallCount("cuEventQuery") - asked, 2 * kTimes) << "the first alone is asked about";
  work.End();
}

TEST_F(FixedPoolBlocks, MemoryThatIsBusyIsNotWaitedForWhileThePoolMayGrow) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  constexpr uint64_t kHuge = 4 * kGiB;
  const CUdeviceptr busy = Allocate(kHuge, stream_);
  HeldWork work(driver(), stream_.get(), busy);
  ASSERT_TRUE(Free(busy).ok());
  const uint64_t waits = Get(pool_).Statistics().host_waits;
  const CUdeviceptr larger = Allocate(kHuge + kGiB, stream_);
  EXPECT_EQ(Get(pool_).Statistics().host_waits, waits);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 2 * kHuge + kGiB);
  work.End();
  EXPECT_TRUE(Free(larger).ok());
}

TEST_F(FixedPoolBlocks, OfEverySizeAreServedFromReservedMemory) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(64 * kMiB).ok());
  std::vector<CUdeviceptr> blocks;
  for (const uint64_t bytes : {kKiB, kMiB, 16 * kMiB}) blocks.push_back(Allocate(bytes, stream_));
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 64 * kMiB);
  for (const CUdeviceptr block : blocks) EXPECT_TRUE(Free(block).ok());
}

TEST_F(FixedPoolBlocks, ReservedMemoryStaysUntilATrim) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(256 * kMiB).ok());
  ASSERT_TRUE(Free(Allocate(512 * kMiB, stream_)).ok());
  driver().cuda.cuCtxSynchronize();
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 768 * kMiB);
  ASSERT_TRUE(Get(pool_).Trim(256 * kMiB).ok());
  const CUdeviceptr larger = Allocate(1024 * kMiB, stream_);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 1024 * kMiB);
  EXPECT_TRUE(Free(larger).ok());
}

TEST_F(FixedPoolBlocks, AreDescribedWithTheirStreams) {
  const CUdeviceptr first = Allocate(kBytes, stream_);
  const CUdeviceptr second = Allocate(kBytes, other_);
  EXPECT_EQ(Get(pool_).FindBlock(first)->stream, stream_.key());
  EXPECT_EQ(Get(pool_).FindBlock(second)->stream, other_.key());
  EXPECT_TRUE(Free(first).ok());
  EXPECT_TRUE(Free(second).ok());
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
  for (const DeviceRange& block : blocks) EXPECT_TRUE(Free(block.address).ok());
  EXPECT_EQ(CountersOf(pool_).allocated_blocks.current, 0u);
}

TEST_F(FixedPoolBlocks, TheAlignmentOptionHoldsForEveryBlock) {
  PoolConfiguration configuration = Configured("aligned");
  configuration.alignment_bytes = 64 * kKiB;
  const PoolHandle pool = Create(configuration);
  std::vector<CUdeviceptr> blocks;
  for (int count = 0; count < 3; ++count) {
    blocks.push_back(runtime().AllocateFrom(pool, 1, stream_.get()).value());
    EXPECT_EQ(blocks.back() % (64 * kKiB), 0u);
  }
  for (const CUdeviceptr block : blocks) EXPECT_TRUE(Free(block).ok());
}

TEST_F(FixedPoolBlocks, ABlockThatAnotherStreamUsesIsNotReusedBeforeItsEvent) {
  const CUdeviceptr address = Allocate(kBytes, stream_);
  Fill(other_.get(), address, kBytes, 1);
  ASSERT_TRUE(runtime().RecordStream(address, other_.get()).ok());
  ASSERT_TRUE(Free(address).ok());
  // The other stream's work may be done or not: in both cases the next user's data must be right.
  const CUdeviceptr next = Allocate(kBytes, stream_);
  uint64_t wrong = kBytes;
  Fill(stream_.get(), next, kBytes, 2);
  Compare(stream_.get(), next, kBytes, 2, &wrong);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(Free(next).ok());
}

TEST_F(FixedPoolBlocks, RecordingTheBlocksOwnStreamCostsNoEvent) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const CUdeviceptr address = Allocate(kBytes, stream_);
  ASSERT_TRUE(runtime().RecordStream(address, stream_.get()).ok());
  const uint64_t before = CallCount("cuEventRecord");
  ASSERT_TRUE(Free(address).ok());
  EXPECT_EQ(CallCount("cuEventRecord"), before);
}

TEST_F(FixedPoolBlocks, EventsAreMadeOnceAndRecycled) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const auto use_on_both = [&] {
    const CUdeviceptr address = Allocate(kBytes, stream_);
    ASSERT_TRUE(runtime().RecordStream(address, other_.get()).ok());
    ASSERT_TRUE(Free(address).ok());
    ASSERT_EQ(cuda().cuStreamSynchronize(other_.get()), CUDA_SUCCESS);
  };
  // Only some allocations ask which fences have passed, so it takes a while until enough memory is back.
  for (int round = 0; round < 20; ++round) use_on_both();
  const uint64_t before = CallCount("cuEventCreate");
  for (int round = 0; round < 20; ++round) use_on_both();
  EXPECT_EQ(CallCount("cuEventCreate"), before);
}

TEST_F(FixedPoolBlocks, AreFreedOnAnyThread) {
  const CUdeviceptr address = Allocate(kBytes, stream_);
  Status status(StatusCode::kInternal, "not run");
  std::thread([&] { status = Free(address); }).join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(CountersOf(pool_).allocated_blocks.current, 0u);
}

TEST_F(FixedPoolBlocks, TheCallersDeviceStaysCurrent) {
  COMMPOOL_REQUIRE_DEVICES(2);
  CUcontext before = nullptr;
  CUcontext after = nullptr;
  ASSERT_EQ(cuda().cuCtxGetCurrent(&before), CUDA_SUCCESS);
  const PoolHandle far = Create(Configured("far", 1));
  const CUdeviceptr address = runtime().AllocateFrom(far, kBytes, nullptr).value();
  ASSERT_TRUE(Free(address).ok());
  ASSERT_TRUE(Get(far).Trim(0).ok());
  ASSERT_EQ(cuda().cuCtxGetCurrent(&after), CUDA_SUCCESS);
  EXPECT_EQ(after, before);
}

// A pool of one segment: streams must share its memory.
class SharedBlock : public FixedPoolBlocks {
 protected:
  SharedBlock() {
    PoolConfiguration configuration = Configured("shared");
    configuration.limit_bytes = 2 * kMiB;
    pool_ = Create(configuration);
  }
};

TEST_F(SharedBlock, GoesToAnotherStreamWhenMemoryIsOutBehindADeviceSideWait) {
  const CUdeviceptr first = Allocate(2 * kMiB, stream_);
  std::optional<HeldWork> held;  // for the emulator; on hardware the fills last long enough
  if (OnEmulator()) held.emplace(driver(), stream_.get(), first);
  uint64_t first_wrong = kBytes;
  for (int round = 0; round < 20; ++round) Fill(stream_.get(), first, 2 * kMiB, 1);
  Compare(stream_.get(), first, 2 * kMiB, 1, &first_wrong);
  ASSERT_TRUE(Free(first).ok());
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
  Fill(other_.get(), second, 2 * kMiB, 2);
  Compare(other_.get(), second, 2 * kMiB, 2, &second_wrong);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(first_wrong, 0u) << "the second stream wrote before the first had read";
  EXPECT_EQ(second_wrong, 0u) << "the first stream wrote after the second";
  EXPECT_TRUE(Free(second).ok());
}

TEST_F(SharedBlock, WaitsForAStreamThatRecordStreamNamed) {
  const CUdeviceptr first = Allocate(2 * kMiB, stream_);
  uint64_t first_wrong = kBytes;
  for (int round = 0; round < 20; ++round) Fill(other_.get(), first, 2 * kMiB, 1);
  Compare(other_.get(), first, 2 * kMiB, 1, &first_wrong);
  ASSERT_TRUE(runtime().RecordStream(first, other_.get()).ok());
  ASSERT_TRUE(Free(first).ok());
  const CUdeviceptr second = Allocate(2 * kMiB, stream_);
  EXPECT_EQ(second, first);
  uint64_t second_wrong = kBytes;
  Fill(stream_.get(), second, 2 * kMiB, 2);
  Compare(stream_.get(), second, 2 * kMiB, 2, &second_wrong);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(first_wrong, 0u);
  EXPECT_EQ(second_wrong, 0u);
  EXPECT_TRUE(Free(second).ok());
}

TEST_F(SharedBlock, PiecesThatDifferentStreamsUsedMergeAfterAHostWait) {
  const CUdeviceptr lower = Allocate(1 * kMiB, stream_);
  const CUdeviceptr upper = Allocate(1 * kMiB, other_);
  ASSERT_TRUE(Free(lower).ok());
  ASSERT_TRUE(Free(upper).ok());
  Result<CUdeviceptr> whole = runtime().AllocateFrom(pool_, 2 * kMiB, stream_.get());
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_TRUE(Free(*whole).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
