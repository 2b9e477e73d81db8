// A pool's space over its life: reserve, trim, close, and destruction while blocks live.
#include <thread>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class PoolLife : public PoolTest {
 protected:
  Result<CUdeviceptr> Allocate(uint64_t bytes) { return runtime().AllocateFrom(pool_, bytes, nullptr); }

  PoolHandle pool_ = Create(Configured("life"));
};

TEST_F(PoolLife, ANewPoolHoldsNothing) {
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 0u);
  EXPECT_EQ(Get(pool_).Trim(0).value(), 0u);
}

TEST_F(PoolLife, BlocksNameTheirPoolAndItsDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle far = Create(Configured("far", 1));
  for (const auto& [pool, device] : {std::pair(pool_, 0), std::pair(far, 1)}) {
    const CUdeviceptr block = runtime().AllocateFrom(pool, 4 * kMiB, nullptr).value();
    const commpool_block found = Get(pool).FindBlock(block).value();
    EXPECT_EQ(found.pool, pool);
    EXPECT_EQ(found.device, device);
    EXPECT_TRUE(runtime().Free(block).ok());
  }
}

TEST_F(PoolLife, ReserveMakesAllocationsWithoutGrowth) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(30 * kMiB).ok());
  const uint64_t reserved = CountersOf(pool_).reserved_bytes.current;
  EXPECT_GE(reserved, 30 * kMiB);
  const CUdeviceptr address = Allocate(30 * kMiB).value();
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, reserved);
  EXPECT_TRUE(runtime().Free(address).ok());
}

TEST_F(PoolLife, ReserveOfWhatIsThereDoesNothing) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(30 * kMiB).ok());
  const uint64_t reserved = CountersOf(pool_).reserved_bytes.current;
  ASSERT_TRUE(Get(pool_).mode().Reserve(10 * kMiB).ok());
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, reserved);
}

TEST_F(PoolLife, ReserveRefusesZeroAndTooManyBytes) {
  EXPECT_EQ(Get(pool_).mode().Reserve(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Get(pool_).mode().Reserve(UINT64_MAX).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 0u);
}

TEST_F(PoolLife, AllocationsOfNothingAndOfTooMuchAreRefused) {
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX, UINT64_MAX - 511, uint64_t{1} << 63}) {
    Result<CUdeviceptr> failed = Allocate(bytes);
    ASSERT_FALSE(failed.ok()) << bytes;
    const StatusCode code = failed.status().code();
    EXPECT_TRUE(code == StatusCode::kInvalidArgument || code == StatusCode::kOutOfMemory) << failed.status().message();
  }
  EXPECT_EQ(Get(pool_).Statistics().failed_allocations, 4u);
}

TEST_F(PoolLife, SegmentBytesIsTheLeastSegment) {
  PoolConfiguration configuration = Configured("large segments");
  configuration.segment_bytes = 64 * kMiB;
  const PoolHandle pool = Create(configuration);
  const CUdeviceptr address = runtime().AllocateFrom(pool, 1, nullptr).value();
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 64 * kMiB);
  EXPECT_TRUE(runtime().Free(address).ok());
}

TEST_F(PoolLife, TrimGivesBackWhatHasNoLiveBlocks) {
  const CUdeviceptr live = Allocate(30 * kMiB).value();
  const CUdeviceptr freed = Allocate(40 * kMiB).value();
  ASSERT_TRUE(runtime().Free(freed).ok());
  EXPECT_EQ(Get(pool_).Trim(0).value(), 40 * kMiB);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 30 * kMiB);
  EXPECT_EQ(Get(pool_).Trim(0).value(), 0u);
  EXPECT_TRUE(runtime().Free(live).ok());
}

TEST_F(PoolLife, TrimKeepsWhatItIsAskedToKeep) {
  const CUdeviceptr first = Allocate(30 * kMiB).value();
  const CUdeviceptr second = Allocate(40 * kMiB).value();
  ASSERT_TRUE(runtime().Free(first).ok());
  ASSERT_TRUE(runtime().Free(second).ok());
  EXPECT_EQ(Get(pool_).Trim(70 * kMiB).value(), 0u);
  EXPECT_EQ(Get(pool_).Trim(30 * kMiB).value(), 40 * kMiB);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 30 * kMiB);
}

TEST_F(PoolLife, TrimWaitsForWorkOnFreedBlocks) {
  const TestStream stream;
  const CUdeviceptr address = Allocate(30 * kMiB).value();
  for (int round = 0; round < 20; ++round) Fill(stream.get(), address, 30 * kMiB, 1);
  ASSERT_TRUE(runtime().RecordStream(address, stream.get()).ok());
  ASSERT_TRUE(runtime().Free(address).ok());
  EXPECT_EQ(Get(pool_).Trim(0).value(), 30 * kMiB);
  EXPECT_EQ(cuda().cuStreamQuery(stream.get()), CUDA_SUCCESS);
}

TEST_F(PoolLife, DestroyWithLiveBlocksKeepsTheirMemoryUntilTheLastFree) {
  const CUdeviceptr first = Allocate(kMiB).value();
  const CUdeviceptr second = Allocate(kMiB).value();
  ASSERT_TRUE(runtime().DestroyPool(pool_).ok());
  EXPECT_EQ(Allocate(kMiB).status().code(), StatusCode::kNotFound);
  uint64_t wrong = kMiB;
  Fill(nullptr, second, kMiB, 3);
  ASSERT_TRUE(runtime().Free(first).ok());
  Compare(nullptr, second, kMiB, 3, &wrong);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(runtime().Free(second).ok());
  EXPECT_EQ(runtime().Free(second).code(), StatusCode::kNotFound);
  EXPECT_TRUE(runtime().pools().All().empty());
}

