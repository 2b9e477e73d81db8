// Announced captures: the graph owns its memory until it is gone.
#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "src/library/driver/graph_handles.h"
#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/pool_invariants.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class Captures : public PoolTest {
 protected:
  static constexpr uint64_t kBytes = 4 * kMiB;

  Captures() { EXPECT_TRUE(Get(pool_).mode().Reserve(32 * kMiB).ok()); }

  Result<CUdeviceptr> Allocate(const TestStream& stream, uint64_t bytes = kBytes) {
    return runtime().AllocateFrom(pool_, bytes, stream.get());
  }
  void BeginCapture() {
    const Status begun = capture_.Begin(runtime(), pool_, stream_.get());
    ASSERT_TRUE(begun.ok()) << begun.message();
  }
  // The capture must end well, whatever happens on other streams meanwhile.
  void BesideAnUnannouncedCapture(const std::function<void()>& act) {
    const TestStream captured;
    ASSERT_EQ(cuda().cuStreamBeginCapture(captured.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    act();
    EndAndDropGraph(captured.get());
  }
  CUgraph EndCapture() {
    EXPECT_TRUE(capture_.End().ok());
    return capture_.graph();
  }

  const TestStream stream_;
  const TestStream other_;
  PoolHandle pool_ = Create(Configured("captured"));
  AnnouncedCapture capture_;
};

TEST_F(Captures, AreServedFromReservedMemoryAndReplay) {
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_).value();
  Fill(stream_.get(), block, kMiB, 7);
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_EQ(Allocate(stream_).value(), block) << "what is freed in a capture is reused in it";
  EXPECT_TRUE(runtime().Free(block).ok());
  const CUgraph graph = EndCapture();
  CUgraphExec replay = nullptr;
  ASSERT_EQ(cuda().cuGraphInstantiate(&replay, graph, 0), CUDA_SUCCESS);
  const CUdeviceptr outside = Allocate(stream_, kBytes).value();
  EXPECT_NE(outside, block) << "the block is the graph's";
  EXPECT_EQ(cuda().cuGraphLaunch(replay, stream_.get()), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  EXPECT_TRUE(runtime().Free(outside).ok());
  EXPECT_EQ(cuda().cuGraphExecDestroy(replay), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  AwaitGraphsEnd(Get(pool_));
  CheckInvariants(Get(pool_));
}

TEST_F(Captures, RefuseToWaitMeanwhileAndStaySound) {
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_).value();
  EXPECT_EQ(Get(pool_).blocks().WaitForDevice().code(), StatusCode::kFailedPrecondition)
      << "it would break the capture";
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_EQ(cuda().cuGraphDestroy(EndCapture()), CUDA_SUCCESS);
  AwaitGraphsEnd(Get(pool_));
  CheckInvariants(Get(pool_));
}

TEST_F(Captures, KeepOtherPoolsOfTheirDeviceFromClosing) {
  const PoolHandle other = Create(Configured("other"));
  BeginCapture();
  EXPECT_EQ(Get(other).Close().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(cuda().cuGraphDestroy(EndCapture()), CUDA_SUCCESS);
  Result<CUdeviceptr> block = runtime().AllocateFrom(other, kBytes, stream_.get());
  ASSERT_TRUE(block.ok()) << "it has not begun to close: " << block.status().message();
  EXPECT_TRUE(runtime().Free(*block).ok());
  AwaitGraphsEnd(Get(pool_));
}

// The pool asks streams that do not capture, and tells the driver that these calls belong to no capture.
TEST_F(Captures, ThatNobodyAnnouncedSurviveQuestionsToOtherStreams) {
  PoolConfiguration configuration = Configured("limited");
  configuration.limit_bytes = 8 * kMiB;
  const PoolHandle limited = Create(configuration);
  const CUdeviceptr used = runtime().AllocateFrom(limited, 8 * kMiB, other_.get()).value();
  EXPECT_TRUE(runtime().Free(used).ok());
  Result<CUdeviceptr> again = Status(StatusCode::kInternal, "not asked");
  BesideAnUnannouncedCapture([&] { again = runtime().AllocateFrom(limited, 8 * kMiB, stream_.get()); });
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, used);
  EXPECT_TRUE(runtime().Free(*again).ok());
}

TEST_F(Captures, ThatNobodyAnnouncedSurviveQuestionsToFences) {
  const CUdeviceptr shared = Allocate(stream_).value();
  EXPECT_TRUE(runtime().RecordStream(shared, other_.get()).ok());
  EXPECT_TRUE(runtime().Free(shared).ok());
  BesideAnUnannouncedCapture([&] {
    for (int time = 0; time < 8; ++time) EXPECT_TRUE(runtime().Free(Allocate(stream_).value()).ok());
  });
}

// A blocking stream shows in the legacy one. Nobody can find others.
TEST_F(Captures, ThatNobodyAnnouncedRefuseWhatWaitsForTheDevice) {
  CUstream blocking = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  for (const Status& refused : {Get(pool_).Trim(0).status(), SleepAlone(Get(pool_), {}), Get(pool_).Close(),
                                Get(pool_).blocks().WaitForDevice()}) {
    ExpectFailure(refused, StatusCode::kFailedPrecondition, "is being captured");
  }
  EndAndDropGraph(blocking);
  EXPECT_EQ(cuda().cuStreamDestroy(blocking), CUDA_SUCCESS);
  EXPECT_EQ(Get(pool_).Trim(0).value(), 32 * kMiB) << "nothing has changed";
}

TEST_F(Captures, LetOtherStreamsGrowThePool) {
  BeginCapture();
  Result<CUdeviceptr> grown = Allocate(other_, 64 * kMiB);
  ASSERT_TRUE(grown.ok()) << grown.status().message();
  EXPECT_TRUE(runtime().Free(*grown).ok());
  EXPECT_EQ(cuda().cuGraphDestroy(EndCapture()), CUDA_SUCCESS);
}

TEST_F(Captures, RecordNoFenceForAGraphsBlock) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  BeginCapture();
  const CUdeviceptr in_capture = Allocate(stream_).value();
  const CUdeviceptr after_capture = Allocate(stream_).value();
  EXPECT_TRUE(runtime().RecordStream(in_capture, other_.get()).ok());
  EXPECT_TRUE(runtime().RecordStream(after_capture, other_.get()).ok());
  const uint64_t records = CallCount("cuEventRecord");
  EXPECT_TRUE(runtime().Free(in_capture).ok());
  const CUgraph graph = EndCapture();
  ASSERT_NE(graph, nullptr);
  EXPECT_TRUE(runtime().Free(after_capture).ok());
  EXPECT_LE(CallCount("cuEventRecord"), records + 1) << "behind what the other stream may have done outside of it";
  const CUdeviceptr outside = Allocate(other_).value();
  EXPECT_NE(outside, in_capture);
  EXPECT_NE(outside, after_capture);
  EXPECT_TRUE(runtime().Free(outside).ok());
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  AwaitGraphsEnd(Get(pool_));
  CheckInvariants(Get(pool_));
}

