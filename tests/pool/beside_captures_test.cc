// What is outside of a capture does not come into it, and what is in it does not come out.
#include <functional>
#include <thread>
#include <vector>

#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class BesideCaptures : public PoolTest {
 protected:
  static constexpr uint64_t kSmall = 4096;
  static constexpr uint64_t kLarge = 4 * kMiB;

  void Begin(PoolHandle pool, CUstream stream) { ExpectOk(capture_.Begin(runtime(), pool, stream)); }
  PoolHandle CreateLimited(uint64_t bytes, Streams streams = Streams::kMayDie) {
    return CreateWith({.name = "limited", .streams = streams, .limit_bytes = bytes});
  }

  // `by` runs the free and the end of the announcement, on another thread perhaps.
  using By = std::function<void(const std::function<void()>&)>;
  template <typename In>
  void ExpectWorkKeepsItsMemory(
      PoolHandle pool, CUstream stream, In in_the_capture, const By& by = [](const auto& act) { act(); }) {
    Begin(pool, stream);
    in_the_capture();
    const CUdeviceptr block = Allocate(pool, kLarge, stream);
    capture_.EndOnTheStream();
    HeldWork work(driver(), stream, block);
    by([&] { Free(block); });
    by([&] { EXPECT_TRUE(capture_.EndForThePool().ok()); });
    capture_.DestroyGraph();
    AwaitAGraphsEnd(Get(pool));
    EXPECT_EQ(Allocate(pool, kLarge, other_), block);
    Fill(other_, block, 512, 9);
    EXPECT_EQ(cuda().cuStreamQuery(other_), CUDA_ERROR_NOT_READY) << "it waits for the work";
    work.End();
    Synchronize(other_);
    Free(block);
    CheckInvariants(Get(pool));
  }

  const TestStream stream_;
  const TestStream other_;
  AnnouncedCapture capture_;
};

// A free in the capture may open a cache, which knows nothing of graphs.
TEST_F(BesideCaptures, NoCacheServesTheCapture) {
  const PoolHandle pool = Create(Configured("captured"));
  const CUdeviceptr before = Allocate(pool, kSmall, stream_);
  Begin(pool, stream_);
  Free(before);
  const CUdeviceptr inside = Allocate(pool, kSmall, stream_);
  EXPECT_NE(inside, before);
  Fill(stream_, inside, kSmall, 5);
  Free(inside);
  ASSERT_TRUE(capture_.End().ok());
  EXPECT_NE(Allocate(pool, kSmall, stream_), inside) << "a replay writes there";
}

TEST_F(BesideCaptures, APoolThatWasNotToldServesTheCaptureFromNoCache) {
  const PoolHandle told = Create(Configured("told"));
  const PoolHandle untold = Create(Configured("untold"));
  Free(Allocate(untold, kSmall, stream_));
  Begin(told, stream_);
  EXPECT_EQ(TryAllocate(untold, kSmall, stream_).status().code(), StatusCode::kFailedPrecondition);
  Allocate(untold, kSmall, other_);
  ASSERT_TRUE(capture_.End().ok());
}

// In the usual mode a capture forbids some calls to every thread, and nobody has announced this one.
TEST_F(BesideCaptures, OtherThreadsGrowPoolsAndReleaseStreamsBesideACaptureThatNobodyAnnounced) {
  const std::vector<PoolHandle> growing = {CreateWith({.name = "pinned", .kind = BackingKind::kPinned}),
                                           CreateWith({.name = "plain", .kind = BackingKind::kCuda})};
  const CUstream released = NewStream();
  ASSERT_TRUE(runtime().PromiseStream(released).ok());

  ASSERT_EQ(cuda().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  std::thread([&] {
    const ContextGuard current(driver(), context());
    for (const PoolHandle pool : growing) Allocate(pool, kLarge, other_);
    ExpectOk(runtime().ReleaseStream(released));
  }).join();
  EndAndDropGraph(stream_);  // it is whole
  DestroyStream(released);
}

// The stream's capture ends before the pool hears of it, and the stream works on with the block.
TEST_F(BesideCaptures, WorkBehindTheCaptureKeepsItsMemory) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  ExpectWorkKeepsItsMemory(CreateLimited(kLarge), stream_, [] {});
}

TEST_F(BesideCaptures, WorkBehindACaptureOfAThreadsOwnStreamKeepsItsMemoryWhicheverThreadEndsIt) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  ExpectWorkKeepsItsMemory(
      CreateLimited(kLarge), CU_STREAM_PER_THREAD, [] {}, [](const auto& act) { std::thread(act).join(); });
}

TEST_F(BesideCaptures, AnotherPoolThatIsFullIsOutOfMemory) {
  const PoolHandle full = CreateLimited(kLarge);
  Allocate(full, kLarge, other_);
  Begin(Create(Configured("captured")), stream_);
  EXPECT_EQ(TryAllocate(full, kLarge, other_).status().code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(capture_.End().ok());
}

TEST_F(BesideCaptures, WorkBehindACaptureThatFirstNamesItsStreamKeepsItsMemory) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const CUstream stream = NewStream();
  ExpectWorkKeepsItsMemory(CreateLimited(kLarge, Streams::kOutlive), stream, [] {});
  EXPECT_TRUE(runtime().ReleaseStream(stream).ok());
  DestroyStream(stream);
}

