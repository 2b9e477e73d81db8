// A pool's space over its life: reserve, trim, close, and destruction while blocks live.
#include <chrono>
#include <future>
#include <thread>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class PoolLife : public PoolTest {
 protected:
  using PoolTest::Allocate;
  CUdeviceptr Allocate(uint64_t bytes) { return Allocate(pool_, bytes); }
  std::shared_ptr<Pool> Find(PoolHandle pool) { return runtime().pools().Find(pool).value(); }

  const PoolHandle pool_ = Create(Configured("life"));
};

TEST_F(PoolLife, ANewPoolHoldsNothing) {
  EXPECT_EQ(Reserved(pool_), 0u);
  EXPECT_EQ(Get(pool_).Trim(0).value(), 0u);
}

TEST_F(PoolLife, BlocksNameTheirPoolAndItsDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle far = Create(Configured("far", 1));
  for (const auto& [pool, device] : {std::pair(pool_, 0), std::pair(far, 1)}) {
    const commpool_block found = Get(pool).FindBlock(Allocate(pool, 4 * kMiB)).value();
    EXPECT_EQ(found.pool, pool);
    EXPECT_EQ(found.device, device);
  }
}

TEST_F(PoolLife, ReserveMakesAllocationsWithoutGrowth) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(30 * kMiB).ok());
  const uint64_t reserved = Reserved(pool_);
  EXPECT_GE(reserved, 30 * kMiB);
  Allocate(30 * kMiB);
  EXPECT_EQ(Reserved(pool_), reserved);
}

TEST_F(PoolLife, ReserveOfWhatIsThereDoesNothing) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(30 * kMiB).ok());
  const uint64_t reserved = Reserved(pool_);
  ASSERT_TRUE(Get(pool_).mode().Reserve(10 * kMiB).ok());
  EXPECT_EQ(Reserved(pool_), reserved);
}

TEST_F(PoolLife, ReserveRefusesZeroAndTooManyBytes) {
  EXPECT_EQ(Get(pool_).mode().Reserve(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Get(pool_).mode().Reserve(UINT64_MAX).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Reserved(pool_), 0u);
}

TEST_F(PoolLife, AllocationsOfNothingAndOfTooMuchAreRefused) {
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX, UINT64_MAX - 511, uint64_t{1} << 63}) {
    const StatusCode code = TryAllocate(pool_, bytes).status().code();
    EXPECT_TRUE(code == StatusCode::kInvalidArgument || code == StatusCode::kOutOfMemory) << bytes;
  }
  EXPECT_EQ(CountersOf(pool_).failed_allocations, 4u);
}

TEST_F(PoolLife, SegmentBytesIsTheLeastSegment) {
  const PoolHandle pool = CreateWith({.name = "large segments", .segment_bytes = 64 * kMiB});
  Allocate(pool, 1);
  EXPECT_EQ(Reserved(pool), 64 * kMiB);
}

TEST_F(PoolLife, ACloseThatABusyDeviceRefusesLeavesItOpen) {
  const PoolHandle pool = CreateWith({.deadline_ms = 100});
  const TestStream stream;
  HeldStream held(cuda(), stream);
  ExpectFailure(Get(pool).Close(), StatusCode::kDeadlineExceeded, "is still busy after 100 ms, nothing was changed");
  Free(Allocate(pool, 4 * kMiB, stream));
  held.End();
  ExpectOk({Get(pool).Close()});
}

// Before registrations end, and before memory goes.
TEST_F(PoolLife, ACloseWaitsForTheDeviceTwice) {
  Free(Allocate(4 * kMiB));
  const uint64_t waits = CallCount("cuCtxSynchronize");
  ExpectOk({Get(pool_).Close()});
  ExpectCalls("cuCtxSynchronize", waits, 2);
}