TEST_F(Captures, GiveNobodyABlockThatAStreamUsesOutsideOfTheGraph) {
  COMMPOOL_REQUIRE_EMULATOR("a host function holds the stream");
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_).value();
  EXPECT_NE(EndCapture(), nullptr);
  HeldWork work(driver(), stream_.get(), block);
  EXPECT_TRUE(runtime().Free(block).ok());
  capture_.DestroyGraph();
  while (!Get(pool_).captures().any_gone()) std::this_thread::yield();
  // More than all idle memory: the block must not be in it.
  std::vector<CUdeviceptr> others;
  for (int number = 0; number < 9; ++number) others.push_back(Allocate(other_).value());
  EXPECT_EQ(std::count(others.begin(), others.end(), block), 0);
  for (const CUdeviceptr other : others) EXPECT_TRUE(runtime().Free(other).ok());
  work.End();
  EXPECT_TRUE(Get(pool_).Trim(0).ok());
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 0u);
}

TEST_F(Captures, AreNotBrokenByAFreeOfABlockThatTheirStreamsShare) {
  BeginCapture();
  CUevent fork = nullptr;
  ASSERT_EQ(cuda().cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventRecord(fork, stream_.get()), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(other_.get(), fork, 0), CUDA_SUCCESS);
  const CUdeviceptr block = Allocate(stream_).value();
  EXPECT_TRUE(runtime().RecordStream(block, other_.get()).ok());
  EXPECT_TRUE(runtime().Free(block).ok()) << "both streams are captured: an event of theirs cannot be asked";
  EXPECT_EQ(cuda().cuEventRecord(fork, other_.get()), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(stream_.get(), fork, 0), CUDA_SUCCESS);
  const CUgraph graph = EndCapture();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventDestroy(fork), CUDA_SUCCESS);
  AwaitGraphsEnd(Get(pool_));
  CheckInvariants(Get(pool_));
}

