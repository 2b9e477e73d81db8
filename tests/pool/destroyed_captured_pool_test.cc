// A capture, or its graph, may keep memory from being released. The next call that can release it does: a trim, or, for
// a destroyed pool, any call that makes, trims, closes or destroys a pool.
#include <chrono>

#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class DestroyedCapturedPool : public PoolTestInEachMode {
 protected:
  static constexpr uint64_t kBytes = 4 * kMiB;

  PoolHandle CreateIn(const char* name, int device = 0) {
    const PoolHandle pool = Create(InMode(name, device));
    EXPECT_TRUE(Get(pool).mode().Reserve(32 * kMiB).ok());
    return pool;
  }
  CUdeviceptr Allocate(PoolHandle pool, const TestStream& stream) { return PoolTest::Allocate(pool, kBytes, stream); }
  void Begin(PoolHandle pool) { ASSERT_TRUE(capture_.Begin(runtime(), pool, stream_).ok()); }
  void End() { EXPECT_TRUE(capture_.End().ok()); }
  // A block of the pool that has no fence only because of the stream's capture.
  void FreeWhatTheCaptureUses(PoolHandle pool, const TestStream& stream) {
    const CUdeviceptr block = Allocate(pool, stream);
    EXPECT_TRUE(runtime().RecordStream(block, stream_).ok());
    Free(block);
  }

  // Pools with a handle or with memory.
  size_t PoolsLeft() { return runtime().pools().All().size(); }
  // A thread of the driver reports the end of a graph, so repeat the call until it finds it.
  template <typename Done, typename Call>
  static bool CallUntil(Done done, Call call) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!done() && std::chrono::steady_clock::now() < limit) call();
    return done();
  }
  template <typename Call>
  bool OneIsLeftAfter(Call call) {
    return CallUntil([&] { return PoolsLeft() == 1; }, call);
  }
  void TrimOther() { EXPECT_TRUE(Get(other_).Trim(0).ok()); }
  void ExpectATrimOfAnotherToRelease() {
    EXPECT_TRUE(OneIsLeftAfter([&] { TrimOther(); }));
  }
  // A pool that was captured, and ends in an order that the case says.
  PoolHandle CreateCaptured() {
    const PoolHandle pool = CreateIn("captured");
    Begin(pool);
    Free(Allocate(pool, stream_));
    return pool;
  }

  const TestStream stream_;
  const TestStream beside_;
  PoolHandle other_ = Create(Configured("other"));
  AnnouncedCapture capture_;
};

TEST_P(DestroyedCapturedPool, ATrimAfterACaptureFirstRecordsTheFencesThatItHeldUp) {
  const PoolHandle pool = CreateIn("beside the capture");
  Begin(other_);
  FreeWhatTheCaptureUses(pool, beside_);
  End();
  EXPECT_TRUE(Get(pool).Trim(0).ok());
  EXPECT_EQ(Reserved(pool), 0u);
}

TEST_P(DestroyedCapturedPool, ReleasesItsMemoryWithTheGraphWhereItWasDestroyedInTheCapture) {
  const PoolHandle pool = CreateCaptured();
  Destroy(pool);
  End();
  TrimOther();
  EXPECT_EQ(PoolsLeft(), 2u) << "the graph may be replayed";
  capture_.DestroyGraph();
  ExpectATrimOfAnotherToRelease();
}

TEST_P(DestroyedCapturedPool, ReleasesItsMemoryWhenAPoolIsMadeAfterItsGraphHasGone) {
  const PoolHandle pool = CreateCaptured();
  End();
  Destroy(pool);
  capture_.DestroyGraph();
  size_t made = 0;
  EXPECT_TRUE(CallUntil([&] { return PoolsLeft() == 1 + made; },
                        [&] {
                          Create(Configured("next"));
                          ++made;
                        }));
}

TEST_P(DestroyedCapturedPool, ReleasesItsMemoryAtOnceWhereItsGraphHasGoneBefore) {
  const PoolHandle pool = CreateCaptured();
  End();
  capture_.DestroyGraph();
  Destroy(pool);
  EXPECT_EQ(PoolsLeft(), 1u);
}

TEST_P(DestroyedCapturedPool, ReleasesItsMemoryWhenAnotherPoolCloses) {
  const PoolHandle pool = CreateCaptured();
  End();
  Destroy(pool);
  capture_.DestroyGraph();
  EXPECT_TRUE(OneIsLeftAfter([&] { EXPECT_TRUE(Get(other_).Close().ok()); }));
}

TEST_P(DestroyedCapturedPool, KeepsItsMemoryUntilItsLastBlockIsFreed) {
  const PoolHandle pool = CreateIn("captured");
  Begin(pool);
  const CUdeviceptr block = Allocate(pool, stream_);
  End();
  Destroy(pool);
  capture_.DestroyGraph();
  TrimOther();
  EXPECT_EQ(PoolsLeft(), 2u) << "the block lives";
  Free(block);
  ExpectATrimOfAnotherToRelease();
}

TEST_P(DestroyedCapturedPool, RecordsTheFencesThatACaptureHeldUp) {
  const PoolHandle pool = CreateIn("beside the capture");
  Begin(other_);
  FreeWhatTheCaptureUses(pool, beside_);
  Destroy(pool);
  End();
  EXPECT_EQ(PoolsLeft(), 2u) << "its stream was still captured when the pool was told";
  ExpectATrimOfAnotherToRelease();
}

TEST_P(DestroyedCapturedPool, RecordsItsFencesLaterOnADeviceWithoutCapturesToo) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PrimaryContext elsewhere = PrimaryContext::Retain(driver(), 1).value();
  const ContextGuard current(driver(), elsewhere);
  const PoolHandle pool = CreateIn("on the other device", 1);
  const TestStream there;
  Begin(other_);
  FreeWhatTheCaptureUses(pool, there);
  Destroy(pool);
  End();
  EXPECT_EQ(PoolsLeft(), 2u);
  ExpectATrimOfAnotherToRelease();
}

INSTANTIATE_TEST_SUITE_P(Modes, DestroyedCapturedPool, EachMode(), NameOfMode);

}  // namespace
}  // namespace commpool::internal::testing