TEST_F(PoolLife, DestroyGivesFreeSegmentsBackAtOnce) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(30 * kMiB).ok());
  ASSERT_TRUE(runtime().DestroyPool(pool_).ok());
  EXPECT_TRUE(runtime().pools().All().empty());
  EXPECT_EQ(runtime().DestroyPool(pool_).code(), StatusCode::kNotFound);
}

TEST_F(PoolLife, ABlockFreedAfterDestroyMayStillBeInUse) {
  const TestStream stream;
  const CUdeviceptr address = Allocate(30 * kMiB).value();
  ASSERT_TRUE(runtime().DestroyPool(pool_).ok());
  for (int round = 0; round < 20; ++round) Fill(stream.get(), address, 30 * kMiB, 1);
  ASSERT_TRUE(runtime().RecordStream(address, stream.get()).ok());
  EXPECT_TRUE(runtime().Free(address).ok());
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(PoolLife, ALaterCallGivesBackWhatDestroyCouldNot) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  ASSERT_TRUE(runtime().Free(Allocate(8 * kMiB).value()).ok());
  const std::shared_ptr<Pool> pool = runtime().pools().Find(pool_).value();
  {
    const InjectedFault fault({.call = "cuStreamQuery", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_TRUE(runtime().DestroyPool(pool_).ok());
  }
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 8 * kMiB);
  Create(Configured("next"));
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 0u);
}

// The work could wait for what the thread does after the free.
TEST_F(PoolLife, NoCallWaitsForWorkOnADestroyedPool) {
  COMMPOOL_REQUIRE_EMULATOR("it holds work");
  const TestStream stream;
  const CUdeviceptr used = runtime().AllocateFrom(pool_, 30 * kMiB, stream.get()).value();
  const CUdeviceptr live = runtime().AllocateFrom(pool_, 30 * kMiB, stream.get()).value();
  const std::shared_ptr<Pool> pool = runtime().pools().Find(pool_).value();
  HeldWork work(driver(), stream.get(), used);
  const uint64_t waits = CallCount("cuCtxSynchronize");
  ASSERT_TRUE(runtime().Free(used).ok());
  ASSERT_TRUE(runtime().DestroyPool(pool_).ok());
  ASSERT_TRUE(runtime().Free(live).ok());
  Create(Configured("next"));
  ExpectCalls("cuCtxSynchronize", waits, 0);
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 60 * kMiB);
  work.End();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  Create(Configured("later"));
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 0u);
}

TEST_F(PoolLife, MemoryThatAStreamWithoutAPromiseUsesComesBackOnceItsWorkHasEnded) {
  COMMPOOL_REQUIRE_EMULATOR("it holds work");
  PoolConfiguration configuration = Configured("may die");
  configuration.streams = Streams::kMayDie;
  const PoolHandle handle = Create(std::move(configuration));
  const std::shared_ptr<Pool> pool = runtime().pools().Find(handle).value();
  const CUstream stream = NewStream();
  const CUdeviceptr block = runtime().AllocateFrom(handle, 30 * kMiB, stream).value();
  HeldWork work(driver(), stream, block);
  ASSERT_TRUE(runtime().DestroyPool(handle).ok());
  ASSERT_TRUE(runtime().Free(block).ok());
  const uint64_t waits = CallCount("cuCtxSynchronize");
  runtime().search().ReleaseDestroyed();
  ExpectCalls("cuCtxSynchronize", waits, 0);  // the free began a wait, which goes on by itself
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 30 * kMiB);
  work.End();
  ASSERT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  while (pool->Statistics().reserved_bytes.current != 0) {
    runtime().search().ReleaseDestroyed();
    std::this_thread::yield();
  }
}

TEST_F(PoolLife, CloseRefusesAllocationsAndKeepsLiveBlocks) {
  const CUdeviceptr live = Allocate(30 * kMiB).value();
  ASSERT_TRUE(runtime().Free(Allocate(40 * kMiB).value()).ok());
  ASSERT_TRUE(Get(pool_).Close().ok());
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 30 * kMiB);
  ExpectFailure(Allocate(1).status(), StatusCode::kFailedPrecondition, "pool life (vmm, device 0) is closed");
  EXPECT_EQ(Get(pool_).mode().Reserve(1).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Get(pool_).Close().ok()) << "closing again";
  EXPECT_TRUE(runtime().Free(live).ok());
  EXPECT_TRUE(runtime().DestroyPool(pool_).ok());
}

TEST_F(PoolLife, PeaksStartAnew) {
  ASSERT_TRUE(runtime().Free(Allocate(30 * kMiB).value()).ok());
  EXPECT_EQ(CountersOf(pool_).allocated_bytes.peak, 30 * kMiB);
  Get(pool_).blocks().Statistics(BlockStore::Peaks::kForget);
  EXPECT_EQ(CountersOf(pool_).allocated_bytes.peak, 0u);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.peak, 30 * kMiB);
}

TEST_F(PoolLife, PeaksThatStartAnewLeaveOutWhatThreadsKeep) {
  ASSERT_TRUE(runtime().Free(Allocate(kMiB).value()).ok());
  ASSERT_EQ(Get(pool_).Statistics().cached_bytes, kMiB);
  Get(pool_).blocks().Statistics(BlockStore::Peaks::kForget);
  ASSERT_TRUE(runtime().Free(Allocate(30 * kMiB).value()).ok());
  EXPECT_EQ(CountersOf(pool_).allocated_bytes.peak, 30 * kMiB);
}

TEST_F(PoolLife, ReclaimGivesNothingInAFixedPool) { EXPECT_EQ(Get(pool_).mode().Reclaim().value(), 0u); }

}  // namespace
}  // namespace commpool::internal::testing
