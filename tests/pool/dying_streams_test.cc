// The program destroys streams at any time without telling the pools, as C++ and CuPy programs do.
//
// The emulator reports each call that names a dead stream, and each access that is not ordered behind the one before.
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBlock = 3 * kMiB;

class DyingStreams : public PoolTestInEachMode {
 protected:
  PoolHandle NewPool(const char* name = "dying streams", int device = 0) {
    return CreateWith(
        {.name = name, .device = device, .mode = GetParam(), .streams = Streams::kMayDie, .deadline_ms = 2000});
  }
  // In the end all memory goes back: a wait for the device replaces the fences that dead streams do not have.
  void TearDown() override {
    PoolTest::TearDown();
    for (const std::shared_ptr<Pool>& pool : runtime().pools().All()) {
      CheckInvariants(*pool);
      EXPECT_TRUE(pool->Trim(0).ok());
      EXPECT_EQ(pool->Statistics().reserved_bytes.current, 0u);
      Destroy(pool->handle());
    }
  }
  CUdeviceptr Allocate(PoolHandle pool, CUstream stream, uint64_t bytes = kBlock) {
    return PoolTest::Allocate(pool, bytes, stream);
  }
  // Its stream has died. 0: no work has used the block.
  CUdeviceptr BlockOfADeadStream(PoolHandle pool, uint8_t filled_with = 0) {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(pool, stream);
    if (filled_with != 0) Fill(stream, block, kBlock, filled_with);
    DestroyStream(stream);
    return block;
  }
  // Whether a new stream, which then dies, gets another stream's block.
  bool ServesAgain(PoolHandle pool) {
    const CUdeviceptr block = BlockOfADeadStream(pool);
    Free(block);
    return !seen_.insert(block).second;
  }
  // A capture on device 1. Its stream has used a block of the pool on device 0, and has died.
  CUstream CaptureWhereAReaderDied(PoolHandle pool) {
    EXPECT_TRUE(Get(pool).segments().peers.Grant({1}).ok());
    const CUdeviceptr block = Allocate(pool, nullptr);
    const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
    const ContextGuard guard(driver(), far);
    const CUstream reader = NewStream();
    EXPECT_TRUE(runtime().RecordStream(block, reader).ok());
    DestroyStream(reader);
    const CUstream recording = NewStream();
    EXPECT_TRUE(capture_.Begin(runtime(), Create(Configured("captured", 1)), recording).ok());
    Free(block);
    return recording;
  }
  void EndUnbroken(CUstream recording) {
    EXPECT_TRUE(capture_.End().ok()) << "nothing broke it";
    capture_.DestroyGraph();
    DestroyStream(recording);
  }

  std::set<CUdeviceptr> seen_;
  AnnouncedCapture capture_;
};

// First the stream dies, later its block is freed.
TEST_P(DyingStreams, MayDieBeforeTheirBlocksAreFreed) {
  const PoolHandle pool = NewPool();
  CUdeviceptr previous = 0;
  for (int round = 0; round < 40; ++round) {
    const CUdeviceptr block = BlockOfADeadStream(pool, static_cast<uint8_t>(round + 1));
    if (previous != 0) Free(previous);
    previous = block;
    seen_.insert(block);
  }
  Free(previous);
  const CUdeviceptr last = Allocate(pool, nullptr, 5 * kMiB);
  Fill(nullptr, last, 5 * kMiB, 1);
  Free(last);
  Synchronize();
  while (!ServesAgain(pool)) std::this_thread::yield();  // until dead streams' memory serves again
}

TEST_P(DyingStreams, LeaveSmallBlocksInThreadsCachesToo) {
  const PoolHandle pool = NewPool();
  for (int round = 0; round < 200; ++round) {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(pool, stream, 4 * kKiB);
    Fill(stream, block, 4 * kKiB, 1);
    Free(block);
    EXPECT_EQ(Allocate(pool, stream, 4 * kKiB), block) << "the same stream's own memory serves at once";
    DestroyStream(stream);
    Free(block);
  }
  Synchronize();
}

// A new stream gets the handle at once.
TEST_P(DyingStreams, LeaveTheirHandleToStreamsThatWaitForThem) {
  const PoolHandle pool = NewPool();
  const CUstream first = NewStream();
  const CUdeviceptr block = Allocate(pool, first);
  Fill(first, block, kBlock, 1);
  Free(block);
  DestroyStream(first);
  const CUstream second = NewStream();
  const CUdeviceptr other = Allocate(pool, second);
  Fill(second, other, kBlock, 2);
  ExpectBytes(second, other, kBlock, 2);
  Free(other);
  DestroyStream(second);
}

