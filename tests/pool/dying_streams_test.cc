// The program destroys streams at any time without telling the pools, as C++ and CuPy programs do.
//
// The emulator reports each call that names a dead stream, and each access that is not ordered behind the one before.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <thread>

#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/pool_invariants.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBlock = 3 * kMiB;

// The stream's later work waits until the test lets it continue. This works on hardware too.
class HeldStream {
 public:
  HeldStream(const CudaDriver& cuda, CUstream stream) {
    // Its own, because it may still look at it when this object is gone.
    auto ended = std::make_unique<std::future<void>>(end_.get_future());
    const auto wait = [](void* future) {
      std::unique_ptr<std::future<void>>(static_cast<std::future<void>*>(future))->wait();
    };
    EXPECT_EQ(cuda.cuLaunchHostFunc(stream, wait, ended.release()), CUDA_SUCCESS);
  }
  void End() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

class DyingStreams : public PoolTest, public ::testing::WithParamInterface<Mode> {
 protected:
  PoolHandle NewPool(const char* name = "dying streams", int device = 0) {
    PoolConfiguration configuration = Configured(name, device);
    configuration.deadline_ms = 2000;
    configuration.streams = Streams::kMayDie;
    configuration.mode = GetParam();
    return Create(std::move(configuration));
  }
  void TearDown() override {
    for (const std::shared_ptr<Pool>& pool : runtime().pools().All()) {
      EXPECT_TRUE(pool->Trim(0).ok());
      EXPECT_EQ(pool->Statistics().reserved_bytes.current, 0u);
      EXPECT_TRUE(runtime().DestroyPool(pool->handle()).ok());
    }
  }
  void Destroy(CUstream stream) { EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS); }
  CUdeviceptr Allocate(PoolHandle pool, CUstream stream, uint64_t bytes = kBlock) {
    const Result<CUdeviceptr> address = runtime().AllocateFrom(pool, bytes, stream);
    EXPECT_TRUE(address.ok()) << address.status().message();
    return address.ok() ? *address : 0;
  }
  // Whether a new stream, which then dies, gets another stream's block.
  bool ServesAgain(PoolHandle pool) {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(pool, stream);
    Destroy(stream);
    Free(block);
    return !seen_.insert(block).second;
  }
  // A capture on device 1. Its stream has used a block of the pool on device 0, and has died.
  CUstream CaptureWhereAReaderDied(PoolHandle pool, AnnouncedCapture& capture) {
    EXPECT_TRUE(Get(pool).segments().peers.Grant({1}).ok());
    const CUdeviceptr block = Allocate(pool, nullptr);
    const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
    const ContextGuard guard(driver(), far);
    const CUstream reader = NewStream();
    EXPECT_TRUE(runtime().RecordStream(block, reader).ok());
    Destroy(reader);
    const CUstream recording = NewStream();
    EXPECT_TRUE(capture.Begin(runtime(), Create(Configured("captured", 1)), recording).ok());
    Free(block);
    return recording;
  }
  void EndUnbroken(AnnouncedCapture& capture, CUstream recording) {
    EXPECT_TRUE(capture.End().ok()) << "nothing broke it";
    capture.DestroyGraph();
    Destroy(recording);
  }

  std::set<CUdeviceptr> seen_;
};

// First the stream dies, later its block is freed.
TEST_P(DyingStreams, MayDieBeforeTheirBlocksAreFreed) {
  const PoolHandle pool = NewPool();
  CUdeviceptr previous = 0;
  for (int round = 0; round < 40; ++round) {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(pool, stream);
    Fill(stream, block, kBlock, static_cast<uint8_t>(round));
    Destroy(stream);
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
    const CUdeviceptr again = Allocate(pool, stream, 4 * kKiB);
    EXPECT_EQ(again, block) << "the same stream's own memory serves at once";
    Destroy(stream);
    Free(again);
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
  Destroy(first);
  const CUstream second = NewStream();
  const CUdeviceptr other = Allocate(pool, second);
  Fill(second, other, kBlock, 2);
  ExpectBytes(second, other, kBlock, 2);
  Free(other);
  Destroy(second);
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
  Destroy(first);
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
    Destroy(second);
  }
  Free(block);
  EXPECT_TRUE(Get(pool).Trim(0).ok());
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 0u);
}