TEST_F(Captures, ThatFailGiveTheirMemoryBack) {
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_).value();
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_.get()), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_TRUE(capture_.End(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED).ok());
  EXPECT_EQ(capture_.graph(), nullptr);
  EXPECT_TRUE(runtime().Free(block).ok());
  AwaitGraphsEnd(Get(pool_));
  CheckInvariants(Get(pool_));
}

TEST_F(Captures, AreNotBrokenByAPoolThatKeepsToAThreshold) {
  PoolConfiguration configuration = Configured("threshold");
  configuration.release_threshold_bytes = 0;
  const PoolHandle releasing = Create(configuration);
  Result<CUdeviceptr> before = runtime().AllocateFrom(releasing, kBytes, stream_.get());
  Result<CUdeviceptr> elsewhere = runtime().AllocateFrom(releasing, 64 * kMiB, other_.get());
  ASSERT_TRUE(before.ok() && elsewhere.ok());
  EXPECT_TRUE(runtime().Free(*before).ok());
  BeginCapture();
  EXPECT_TRUE(runtime().Free(*elsewhere).ok()) << "nothing is trimmed in a capture";
  EXPECT_TRUE(Get(releasing).mode().Reclaim().ok());
  const CUgraph graph = EndCapture();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(Get(releasing).mode().Reclaim().ok());
}