TEST_F(BesideCaptures, WorkBehindACaptureWhoseStreamIsPromisedInItKeepsItsMemory) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const CUstream stream = NewStream();
  const auto promise = [&] { EXPECT_TRUE(runtime().PromiseStream(stream).ok()); };
  ExpectWorkKeepsItsMemory(CreateLimited(kLarge), stream, promise);
  EXPECT_TRUE(runtime().ReleaseStream(stream).ok());
  DestroyStream(stream);
}

// Makes the promise of AStreamThatAnotherThreadPromisesMeanwhile.
Runtime* promising = nullptr;
CUstream to_promise = nullptr;

TEST_F(BesideCaptures, AStreamThatAnotherThreadPromisesMeanwhileIsAskedAboutItsCapture) {
  auto driver = std::make_shared<Driver>(*shared_driver());
  driver->cuda.cuUserObjectCreate = [](auto... arguments) {
    std::thread([] { EXPECT_TRUE(promising->PromiseStream(to_promise).ok()); }).join();
    return SharedDriver()->cuda.cuUserObjectCreate(arguments...);
  };
  Runtime own(driver);
  promising = &own;
  const PoolHandle pool = own.CreatePool(ConfiguredWith({.name = "announced", .streams = Streams::kMayDie})).value();
  to_promise = NewStream();
  ASSERT_TRUE(capture_.Begin(own, pool, to_promise).ok());
  auto& captures = own.pools().Find(pool).value()->captures();
  EXPECT_TRUE(captures.IsRunning(1));
  capture_.EndOnTheStream();
  EXPECT_FALSE(captures.IsRunning(1)) << "a stream without a promise may be gone";
  EXPECT_TRUE(capture_.EndForThePool().ok());
  capture_.DestroyGraph();
  EXPECT_TRUE(own.ReleaseStream(to_promise).ok());
  DestroyStream(to_promise);
}

// Nobody promised the stream, whose name a capture hides.
TEST_F(BesideCaptures, OneAfterTheOtherTakesTheSameMemory) {
  const PoolHandle pool = CreateWith({.name = "captured", .streams = Streams::kMayDie});
  const CUstream stream = NewStream();
  uint64_t after_first = 0;
  for (int turn = 0; turn < 6; ++turn) {
    Begin(pool, stream);
    Free(Allocate(pool, kLarge, stream));
    const bool pool_first = turn % 2 == 0;
    if (!pool_first) capture_.EndOnTheStream();
    EXPECT_TRUE(capture_.EndForThePool().ok());
    if (pool_first) capture_.EndOnTheStream();
    capture_.DestroyGraph();
    AwaitAGraphsEnd(Get(pool));
    if (turn == 0) after_first = Reserved(pool);
    EXPECT_EQ(Reserved(pool), after_first) << turn;
  }
  DestroyStream(stream);
}

TEST_F(BesideCaptures, ServeTheLegacyStreamBesideABlockingOne) {
  const PoolHandle pool = Create(Configured("captured"));
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  Begin(pool, blocking);
  Allocate(pool, kSmall);
  ASSERT_TRUE(capture_.End().ok());
  DestroyStream(blocking);
}

// A wait of the legacy stream would break the capture.
TEST_F(BesideCaptures, RefuseTheLegacyStreamMemoryForWhichItWouldHaveToWait) {
  const PoolHandle pool = CreateLimited(kLarge);
  const PoolHandle told = Create(Configured("captured"));
  Free(Allocate(pool, kLarge, other_));
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  Begin(told, blocking);
  ExpectFailure(TryAllocate(pool, kLarge).status(), StatusCode::kFailedPrecondition, "CU_STREAM_NON_BLOCKING");
  ASSERT_TRUE(capture_.End().ok());
  capture_.DestroyGraph();
  Free(Allocate(pool, kLarge));
  DestroyStream(blocking);
}

TEST_F(BesideCaptures, OneThatNobodyAnnouncedSurvivesTheFreeOfABlockThatItsStreamUsed) {
  const PoolHandle pool = Create(Configured("used"));
  const CUdeviceptr own = Allocate(pool, kLarge, stream_);
  const CUdeviceptr recorded = Allocate(pool, kLarge, other_);
  ASSERT_TRUE(runtime().RecordStream(recorded, stream_).ok());
  ASSERT_EQ(cuda().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  FreeAll({own, recorded});
  for (int time = 0; time < 8; ++time) Free(Allocate(pool, kLarge, other_));
  EndAndDropGraph(stream_);
}

// The fence was recorded before the capture began.
TEST_F(BesideCaptures, AreServedWhatTheirStreamUsedBeforeThem) {
  const PoolHandle pool = CreateLimited(kLarge);
  const TestStream third;
  const CUdeviceptr used = Allocate(pool, kLarge, stream_);
  ASSERT_TRUE(runtime().RecordStream(used, third).ok());
  HeldWork work(driver(), third, used);
  Free(used);
  ASSERT_EQ(cuda().cuStreamBeginCapture(third, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(Allocate(pool, kLarge, other_), used);
  EXPECT_EQ(cuda().cuStreamQuery(other_), CUDA_ERROR_NOT_READY) << "it waits for the work";
  EndAndDropGraph(third);
}

}  // namespace
}  // namespace commpool::internal::testing