TEST_P(DyingStreams, LeaveTheirHandleToAStreamOfAnotherDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = NewPool();
  ASSERT_TRUE(Get(pool).segments().peers.Grant({1}).ok());
  const PoolHandle far_pool = NewPool("far", 1);
  const CUdeviceptr block = Allocate(pool, nullptr);
  Synchronize();
  const CUstream first = NewStream();
  Free(Allocate(pool, first));
  DestroyStream(first);
  {
    const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
    const ContextGuard guard(driver(), far);
    const CUstream second = NewStream();
    if (driver().kind == DriverChoice::kEmulated) {  // hardware may choose another handle
      EXPECT_EQ(second, first);
    }
    const CUdeviceptr own = Allocate(far_pool, second);
    Fill(second, own, kBlock, 1);
    Fill(second, block, kBlock, 2);
    ASSERT_TRUE(runtime().RecordStream(block, second).ok());
    Free(own);
    DestroyStream(second);
  }
}

TEST_P(DyingStreams, AreServedBesideWorkThatDoesNotEnd) {
  const PoolHandle pool = NewPool();
  const CUstream busy = NewStream();
  HeldStream held(cuda(), busy);
  for (int round = 0; round < 60; ++round) Free(BlockOfADeadStream(pool, 1));
  const uint64_t reserved = Reserved(pool);
  EXPECT_FALSE(SleepAlone(Get(pool), {}).ok()) << "that waits for the device, within the pool's deadline";
  EXPECT_EQ(Reserved(pool), reserved);
  held.End();
  Free(Allocate(pool, busy));
  DestroyStream(busy);
}

