// The program releases streams while other threads free blocks that these streams used.
#include <atomic>
#include <thread>

#include "tests/pool/pool_fixture.h"
#include "tools/common/pool_invariants.h"

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

class ReleasedStreams : public DriverTest {
 protected:
  ReleasedStreams()
      : context_(PrimaryContext::Retain(driver(), 0).value()),
        current_(driver(), context_),
        runtime_(SlowDriver()),
        pool_(Create()),
        home_(NewStream()) {
    recorded_too_late = 0;
  }
  ~ReleasedStreams() override {
    Release(home_);
    EXPECT_TRUE(runtime_.pools().Find(pool_).value()->Trim(0).ok());
  }

  PoolHandle Create() {
    PoolConfiguration configuration;
    configuration.name = "shared";
    configuration.streams = Streams::kOutlive;
    return runtime_.CreatePool(std::move(configuration)).value();
  }
  static CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  void Release(CUstream stream) {
    EXPECT_TRUE(runtime_.ReleaseStream(stream).ok());
    if (stream == watched) released = true;
    EXPECT_EQ(SharedDriver()->cuda.cuStreamDestroy(stream), CUDA_SUCCESS);
  }
  CUstream NewWatchedStream() {
    recording = false;
    released = false;
    watched = NewStream();
    return watched;
  }
  // A block of home_ that the stream uses too.
  CUdeviceptr AllocateFor(CUstream stream) {
    const CUdeviceptr address = runtime_.AllocateFrom(pool_, 64 * kKiB, home_).value();
    EXPECT_TRUE(runtime_.RecordStream(address, stream).ok());
    return address;
  }
  void Free(CUdeviceptr address) {
    ContextGuard guard(driver(), context_);
    ExpectOk(runtime_.Free(address));
  }

  const PrimaryContext context_;
  const ContextGuard current_;
  Runtime runtime_;
  const PoolHandle pool_;
  const CUstream home_;
};

TEST_F(ReleasedStreams, AreRecordedOnBeforeTheReleaseReturns) {
  const CUstream stream = NewWatchedStream();
  const CUdeviceptr address = AllocateFor(stream);
  std::thread frees([&] { Free(address); });
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
  EXPECT_EQ(runtime_.AllocateFrom(pool_, 64 * kKiB, home_).value(), address) << "nothing waits for the stream";
  Free(address);
}

TEST_F(ReleasedStreams, AreReleasedWhileManyThreadsFree) {
  for (int round = 0; round < 20; ++round) {
    const CUstream stream = NewWatchedStream();
    std::vector<CUdeviceptr> addresses;
    for (int block = 0; block < 2 * kThreads; ++block) addresses.push_back(AllocateFor(stream));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        Free(addresses[2 * thread]);
        Free(addresses[2 * thread + 1]);
      });
    }
    Release(stream);
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(recorded_too_late.load(), 0);
  Pool& pool = *runtime_.pools().Find(pool_).value();
  CheckInvariants(pool);
  EXPECT_EQ(pool.Statistics().allocated_blocks.current, 0u);
}

// While a stream captures, only its handle tells which stream it is.
TEST_F(ReleasedStreams, AreNotTakenForDeadOnesThatHadTheirHandle) {
  COMMPOOL_REQUIRE_EMULATOR("it gives the handle again");
  PoolConfiguration configuration;
  configuration.name = "dying streams";
  const PoolHandle pool = runtime_.CreatePool(std::move(configuration)).value();
  const CUstream dead = NewStream();
  ASSERT_TRUE(runtime_.Free(runtime_.AllocateFrom(pool, 3 * kMiB, dead).value()).ok());
  ASSERT_EQ(driver().cuda.cuStreamDestroy(dead), CUDA_SUCCESS);
  const CUstream again = NewStream();
  ASSERT_EQ(again, dead);
  ASSERT_EQ(driver().cuda.cuStreamBeginCapture(again, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_TRUE(runtime_.PromiseStream(again).ok());
  CUgraph graph = nullptr;
  EXPECT_EQ(driver().cuda.cuStreamEndCapture(again, &graph), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
  Release(again);
  Pool& there = *runtime_.pools().Find(pool).value();
  {
    MutexLock lock(there.blocks().mutex());
    EXPECT_FALSE(there.blocks().engine().StrandedBytes().empty()) << "nobody has waited for the dead stream";
  }
  EXPECT_TRUE(there.Trim(0).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