TEST_P(DyingStreams, AreServedBesideWorkThatDoesNotEnd) {
  const PoolHandle pool = NewPool();
  const CUstream busy = NewStream();
  HeldStream held(cuda(), busy);
  for (int round = 0; round < 60; ++round) {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(pool, stream);
    Fill(stream, block, kBlock, 1);
    Destroy(stream);
    Free(block);
  }
  const uint64_t reserved = CountersOf(pool).reserved_bytes.current;
  EXPECT_FALSE(SleepAlone(Get(pool), {}).ok()) << "that waits for the device, within the pool's deadline";
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, reserved);
  held.End();
  Free(Allocate(pool, busy));
  Destroy(busy);
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
  Destroy(busy);
}

// A pool that grew beside the wait would grow with each wait. If the first thread's wait takes too long the pool may
// grow, so such a round proves nothing.
TEST_P(DyingStreams, LetNoThreadGrowThePoolWhileAnotherWaitsForThem) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuda().cuCtxGetCurrent(&context), CUDA_SUCCESS);
  int rounds_that_tell = 0;
  while (rounds_that_tell < 5) {
    const PoolHandle pool = NewPool();
    const CUstream busy = NewStream();
    const CUstream second = NewStream();
    HeldStream held(cuda(), busy);
    std::chrono::steady_clock::duration waited{};
    std::thread first([&] {
      EXPECT_EQ(cuda().cuCtxSetCurrent(context), CUDA_SUCCESS);
      while (CountersOf(pool).host_waits == 0) {
        const auto begin = std::chrono::steady_clock::now();
        ServesAgain(pool);
        waited = std::chrono::steady_clock::now() - begin;
      }
    });
    while (CountersOf(pool).host_waits == 0) std::this_thread::yield();
    const uint64_t reserved = CountersOf(pool).reserved_bytes.current;
    std::atomic<bool> asks{false};
    std::thread end([&] {
      while (!asks.load()) std::this_thread::yield();
      for (int turn = 0; turn < 4; ++turn) std::this_thread::yield();
      held.End();
    });
    asks.store(true);
    const CUdeviceptr block = Allocate(pool, second);
    const uint64_t reserved_then = CountersOf(pool).reserved_bytes.current;
    first.join();
    end.join();
    if (waited < std::chrono::milliseconds(100)) {
      ++rounds_that_tell;
      EXPECT_EQ(reserved_then, reserved);
    }
    Free(block);
    Synchronize();
    for (const CUstream stream : {busy, second}) Destroy(stream);
    EXPECT_TRUE(runtime().DestroyPool(pool).ok());
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
    const CUstream stream = NewStream();
    const CUdeviceptr other = Allocate(pool, stream);
    EXPECT_NE(other, block);
    Destroy(stream);
    Free(other);
  }
  reading.End();
  for (const CUdeviceptr other : others) Free(other);
  Destroy(busy);
  Synchronize();
  Destroy(reader);
}

TEST_P(DyingStreams, MayDieBeforeTheirPoolSleeps) {
  const PoolHandle pool = NewPool();
  CUdeviceptr kept = 0;
  for (int round = 0; round < 10; ++round) {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(pool, stream);
    Fill(stream, block, kBlock, 1);
    Destroy(stream);
    if (kept != 0) Free(kept);
    kept = block;
  }
  EXPECT_TRUE(SleepAlone(Get(pool), {.keep = Keep::kHost}).ok());
  EXPECT_TRUE(WakeAlone(Get(pool)).ok());
  ExpectBytes(nullptr, kept, kBlock, 1);
  Free(kept);
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
  Free(taken);
  Free(apart);
  Destroy(alive);
  Destroy(other);
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
    ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    Fill(reader, block, kBlock, 1);
    ASSERT_TRUE(runtime().RecordStream(block, reader).ok());
    Destroy(reader);
    Free(block);
  }
  EXPECT_TRUE(Get(pool).Trim(0).ok());
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 0u)
      << "a wait for the device replaces the fences that were missing";
}