// Idle memory serves each of them. So the pool lacks none, and would keep a list of free blocks for each.
TEST_P(DyingStreams, AreForgottenWhereTheyAreVeryMany) {
  const PoolHandle pool = NewPool();
  ASSERT_TRUE(Get(pool).mode().Reserve(32 * kMiB).ok());
  size_t before = 0;
  for (size_t lists = 0; lists >= before;) {
    ASSERT_LT(lists, 10'000u);
    before = lists;
    const CUstream stream = NewStream();
    Free(Allocate(pool, stream, kKiB));
    DestroyStream(stream);
    lists = Get(pool).blocks().Ask(&engine::Engine::heap).free_index().lists().size();
  }
  EXPECT_EQ(CountersOf(pool).host_waits, 0u);
}

// The device always has work for more than a tenth of a second.
TEST_P(DyingStreams, AreWaitedForOnceThenTheWaitGoesOnByItself) {
  const PoolHandle pool = NewPool();
  const CUstream busy = NewStream();
  HeldStream held(cuda(), busy);
  for (int round = 0; round < 60; ++round) EXPECT_FALSE(ServesAgain(pool));
  EXPECT_EQ(CountersOf(pool).host_waits, 1u);
  held.End();
  Synchronize();
  while (!ServesAgain(pool)) std::this_thread::yield();
  EXPECT_EQ(CountersOf(pool).host_waits, 1u);
  DestroyStream(busy);
}

// A pool that grew beside the wait would grow with each wait. If the first thread's wait takes too long the pool may
// grow, so such a round proves nothing.
TEST_P(DyingStreams, LetNoThreadGrowThePoolWhileAnotherWaitsForThem) {
  int rounds_that_tell = 0;
  while (rounds_that_tell < 5) {
    const PoolHandle pool = NewPool();
    const CUstream busy = NewStream();
    const CUstream second = NewStream();
    HeldStream held(cuda(), busy);
    std::chrono::steady_clock::duration waited{};
    std::thread first([&] {
      const ContextGuard guard(driver(), context());
      while (CountersOf(pool).host_waits == 0) {
        const auto begin = std::chrono::steady_clock::now();
        ServesAgain(pool);
        waited = std::chrono::steady_clock::now() - begin;
      }
    });
    while (CountersOf(pool).host_waits == 0) std::this_thread::yield();
    const uint64_t reserved = Reserved(pool);
    std::atomic<bool> asks{false};
    std::thread end([&] {
      while (!asks.load()) std::this_thread::yield();
      for (int turn = 0; turn < 4; ++turn) std::this_thread::yield();
      held.End();
    });
    asks.store(true);
    const CUdeviceptr block = Allocate(pool, second);
    const uint64_t reserved_then = Reserved(pool);
    first.join();
    end.join();
    if (waited < std::chrono::milliseconds(100)) {
      ++rounds_that_tell;
      EXPECT_EQ(reserved_then, reserved);
    }
    Free(block);
    Synchronize();
    for (const CUstream stream : {busy, second}) DestroyStream(stream);
    Destroy(pool);
  }
}

// The wait that continues without a thread does not cover uses that began after it.
TEST_P(DyingStreams, NeedFencesForUsesAfterTheWaitBegan) {
  const PoolHandle pool = NewPool();
  const CUstream reader = NewStream();
  // Do not use Fill here: it frees pinned memory of earlier fills, and for that a GPU's driver waits for the held
  // stream.
  const auto read_by = [&](CUdeviceptr block) {
    EXPECT_EQ(cuda().cuMemsetD8Async(block, 1, kBlock, reader), CUDA_SUCCESS);
    EXPECT_TRUE(runtime().RecordStream(block, reader).ok());
    Free(block);
  };
  const CUdeviceptr block = Allocate(pool, nullptr);
  Synchronize();
  read_by(block);
  const CUstream busy = NewStream();
  HeldStream held(cuda(), busy);
  for (int round = 0; round < 60; ++round) EXPECT_FALSE(ServesAgain(pool));
  held.End();
  Synchronize();
  ASSERT_TRUE(SleepAlone(Get(pool), {}).ok());
  ASSERT_TRUE(WakeAlone(Get(pool)).ok());
  std::vector<CUdeviceptr> others = {Allocate(pool, nullptr)};
  while (others.back() != block && others.size() < 200) others.push_back(Allocate(pool, nullptr));
  ASSERT_EQ(others.back(), block);
  others.pop_back();
  Synchronize();
  HeldStream reading(cuda(), reader);
  read_by(block);
  for (int round = 0; round < 120; ++round) {
    const CUdeviceptr other = BlockOfADeadStream(pool);
    EXPECT_NE(other, block);
    Free(other);
  }
  reading.End();
  FreeAll(others);
  DestroyStream(busy);
  Synchronize();
  DestroyStream(reader);
}

TEST_P(DyingStreams, MayDieBeforeTheirPoolSleeps) {
  const PoolHandle pool = NewPool();
  CUdeviceptr kept = 0;
  for (int round = 0; round < 10; ++round) {
    const CUdeviceptr block = BlockOfADeadStream(pool, 1);
    if (kept != 0) Free(kept);
    kept = block;
  }
  EXPECT_TRUE(SleepAlone(Get(pool), {.keep = Keep::kHost}).ok());
  EXPECT_TRUE(WakeAlone(Get(pool)).ok());
  ExpectBytes(nullptr, kept, kBlock, 1);
}

TEST_P(DyingStreams, GiveTheirMemoryToOthersBehindAnEventOfTheNextCall) {
  const PoolHandle pool = NewPool();
  const CUstream alive = NewStream();
  const CUstream other = NewStream();
  const CUdeviceptr block = Allocate(pool, alive, 64 * kMiB);
  Fill(alive, block, 64 * kMiB, 1);
  Free(block);
  const CUdeviceptr apart = Allocate(pool, other, 64 * kMiB);
  EXPECT_NE(apart, block) << "nobody can wait for the stream before it is passed again";
  Free(Allocate(pool, alive, kMiB));
  const uint64_t events = CallCount("cuEventRecord");
  const CUdeviceptr taken = Allocate(pool, other, 64 * kMiB);
  Fill(other, taken, 64 * kMiB, 2);
  EXPECT_LE(CallCount("cuEventRecord") - events, 1u);
  FreeAll({taken, apart});
  for (const CUstream stream : {alive, other}) DestroyStream(stream);
  Synchronize();
  if (GetParam() == Mode::kFixed) {  // idle pages move, so the other mode may wait for a while
    EXPECT_EQ(CountersOf(pool).host_waits, 0u);
  }
}

TEST_P(DyingStreams, MayBeRecordedForABlockAndDie) {
  const PoolHandle pool = NewPool();
  for (int round = 0; round < 20; ++round) {
    const CUdeviceptr block = Allocate(pool, nullptr);
    const CUstream reader = NewStream();
    Synchronize();
    Fill(reader, block, kBlock, 1);
    ASSERT_TRUE(runtime().RecordStream(block, reader).ok());
    DestroyStream(reader);
    Free(block);
  }
}

TEST_P(DyingStreams, OfAnotherDeviceAreWaitedForThere) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = NewPool();
  ASSERT_TRUE(Get(pool).segments().peers.Grant({1}).ok());
  const CUdeviceptr block = Allocate(pool, nullptr);
  Synchronize();
  {
    const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
    const ContextGuard guard(driver(), far);
    const CUstream reader = NewStream();
    Fill(reader, block, kBlock, 1);
    ASSERT_TRUE(runtime().RecordStream(block, reader).ok());
    DestroyStream(reader);
  }
  // Here the emulator reports memory that is unmapped under work.
}

