// What is outside of a capture does not come into it, and what is in it does not come out.
#include <functional>
#include <thread>
#include <vector>

#include "src/library/driver/graph_handles.h"
#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/pool_invariants.h"

namespace commpool::internal::testing {
namespace {

class BesideCaptures : public PoolTest {
 protected:
  static constexpr uint64_t kSmall = 4096;
  static constexpr uint64_t kLarge = 4 * kMiB;

  CUdeviceptr Allocate(PoolHandle pool, const TestStream& stream, uint64_t bytes) {
    Result<CUdeviceptr> block = runtime().AllocateFrom(pool, bytes, stream.get());
    EXPECT_TRUE(block.ok()) << block.status().message();
    return block.ok() ? *block : 0;
  }
  PoolHandle CreateLimited(uint64_t bytes, Streams streams = Streams::kMayDie) {
    PoolConfiguration configuration = Configured("limited");
    configuration.limit_bytes = bytes;
    configuration.streams = streams;
    return Create(std::move(configuration));
  }

  // `by` runs the free and the end of the announcement, on another thread perhaps.
  using By = std::function<void(const std::function<void()>&)>;
  template <typename In>
  void ExpectWorkKeepsItsMemory(
      PoolHandle pool, CUstream stream, In in_the_capture, const By& by = [](const auto& act) { act(); }) {
    ASSERT_TRUE(capture_.Begin(runtime(), pool, stream).ok());
    in_the_capture();
    const CUdeviceptr block = runtime().AllocateFrom(pool, kLarge, stream).value();
    capture_.EndOnTheStream();
    HeldWork work(driver(), stream, block);
    by([&] { Free(block); });
    by([&] { EXPECT_TRUE(capture_.EndForThePool().ok()); });
    capture_.DestroyGraph();
    while (!Get(pool).captures().any_gone()) std::this_thread::yield();  // a thread of the driver tells of its end
    EXPECT_EQ(Allocate(pool, other_, kLarge), block);
    Fill(other_.get(), block, 512, 9);
    EXPECT_EQ(cuda().cuStreamQuery(other_.get()), CUDA_ERROR_NOT_READY) << "it waits for the work";
    work.End();
    EXPECT_EQ(cuda().cuStreamSynchronize(other_.get()), CUDA_SUCCESS);
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
  const CUdeviceptr before = Allocate(pool, stream_, kSmall);
  ASSERT_TRUE(capture_.Begin(runtime(), pool, stream_.get()).ok());
  Free(before);
  const CUdeviceptr inside = Allocate(pool, stream_, kSmall);
  EXPECT_NE(inside, before);
  Fill(stream_.get(), inside, kSmall, 5);
  Free(inside);
  ASSERT_TRUE(capture_.End().ok());
  const CUdeviceptr after = Allocate(pool, stream_, kSmall);
  EXPECT_NE(after, inside) << "a replay writes there";
  Free(after);
  capture_.DestroyGraph();
}

TEST_F(BesideCaptures, APoolThatWasNotToldServesTheCaptureFromNoCache) {
  const PoolHandle told = Create(Configured("told"));
  const PoolHandle untold = Create(Configured("untold"));
  Free(Allocate(untold, stream_, kSmall));
  ASSERT_TRUE(capture_.Begin(runtime(), told, stream_.get()).ok());
  EXPECT_EQ(runtime().AllocateFrom(untold, kSmall, stream_.get()).status().code(), StatusCode::kFailedPrecondition);
  const CUdeviceptr others = Allocate(untold, other_, kSmall);
  ASSERT_TRUE(capture_.End().ok());
  Free(others);
  capture_.DestroyGraph();
}

// In the usual mode a capture forbids some calls to every thread, and nobody has announced this one.
TEST_F(BesideCaptures, OtherThreadsGrowPoolsAndReleaseStreamsBesideACaptureThatNobodyAnnounced) {
  PoolConfiguration pinned = Configured("pinned");
  pinned.backing.kind = BackingKind::kPinned;
  PoolConfiguration plain = Configured("plain");
  plain.backing.kind = BackingKind::kCuda;
  const std::vector<PoolHandle> growing = {Create(std::move(pinned)), Create(std::move(plain))};
  const CUstream released = NewStream();
  ASSERT_TRUE(runtime().PromiseStream(released).ok());

  ASSERT_EQ(cuda().cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  std::vector<CUdeviceptr> blocks;
  std::thread([&] {
    const ContextGuard current = Get(growing.front()).basis().MakeCurrent();
    for (const PoolHandle pool : growing) blocks.push_back(Allocate(pool, other_, kLarge));
    ExpectOk(runtime().ReleaseStream(released));
  }).join();
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda().cuStreamEndCapture(stream_.get(), &graph), CUDA_SUCCESS) << "it is whole";
  if (graph != nullptr) cuda().cuGraphDestroy(graph);
  for (const CUdeviceptr block : blocks) Free(block);
  cuda().cuStreamDestroy(released);
}

// The stream's capture ends before the pool hears of it, and the stream works on with the block.
TEST_F(BesideCaptures, WorkBehindTheCaptureKeepsItsMemory) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  ExpectWorkKeepsItsMemory(CreateLimited(kLarge), stream_.get(), [] {});
}

TEST_F(BesideCaptures, WorkBehindACaptureOfAThreadsOwnStreamKeepsItsMemoryWhicheverThreadEndsIt) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  ExpectWorkKeepsItsMemory(
      CreateLimited(kLarge), CU_STREAM_PER_THREAD, [] {}, [](const auto& act) { std::thread(act).join(); });
}

TEST_F(BesideCaptures, AnotherPoolThatIsFullIsOutOfMemory) {
  const PoolHandle full = CreateLimited(kLarge);
  const CUdeviceptr block = Allocate(full, other_, kLarge);
  ASSERT_TRUE(capture_.Begin(runtime(), Create(Configured("captured")), stream_.get()).ok());
  EXPECT_EQ(runtime().AllocateFrom(full, kLarge, other_.get()).status().code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(capture_.End().ok());
  capture_.DestroyGraph();
  Free(block);
}

TEST_F(BesideCaptures, WorkBehindACaptureThatFirstNamesItsStreamKeepsItsMemory) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const CUstream stream = NewStream();
  ExpectWorkKeepsItsMemory(CreateLimited(kLarge, Streams::kOutlive), stream, [] {});
  EXPECT_TRUE(runtime().ReleaseStream(stream).ok());
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(BesideCaptures, WorkBehindACaptureWhoseStreamIsPromisedInItKeepsItsMemory) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const CUstream stream = NewStream();
  const auto promise = [&] { EXPECT_TRUE(runtime().PromiseStream(stream).ok()); };
  ExpectWorkKeepsItsMemory(CreateLimited(kLarge), stream, promise);
  EXPECT_TRUE(runtime().ReleaseStream(stream).ok());
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
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
  PoolConfiguration configuration = Configured("announced");
  configuration.streams = Streams::kMayDie;
  const PoolHandle pool = own.CreatePool(std::move(configuration)).value();
  ASSERT_EQ(cuda().cuStreamCreate(&to_promise, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_TRUE(capture_.Begin(own, pool, to_promise).ok());
  const engine::Part first = 1;
  EXPECT_TRUE(own.pools().Find(pool).value()->captures().IsRunning(first));
  capture_.EndOnTheStream();
  EXPECT_FALSE(own.pools().Find(pool).value()->captures().IsRunning(first)) << "a stream without a promise may be gone";
  EXPECT_TRUE(capture_.EndForThePool().ok());
  capture_.DestroyGraph();
  EXPECT_TRUE(own.ReleaseStream(to_promise).ok());
  EXPECT_EQ(cuda().cuStreamDestroy(to_promise), CUDA_SUCCESS);
}

// Nobody promised the stream, whose name a capture hides.
TEST_F(BesideCaptures, OneAfterTheOtherTakesTheSameMemory) {
  PoolConfiguration configuration = Configured("captured");
  configuration.streams = Streams::kMayDie;
  const PoolHandle pool = Create(std::move(configuration));
  const CUstream stream = NewStream();
  uint64_t after_first = 0;
  for (int turn = 0; turn < 6; ++turn) {
    ASSERT_TRUE(capture_.Begin(runtime(), pool, stream).ok());
    Result<CUdeviceptr> block = runtime().AllocateFrom(pool, kLarge, stream);
    ASSERT_TRUE(block.ok()) << block.status().message();
    Free(*block);
    const bool pool_first = turn % 2 == 0;
    if (!pool_first) capture_.EndOnTheStream();
    EXPECT_TRUE(capture_.EndForThePool().ok());
    if (pool_first) capture_.EndOnTheStream();
    capture_.DestroyGraph();
    while (!Get(pool).captures().any_gone()) std::this_thread::yield();
    if (turn == 0) after_first = CountersOf(pool).reserved_bytes.current;
    EXPECT_EQ(CountersOf(pool).reserved_bytes.current, after_first) << turn;
  }
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(BesideCaptures, ServeTheLegacyStreamBesideABlockingOne) {
  const PoolHandle pool = Create(Configured("captured"));
  CUstream blocking = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_TRUE(capture_.Begin(runtime(), pool, blocking).ok());
  Result<CUdeviceptr> block = runtime().AllocateFrom(pool, kSmall, nullptr);
  EXPECT_TRUE(block.ok()) << block.status().message();
  ASSERT_TRUE(capture_.End().ok());
  if (block.ok()) Free(*block);
  capture_.DestroyGraph();
  EXPECT_EQ(cuda().cuStreamDestroy(blocking), CUDA_SUCCESS);
}

// A wait of the legacy stream would break the capture.
TEST_F(BesideCaptures, RefuseTheLegacyStreamMemoryForWhichItWouldHaveToWait) {
  const PoolHandle pool = CreateLimited(kLarge);
  const PoolHandle told = Create(Configured("captured"));
  Free(Allocate(pool, other_, kLarge));
  CUstream blocking = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_TRUE(capture_.Begin(runtime(), told, blocking).ok());
  ExpectFailure(runtime().AllocateFrom(pool, kLarge, nullptr).status(), StatusCode::kFailedPrecondition,
                "CU_STREAM_NON_BLOCKING");
  ASSERT_TRUE(capture_.End().ok());
  capture_.DestroyGraph();
  Free(runtime().AllocateFrom(pool, kLarge, nullptr).value());
  EXPECT_EQ(cuda().cuStreamDestroy(blocking), CUDA_SUCCESS);
}

TEST_F(BesideCaptures, OneThatNobodyAnnouncedSurvivesTheFreeOfABlockThatItsStreamUsed) {
  const PoolHandle pool = Create(Configured("used"));
  const CUdeviceptr own = Allocate(pool, stream_, kLarge);
  const CUdeviceptr recorded = Allocate(pool, other_, kLarge);
  ASSERT_TRUE(runtime().RecordStream(recorded, stream_.get()).ok());
  ASSERT_EQ(cuda().cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  Free(own);
  Free(recorded);
  for (int time = 0; time < 8; ++time) Free(Allocate(pool, other_, kLarge));
  EndAndDropGraph(stream_.get());
  CheckInvariants(Get(pool));
}

// The fence was recorded before the capture began.
TEST_F(BesideCaptures, AreServedWhatTheirStreamUsedBeforeThem) {
  const PoolHandle pool = CreateLimited(kLarge);
  const TestStream third;
  const CUdeviceptr used = Allocate(pool, stream_, kLarge);
  ASSERT_TRUE(runtime().RecordStream(used, third.get()).ok());
  HeldWork work(driver(), third.get(), used);
  Free(used);
  ASSERT_EQ(cuda().cuStreamBeginCapture(third.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(Allocate(pool, other_, kLarge), used);
  EXPECT_EQ(cuda().cuStreamQuery(other_.get()), CUDA_ERROR_NOT_READY) << "it waits for the work";
  EndAndDropGraph(third.get());
  work.End();
  Free(used);
}

}  // namespace
}  // namespace commpool::internal::testing