TEST_P(DyingStreams, OfAnotherDeviceAreWaitedForThere) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = NewPool();
  ASSERT_TRUE(Get(pool).segments().peers.Grant({1}).ok());
  const CUdeviceptr block = Allocate(pool, nullptr);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  {
    const PrimaryContext far = PrimaryContext::Retain(driver(), 1).value();
    const ContextGuard guard(driver(), far);
    const CUstream reader = NewStream();
    Fill(reader, block, kBlock, 1);
    ASSERT_TRUE(runtime().RecordStream(block, reader).ok());
    Destroy(reader);
  }
  Free(block);
  EXPECT_TRUE(Get(pool).Trim(0).ok()) << "the emulator reports memory that is unmapped under work";
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 0u);
}

TEST_P(DyingStreams, OfAnotherDeviceLeaveACaptureThereAlone) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = NewPool();
  AnnouncedCapture capture;
  const CUstream recording = CaptureWhereAReaderDied(pool, capture);
  EXPECT_EQ(Get(pool).Trim(0).status().code(), StatusCode::kFailedPrecondition);
  EndUnbroken(capture, recording);
}

TEST_P(DyingStreams, AreNotWaitedForWhereTheirWaitIsRefused) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = NewPool();
  AnnouncedCapture capture;
  const CUstream recording = CaptureWhereAReaderDied(pool, capture);
  for (int round = 0; round < 40; ++round) {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(pool, stream);
    Destroy(stream);
    Free(block);
  }
  EndUnbroken(capture, recording);
}

TEST_P(DyingStreams, AreDestroyedOnOtherThreads) {
  const PoolHandle pool = NewPool();
  const PrimaryContext context = PrimaryContext::Retain(driver(), 0).value();
  const auto work = [&] {
    const ContextGuard guard(driver(), context);
    for (int round = 0; round < 40; ++round) {
      const CUstream stream = NewStream();
      const CUdeviceptr large = Allocate(pool, stream);
      const CUdeviceptr small = Allocate(pool, stream, 8 * kKiB);
      Fill(stream, large, kBlock, 1);
      Fill(stream, small, 8 * kKiB, 1);
      Destroy(stream);
      Free(large);
      Free(small);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  Synchronize();
  CheckInvariants(Get(pool));
}

TEST_P(DyingStreams, DoNotDisturbACaptureThatIsOpenMeanwhile) {
  const PoolHandle pool = NewPool();
  const PoolHandle captured = NewPool("captured");
  ASSERT_TRUE(Get(captured).mode().Reserve(8 * kMiB).ok());
  const CUstream recording = NewStream();
  AnnouncedCapture capture;
  ASSERT_TRUE(capture.Begin(runtime(), captured, recording).ok());
  for (int round = 0; round < 20; ++round) {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(pool, stream);
    Destroy(stream);
    Free(block);
  }
  EndUnbroken(capture, recording);
}

TEST_P(DyingStreams, MayDieBeforeTheEndOfTheirCaptureIsTold) {
  const PoolHandle pool = NewPool();
  ASSERT_TRUE(Get(pool).mode().Reserve(8 * kMiB).ok());
  const CUstream recording = NewStream();
  AnnouncedCapture capture;
  ASSERT_TRUE(capture.Begin(runtime(), pool, recording, CU_STREAM_CAPTURE_MODE_RELAXED).ok());
  const CUdeviceptr block = Allocate(pool, recording, kMiB);
  Free(block);
  capture.EndOnTheStream();
  Destroy(recording);
  EXPECT_TRUE(capture.EndForThePool().ok());
  capture.DestroyGraph();
}

TEST_P(DyingStreams, AreNotExpectedWhereTheProgramReleasesItsStreams) {
  PoolConfiguration configuration = Configured("outlived");
  configuration.mode = GetParam();
  const PoolHandle pool = Create(std::move(configuration));
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
    Destroy(over);
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
  EXPECT_TRUE(runtime().ReleaseStream(stream).ok());
  Destroy(stream);
  EXPECT_TRUE(Get(pool).Trim(0).ok());
}

INSTANTIATE_TEST_SUITE_P(Modes, DyingStreams, ::testing::Values(Mode::kFixed, Mode::kExpandable),
                         [](const ::testing::TestParamInfo<Mode>& mode) {
                           return mode.param == Mode::kFixed ? "Fixed" : "Expandable";
                         });

}  // namespace
}  // namespace commpool::internal::testing