TEST_P(DyingStreams, OfAnotherDeviceLeaveACaptureThereAlone) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = NewPool();
  const CUstream recording = CaptureWhereAReaderDied(pool);
  EXPECT_EQ(Get(pool).Trim(0).status().code(), StatusCode::kFailedPrecondition);
  EndUnbroken(recording);
}

TEST_P(DyingStreams, AreNotWaitedForWhereTheirWaitIsRefused) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = NewPool();
  const CUstream recording = CaptureWhereAReaderDied(pool);
  for (int round = 0; round < 40; ++round) Free(BlockOfADeadStream(pool));
  EndUnbroken(recording);
}

TEST_P(DyingStreams, AreDestroyedOnOtherThreads) {
  const PoolHandle pool = NewPool();
  OnThreads(4, [&](int) {
    const ContextGuard guard(driver(), context());
    for (int round = 0; round < 40; ++round) {
      const CUstream stream = NewStream();
      const CUdeviceptr large = Allocate(pool, stream);
      const CUdeviceptr small = Allocate(pool, stream, 8 * kKiB);
      Fill(stream, large, kBlock, 1);
      Fill(stream, small, 8 * kKiB, 1);
      DestroyStream(stream);
      FreeAll({large, small});
    }
  });
  Synchronize();
}

TEST_P(DyingStreams, DoNotDisturbACaptureThatIsOpenMeanwhile) {
  const PoolHandle pool = NewPool();
  const PoolHandle captured = NewPool("captured");
  ASSERT_TRUE(Get(captured).mode().Reserve(8 * kMiB).ok());
  const CUstream recording = NewStream();
  ASSERT_TRUE(capture_.Begin(runtime(), captured, recording).ok());
  for (int round = 0; round < 20; ++round) Free(BlockOfADeadStream(pool));
  EndUnbroken(recording);
}

TEST_P(DyingStreams, MayDieBeforeTheEndOfTheirCaptureIsTold) {
  const PoolHandle pool = NewPool();
  ASSERT_TRUE(Get(pool).mode().Reserve(8 * kMiB).ok());
  const CUstream recording = NewStream();
  ASSERT_TRUE(capture_.Begin(runtime(), pool, recording, CU_STREAM_CAPTURE_MODE_RELAXED).ok());
  Free(Allocate(pool, recording, kMiB));
  capture_.EndOnTheStream();
  DestroyStream(recording);
  EXPECT_TRUE(capture_.EndForThePool().ok());
  capture_.DestroyGraph();
}

TEST_P(DyingStreams, AreNotExpectedWhereTheProgramReleasesItsStreams) {
  const PoolHandle pool = CreateWith({.name = "outlived", .mode = GetParam()});
  const CUstream stream = NewStream();
  const CUstream other = NewStream();
  const CUdeviceptr block = Allocate(pool, stream, 64 * kMiB);
  Fill(stream, block, 64 * kMiB, 1);
  Free(block);
  ASSERT_TRUE(Get(pool).Trim(64 * kMiB).ok());
  const uint64_t ids = CallCount("cuStreamGetId");
  for (int time = 0; time < 10; ++time) Free(Allocate(pool, stream, 4 * kKiB));
  ExpectCalls("cuStreamGetId", ids, 0);
  for (const CUstream over : {stream, other}) {
    EXPECT_TRUE(runtime().ReleaseStream(over).ok());
    DestroyStream(over);
  }
}

TEST_P(DyingStreams, ThatArePromisedLaterStayTheSameStream) {
  const PoolHandle pool = NewPool();
  const CUstream stream = NewStream();
  const CUdeviceptr block = Allocate(pool, stream);
  Fill(stream, block, kBlock, 1);
  Free(block);
  ASSERT_TRUE(runtime().PromiseStream(stream).ok());
  const CUdeviceptr again = Allocate(pool, stream);
  Fill(stream, again, kBlock, 2);
  Free(again);
  ExpectOk(runtime().ReleaseStream(stream));
  DestroyStream(stream);
}

INSTANTIATE_TEST_SUITE_P(Modes, DyingStreams, EachMode(), NameOfMode);

}  // namespace
}  // namespace commpool::internal::testing