// Work on such a block could use a registration that the close ends.
TEST_F(PoolLife, ACloseServesNobodyWhileItWaitsForTheDevice) {
  const PoolHandle pool = CreateWith({.deadline_ms = 20'000});
  const TestStream stream;
  HeldStream held(cuda(), stream);
  std::future<Status> closing = std::async(std::launch::async, [&] { return Get(pool).Close(); });
  Status refused;
  while (refused.ok() && closing.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    const Result<CUdeviceptr> block = runtime().AllocateFrom(pool, kMiB, stream);
    block.ok() ? Free(*block) : static_cast<void>(refused = block.status());
  }
  ExpectFailure(refused, StatusCode::kFailedPrecondition, "is closed");
  held.End();
  ExpectOk({closing.get()});
}

TEST_F(PoolLife, TrimGivesBackWhatHasNoLiveBlocks) {
  Allocate(30 * kMiB);
  Free(Allocate(40 * kMiB));
  EXPECT_EQ(Get(pool_).Trim(0).value(), 40 * kMiB);
  EXPECT_EQ(Reserved(pool_), 30 * kMiB);
  EXPECT_EQ(Get(pool_).Trim(0).value(), 0u);
}

TEST_F(PoolLife, TrimKeepsWhatItIsAskedToKeep) {
  const CUdeviceptr first = Allocate(30 * kMiB);
  const CUdeviceptr second = Allocate(40 * kMiB);
  FreeAll({first, second});
  EXPECT_EQ(Get(pool_).Trim(70 * kMiB).value(), 0u);
  EXPECT_EQ(Get(pool_).Trim(30 * kMiB).value(), 40 * kMiB);
  EXPECT_EQ(Reserved(pool_), 30 * kMiB);
}

TEST_F(PoolLife, TrimWaitsForWorkOnFreedBlocks) {
  const TestStream stream;
  const CUdeviceptr address = Allocate(30 * kMiB);
  for (int round = 0; round < 20; ++round) Fill(stream, address, 30 * kMiB, 1);
  ASSERT_TRUE(runtime().RecordStream(address, stream).ok());
  Free(address);
  EXPECT_EQ(Get(pool_).Trim(0).value(), 30 * kMiB);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST_F(PoolLife, DestroyWithLiveBlocksKeepsTheirMemoryUntilTheLastFree) {
  const CUdeviceptr first = Allocate(kMiB);
  const CUdeviceptr second = Allocate(kMiB);
  Destroy(pool_);
  EXPECT_EQ(TryAllocate(pool_, kMiB).status().code(), StatusCode::kNotFound);
  Fill(nullptr, second, kMiB, 3);
  Free(first);
  ExpectBytes(nullptr, second, kMiB, 3);
  Free(second);
  EXPECT_EQ(runtime().Free(second).code(), StatusCode::kNotFound);
  EXPECT_TRUE(runtime().pools().All().empty());
}

TEST_F(PoolLife, DestroyGivesFreeSegmentsBackAtOnce) {
  ASSERT_TRUE(Get(pool_).mode().Reserve(30 * kMiB).ok());
  Destroy(pool_);
  EXPECT_TRUE(runtime().pools().All().empty());
  EXPECT_EQ(runtime().DestroyPool(pool_).code(), StatusCode::kNotFound);
}

TEST_F(PoolLife, ABlockFreedAfterDestroyMayStillBeInUse) {
  const TestStream stream;
  const CUdeviceptr address = Allocate(30 * kMiB);
  Destroy(pool_);
  for (int round = 0; round < 20; ++round) Fill(stream, address, 30 * kMiB, 1);
  ASSERT_TRUE(runtime().RecordStream(address, stream).ok());
  Free(address);
  Synchronize();
}

TEST_F(PoolLife, ALaterCallGivesBackWhatDestroyCouldNot) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  Free(Allocate(8 * kMiB));
  const std::shared_ptr<Pool> pool = Find(pool_);
  {
    const InjectedFault fault({.call = "cuStreamQuery", .result = CUDA_ERROR_UNKNOWN});
    Destroy(pool_);
  }
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 8 * kMiB);
  Create(Configured("next"));
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 0u);
}

// The work could wait for what the thread does after the free.
TEST_F(PoolLife, NoCallWaitsForWorkOnADestroyedPool) {
  COMMPOOL_REQUIRE_EMULATOR("it holds work");
  const TestStream stream;
  const CUdeviceptr used = Allocate(pool_, 30 * kMiB, stream);
  const CUdeviceptr live = Allocate(pool_, 30 * kMiB, stream);
  const std::shared_ptr<Pool> pool = Find(pool_);
  HeldWork work(driver(), stream, used);
  const uint64_t waits = CallCount("cuCtxSynchronize");
  Free(used);
  Destroy(pool_);
  Free(live);
  Create(Configured("next"));
  ExpectCalls("cuCtxSynchronize", waits, 0);
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 60 * kMiB);
  work.End();
  Synchronize();
  Create(Configured("later"));
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 0u);
}

TEST_F(PoolLife, MemoryThatAStreamWithoutAPromiseUsesComesBackOnceItsWorkHasEnded) {
  COMMPOOL_REQUIRE_EMULATOR("it holds work");
  const PoolHandle handle = CreateWith({.name = "may die", .streams = Streams::kMayDie});
  const std::shared_ptr<Pool> pool = Find(handle);
  const CUstream stream = NewStream();
  const CUdeviceptr block = Allocate(handle, 30 * kMiB, stream);
  HeldWork work(driver(), stream, block);
  Destroy(handle);
  Free(block);
  const uint64_t waits = CallCount("cuCtxSynchronize");
  runtime().search().ReleaseDestroyed();
  ExpectCalls("cuCtxSynchronize", waits, 0);  // the free began a wait, which goes on by itself
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, 30 * kMiB);
  work.End();
  DestroyStream(stream);
  while (pool->Statistics().reserved_bytes.current != 0) {
    runtime().search().ReleaseDestroyed();
    std::this_thread::yield();
  }
}

TEST_F(PoolLife, CloseRefusesAllocationsAndKeepsLiveBlocks) {
  Allocate(30 * kMiB);
  Free(Allocate(40 * kMiB));
  ASSERT_TRUE(Get(pool_).Close().ok());
  EXPECT_EQ(Reserved(pool_), 30 * kMiB);
  ExpectFailure(TryAllocate(pool_, 1).status(), StatusCode::kFailedPrecondition, "pool life (vmm, device 0) is closed");
  EXPECT_EQ(Get(pool_).mode().Reserve(1).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Get(pool_).Close().ok()) << "closing again";
}

TEST_F(PoolLife, PeaksStartAnew) {
  Free(Allocate(30 * kMiB));
  EXPECT_EQ(CountersOf(pool_).allocated_bytes.peak, 30 * kMiB);
  Get(pool_).blocks().Statistics(BlockStore::Peaks::kForget);
  EXPECT_EQ(CountersOf(pool_).allocated_bytes.peak, 0u);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.peak, 30 * kMiB);
}

TEST_F(PoolLife, PeaksThatStartAnewLeaveOutWhatThreadsKeep) {
  Free(Allocate(kMiB));
  ASSERT_EQ(CountersOf(pool_).cached_bytes, kMiB);
  Get(pool_).blocks().Statistics(BlockStore::Peaks::kForget);
  Free(Allocate(30 * kMiB));
  EXPECT_EQ(CountersOf(pool_).allocated_bytes.peak, 30 * kMiB);
}

TEST_F(PoolLife, ReclaimGivesNothingInAFixedPool) { EXPECT_EQ(Get(pool_).mode().Reclaim().value(), 0u); }

}  // namespace
}  // namespace commpool::internal::testing