TEST_F(Captures, AreReportedWhereNoPoolWasTold) {
  COMMPOOL_REQUIRE_EMULATOR("nobody else reports it");
  ASSERT_EQ(cuda().cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  const CUdeviceptr block = Allocate(stream_).value();
  ExpectOneReport({"unannounced capture: pool captured"});
  EXPECT_TRUE(runtime().Free(block).ok());
  EndAndDropGraph(stream_.get());
}

TEST_F(Captures, AreReportedWhereABlockIsServedAtOnce) {
  COMMPOOL_REQUIRE_EMULATOR("nobody else reports it");
  ASSERT_TRUE(runtime().Free(Allocate(stream_).value()).ok());  // the thread knows the pool
  ASSERT_EQ(cuda().cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  const CUdeviceptr block = runtime().AllocateFrom(pool_, kBytes, stream_.get()).value();
  EXPECT_EQ(TakeReports().size(), 1u);
  EndAndDropGraph(stream_.get());
  EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_F(Captures, DoNotBeginWhereTheDriverWouldNotTellOfTheirEnd) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  const InjectedFault fault({.call = "cuUserObjectCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
  ExpectFailure(capture_.Begin(runtime(), pool_, stream_.get()), StatusCode::kOutOfMemory, "cuUserObjectCreate");
  EndAndDropGraph(stream_.get());
}

// But for the question whether the stream still captures.
TEST_F(Captures, EndWithoutADriverCallWhereNoDestroyedPoolWaits) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  BeginCapture();
  const auto others = [] {
    uint64_t asked = 0;
    for (const char* call : {"cuCtxGetCurrent", "cuStreamIsCapturing", "cuStreamGetCaptureInfo"})
      asked += CallCount(call);
    return CallCount("*") - asked;
  };
  const uint64_t before = others();
  const Status ended = capture_.EndForThePool();
  EXPECT_EQ(others(), before);
  EXPECT_TRUE(ended.ok());
  capture_.EndOnTheStream();
  capture_.DestroyGraph();
}

TEST_F(Captures, ServeNothingAfterTheirEnd) {
  BeginCapture();
  AnnouncedCapture other;
  EXPECT_TRUE(other.Begin(runtime(), pool_, other_.get()).ok());
  EXPECT_TRUE(capture_.EndForThePool().ok());
  EXPECT_EQ(Allocate(stream_).status().code(), StatusCode::kFailedPrecondition) << "the stream still captures";
  capture_.EndOnTheStream();
  EXPECT_TRUE(other.End().ok());
  capture_.DestroyGraph();
  other.DestroyGraph();
}

// The stream's handle may be nobody's by then, or another stream's.
TEST_F(Captures, EndAfterTheirStreamWasReleasedAndDestroyed) {
  const CUstream captured = NewStream();
  ASSERT_TRUE(runtime().PromiseStream(captured).ok());
  ASSERT_TRUE(capture_.Begin(runtime(), pool_, captured).ok());
  const std::vector<CUdeviceptr> blocks = {runtime().AllocateFrom(pool_, kBytes, captured).value(),
                                           runtime().AllocateFrom(pool_, kBytes, captured).value()};
  capture_.EndOnTheStream();
  ASSERT_TRUE(runtime().ReleaseStream(captured).ok());
  ASSERT_EQ(cuda().cuStreamDestroy(captured), CUDA_SUCCESS);
  EXPECT_TRUE(runtime().Free(blocks.front()).ok());
  EXPECT_TRUE(capture_.EndForThePool().ok());
  EXPECT_TRUE(runtime().Free(blocks.back()).ok());
  CheckInvariants(Get(pool_));
  capture_.DestroyGraph();
}

TEST_F(Captures, LeaveTheirMemoryToTheNextAllocationOnceTheirGraphIsGone) {
  const uint64_t reserved = CountersOf(pool_).reserved_bytes.current;
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_, 32 * kMiB).value();
  EXPECT_TRUE(runtime().Free(block).ok());
  EndCapture();
  capture_.DestroyGraph();
  while (!Get(pool_).captures().any_gone()) std::this_thread::yield();  // a thread of the driver reports it
  const CUdeviceptr again = Allocate(stream_, 32 * kMiB).value();
  EXPECT_EQ(again, block);
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, reserved);
  EXPECT_TRUE(runtime().Free(again).ok());
  const CUdeviceptr at_once = runtime().AllocateFrom(pool_, 32 * kMiB, stream_.get()).value();
  EXPECT_EQ(at_once, block) << "no graph is known any more";
  EXPECT_TRUE(runtime().Free(at_once).ok());
}

TEST_F(Captures, ThatThePoolNeverHadEndWithoutEffect) {
  BeginCapture();
  EXPECT_EQ(runtime().EndCapture(999).code(), StatusCode::kNotFound);
  const CUdeviceptr block = Allocate(stream_).value();
  EXPECT_TRUE(runtime().Free(block).ok());
  EXPECT_EQ(cuda().cuGraphDestroy(EndCapture()), CUDA_SUCCESS);
  EXPECT_EQ(runtime().EndCapture(1).code(), StatusCode::kNotFound) << "the first, which has ended";
  EXPECT_FALSE(runtime().devices().captures().any());
  AwaitGraphsEnd(Get(pool_));
}

TEST_F(Captures, MustBeAnnouncedInsideACapture) {
  EXPECT_EQ(runtime().BeginCapture(pool_, stream_.get()).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime().BeginCapture(999, stream_.get()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(runtime().EndCapture(999).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace commpool::internal::testing
