// A capture, or its graph, may keep memory from being released. The next call that can release it does: a trim, or, for
// a destroyed pool, any call that makes, trims, closes or destroys a pool.
#include <chrono>
#include <optional>

#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class DestroyedCapturedPool : public PoolTest, public ::testing::WithParamInterface<Mode> {
 protected:
  static constexpr uint64_t kBytes = 4 * kMiB;

  PoolHandle CreateIn(const char* name, int device = 0) {
    PoolConfiguration configuration = Configured(name, device);
    configuration.mode = GetParam();
    const PoolHandle pool = Create(configuration);
    EXPECT_TRUE(Get(pool).mode().Reserve(32 * kMiB).ok());
    return pool;
  }
  CUdeviceptr Allocate(PoolHandle pool, const TestStream& stream) {
    return runtime().AllocateFrom(pool, kBytes, stream.get()).value();
  }
  void Destroy(PoolHandle pool) { EXPECT_TRUE(runtime().DestroyPool(pool).ok()); }
  void Begin(PoolHandle pool) { ASSERT_TRUE(capture_.Begin(runtime(), pool, stream_.get()).ok()); }
  void End() { EXPECT_TRUE(capture_.End().ok()); }
  // A block of the pool that has no fence only because of the stream's capture.
  void FreeWhatTheCaptureUses(PoolHandle pool, const TestStream& stream) {
    const CUdeviceptr block = Allocate(pool, stream);
    EXPECT_TRUE(runtime().RecordStream(block, stream_.get()).ok());
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
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 0u);
  capture_.DestroyGraph();
  Destroy(pool);  // also releases an expandable pool's addresses
}

TEST_P(DestroyedCapturedPool, ReleasesItsMemoryWithTheGraphWhereItWasDestroyedInTheCapture) {
  const PoolHandle pool = CreateIn("captured");
  Begin(pool);
  Free(Allocate(pool, stream_));
  Destroy(pool);
  End();
  TrimOther();
  EXPECT_EQ(PoolsLeft(), 2u) << "the graph may be replayed";
  capture_.DestroyGraph();
  EXPECT_TRUE(OneIsLeftAfter([&] { TrimOther(); }));
}

TEST_P(DestroyedCapturedPool, ReleasesItsMemoryWhenAPoolIsMadeAfterItsGraphHasGone) {
  const PoolHandle pool = CreateIn("captured");
  Begin(pool);
  Free(Allocate(pool, stream_));
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
  const PoolHandle pool = CreateIn("captured");
  Begin(pool);
  Free(Allocate(pool, stream_));
  End();
  capture_.DestroyGraph();
  Destroy(pool);
  EXPECT_EQ(PoolsLeft(), 1u);
}

TEST_P(DestroyedCapturedPool, ReleasesItsMemoryWhenAnotherPoolCloses) {
  const PoolHandle pool = CreateIn("captured");
  Begin(pool);
  Free(Allocate(pool, stream_));
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
  EXPECT_TRUE(OneIsLeftAfter([&] { TrimOther(); }));
}

TEST_P(DestroyedCapturedPool, RecordsTheFencesThatACaptureHeldUp) {
  const PoolHandle pool = CreateIn("beside the capture");
  Begin(other_);
  FreeWhatTheCaptureUses(pool, beside_);
  Destroy(pool);
  End();
  EXPECT_EQ(PoolsLeft(), 2u) << "its stream was still captured when the pool was told";
  EXPECT_TRUE(OneIsLeftAfter([&] { TrimOther(); }));
  capture_.DestroyGraph();
}

TEST_P(DestroyedCapturedPool, RecordsItsFencesLaterOnADeviceWithoutCapturesToo) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PrimaryContext elsewhere = PrimaryContext::Retain(driver(), 1).value();
  std::optional<ContextGuard> current(std::in_place, driver(), elsewhere);
  const PoolHandle pool = CreateIn("on the other device", 1);
  {
    const TestStream there;
    Begin(other_);
    FreeWhatTheCaptureUses(pool, there);
    Destroy(pool);
    End();
    EXPECT_EQ(PoolsLeft(), 2u);
    EXPECT_TRUE(OneIsLeftAfter([&] { TrimOther(); }));
    capture_.DestroyGraph();
  }
  current.reset();
}

INSTANTIATE_TEST_SUITE_P(Modes, DestroyedCapturedPool, ::testing::Values(Mode::kFixed, Mode::kExpandable));

}  // namespace
}  // namespace commpool::internal::testing
