// The program releases streams while other threads free blocks that these streams used.
#include <atomic>
#include <thread>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr int kThreads = 4;

// The calls that the pools' driver has seen.
std::atomic<CUstream> watched{nullptr};
std::atomic<bool> recording{false};
std::atomic<bool> released{false};
std::atomic<int> recorded_too_late{0};

// Gives the release every chance to come first.
CUresult RecordSlowly(CUevent event, CUstream stream) {
  if (stream != watched.load()) return SharedDriver()->cuda.cuEventRecord(event, stream);
  recording = true;
  for (int turn = 0; turn < 1000 && !released; ++turn) std::this_thread::yield();
  if (released) ++recorded_too_late;
  return SharedDriver()->cuda.cuEventRecord(event, stream);
}

std::shared_ptr<const Driver> SlowDriver() {
  auto slow = std::make_shared<Driver>(*SharedDriver());
  slow->cuda.cuEventRecord = RecordSlowly;
  return slow;
}

class ReleasedStreams : public PoolTest {
 protected:
  ReleasedStreams() : PoolTest(SlowDriver()) { recorded_too_late = 0; }

  void Release(CUstream stream) {
    ExpectOk(runtime().ReleaseStream(stream));
    if (stream == watched) released = true;
    DestroyStream(stream);
  }
  CUstream NewWatchedStream() {
    recording = false;
    released = false;
    watched = NewStream();
    return watched;
  }
  // A block of home_ that the stream uses too.
  CUdeviceptr AllocateFor(CUstream stream) {
    const CUdeviceptr address = Allocate(pool_, 64 * kKiB, home_);
    ExpectOk(runtime().RecordStream(address, stream));
    return address;
  }
  void FreeOnAnyThread(CUdeviceptr address) {
    const ContextGuard guard(driver(), context());
    Free(address);
  }

  const PoolHandle pool_ = Create(Configured("shared"));
  const TestStream home_;
};

TEST_F(ReleasedStreams, AreRecordedOnBeforeTheReleaseReturns) {
  const CUstream stream = NewWatchedStream();
  const CUdeviceptr address = AllocateFor(stream);
  std::thread frees([&] { FreeOnAnyThread(address); });
  while (!recording) std::this_thread::yield();
  Release(stream);
  frees.join();
  EXPECT_EQ(recorded_too_late.load(), 0);
}

TEST_F(ReleasedStreams, AreNotRecordedOnAfterwards) {
  const CUstream stream = NewWatchedStream();
  const CUdeviceptr address = AllocateFor(stream);
  Release(stream);
  Free(address);
  EXPECT_FALSE(recording);
  EXPECT_EQ(Allocate(pool_, 64 * kKiB, home_), address) << "nothing waits for the stream";
}

TEST_F(ReleasedStreams, AreReleasedWhileManyThreadsFree) {
  for (int round = 0; round < 20; ++round) {
    const CUstream stream = NewWatchedStream();
    std::vector<CUdeviceptr> addresses;
    for (int block = 0; block < 2 * kThreads; ++block) addresses.push_back(AllocateFor(stream));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        FreeOnAnyThread(addresses[2 * thread]);
        FreeOnAnyThread(addresses[2 * thread + 1]);
      });
    }
    Release(stream);
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(recorded_too_late.load(), 0);
  EXPECT_EQ(CountersOf(pool_).allocated_blocks.current, 0u);
}

// While a stream captures, only its handle tells which stream it is.
TEST_F(ReleasedStreams, AreNotTakenForDeadOnesThatHadTheirHandle) {
  COMMPOOL_REQUIRE_EMULATOR("it gives the handle again");
  const PoolHandle pool = CreateWith({.name = "dying streams", .streams = Streams::kMayDie});
  const CUstream dead = NewStream();
  Free(Allocate(pool, 3 * kMiB, dead));
  DestroyStream(dead);
  const CUstream again = NewStream();
  ASSERT_EQ(again, dead);
  ASSERT_EQ(cuda().cuStreamBeginCapture(again, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_TRUE(runtime().PromiseStream(again).ok());
  EndAndDropGraph(again);
  Release(again);
  BlockStore& blocks = Get(pool).blocks();
  MutexLock lock(blocks.mutex());
  EXPECT_FALSE(blocks.engine().StrandedBytes().empty()) << "nobody has waited for the dead stream";
}

}  // namespace
}  // namespace commpool::internal::testing
