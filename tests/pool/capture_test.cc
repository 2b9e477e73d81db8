// Announced captures: the graph owns its memory until it is gone.
#include <algorithm>
#include <functional>
#include <vector>

#include "src/library/driver/graph_handles.h"
#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class Captures : public PoolTest {
 protected:
  static constexpr uint64_t kBytes = 4 * kMiB;

  Captures() { EXPECT_TRUE(Get(pool_).mode().Reserve(32 * kMiB).ok()); }

  using PoolTest::Allocate;
  CUdeviceptr Allocate(const TestStream& stream, uint64_t bytes = kBytes) { return Allocate(pool_, bytes, stream); }
  void BeginCapture() { ExpectOk(capture_.Begin(runtime(), pool_, stream_)); }
  void BeginUnannounced(CUstream stream) {
    ASSERT_EQ(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  // The capture must end well, whatever happens on other streams meanwhile.
  void BesideAnUnannouncedCapture(const std::function<void()>& act) {
    const TestStream captured;
    BeginUnannounced(captured);
    act();
    EndAndDropGraph(captured);
  }
  void EndCapture() {
    ExpectOk(capture_.End());
    EXPECT_NE(capture_.graph(), nullptr) << "it is broken";
  }
  // All memory goes back with the last graph.
  void DestroyGraphs() {
    capture_.DestroyGraph();
    AwaitGraphsEnd(Get(pool_));
  }

  const TestStream stream_;
  const TestStream other_;
  PoolHandle pool_ = Create(Configured("captured"));
  AnnouncedCapture capture_;
};

TEST_F(Captures, AreServedFromReservedMemoryAndReplay) {
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_);
  Fill(stream_, block, kMiB, 7);
  Free(block);
  EXPECT_EQ(Allocate(stream_), block) << "what is freed in a capture is reused in it";
  Free(block);
  EndCapture();
  const CUdeviceptr outside = Allocate(stream_);
  EXPECT_NE(outside, block) << "the block is the graph's";
  capture_.Replay(stream_);
  Free(outside);
  DestroyGraphs();
}

TEST_F(Captures, RefuseToWaitMeanwhileAndStaySound) {
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_);
  EXPECT_EQ(Get(pool_).blocks().WaitForDevice().code(), StatusCode::kFailedPrecondition)
      << "it would break the capture";
  Free(block);
  EndCapture();
  DestroyGraphs();
}

TEST_F(Captures, KeepOtherPoolsOfTheirDeviceFromClosing) {
  const PoolHandle other = Create(Configured("other"));
  BeginCapture();
  EXPECT_EQ(Get(other).Close().code(), StatusCode::kFailedPrecondition);
  EndCapture();
  capture_.DestroyGraph();
  Allocate(other, kBytes, stream_);  // it has not begun to close
  AwaitGraphsEnd(Get(pool_));
}

// The pool asks streams that do not capture, and tells the driver that these calls belong to no capture.
TEST_F(Captures, ThatNobodyAnnouncedSurviveQuestionsToOtherStreams) {
  const PoolHandle limited = CreateWith({.name = "limited", .limit_bytes = 8 * kMiB});
  const CUdeviceptr used = Allocate(limited, 8 * kMiB, other_);
  Free(used);
  CUdeviceptr again = 0;
  BesideAnUnannouncedCapture([&] { again = Allocate(limited, 8 * kMiB, stream_); });
  EXPECT_EQ(again, used);
}

TEST_F(Captures, ThatNobodyAnnouncedSurviveQuestionsToFences) {
  const CUdeviceptr shared = Allocate(stream_);
  EXPECT_TRUE(runtime().RecordStream(shared, other_).ok());
  Free(shared);
  BesideAnUnannouncedCapture([&] {
    for (int time = 0; time < 8; ++time) Free(Allocate(stream_));
  });
}

// A blocking stream shows in the legacy one. Nobody can find others.
TEST_F(Captures, ThatNobodyAnnouncedRefuseWhatWaitsForTheDevice) {
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  BeginUnannounced(blocking);
  for (const Status& refused : {Get(pool_).Trim(0).status(), SleepAlone(Get(pool_), {}), Get(pool_).Close(),
                                Get(pool_).blocks().WaitForDevice()}) {
    ExpectFailure(refused, StatusCode::kFailedPrecondition, "is being captured");
  }
  EndAndDropGraph(blocking);
  DestroyStream(blocking);
  EXPECT_EQ(Get(pool_).Trim(0).value(), 32 * kMiB) << "nothing has changed";
}

TEST_F(Captures, LetOtherStreamsGrowThePool) {
  BeginCapture();
  Free(Allocate(other_, 64 * kMiB));
  EndCapture();
  capture_.DestroyGraph();
}

TEST_F(Captures, RecordNoFenceForAGraphsBlock) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  BeginCapture();
  const CUdeviceptr in_capture = Allocate(stream_);
  const CUdeviceptr after_capture = Allocate(stream_);
  EXPECT_TRUE(runtime().RecordStream(in_capture, other_).ok());
  EXPECT_TRUE(runtime().RecordStream(after_capture, other_).ok());
  const uint64_t records = CallCount("cuEventRecord");
  Free(in_capture);
  EndCapture();
  Free(after_capture);
  EXPECT_LE(CallCount("cuEventRecord"), records + 1) << "behind what the other stream may have done outside of it";
  const CUdeviceptr outside = Allocate(other_);
  EXPECT_NE(outside, in_capture);
  EXPECT_NE(outside, after_capture);
  Free(outside);
  DestroyGraphs();
}

TEST_F(Captures, GiveNobodyABlockThatAStreamUsesOutsideOfTheGraph) {
  COMMPOOL_REQUIRE_EMULATOR("a host function holds the stream");
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_);
  EndCapture();
  HeldWork work(driver(), stream_, block);
  Free(block);
  capture_.DestroyGraph();
  AwaitAGraphsEnd(Get(pool_));
  // More than all idle memory: the block must not be in it.
  std::vector<CUdeviceptr> others;
  for (int number = 0; number < 9; ++number) others.push_back(Allocate(other_));
  EXPECT_EQ(std::count(others.begin(), others.end(), block), 0);
  FreeAll(others);
  work.End();
  EXPECT_TRUE(Get(pool_).Trim(0).ok());
  EXPECT_EQ(Reserved(pool_), 0u);
}

TEST_F(Captures, AreNotBrokenByAFreeOfABlockThatTheirStreamsShare) {
  BeginCapture();
  WaitFor(other_, stream_);
  const CUdeviceptr block = Allocate(stream_);
  EXPECT_TRUE(runtime().RecordStream(block, other_).ok());
  Free(block);  // both streams are captured: an event of theirs cannot be asked
  WaitFor(stream_, other_);
  EndCapture();
  DestroyGraphs();
}

TEST_F(Captures, ThatFailGiveTheirMemoryBack) {
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_TRUE(capture_.End(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED).ok());
  EXPECT_EQ(capture_.graph(), nullptr);
  Free(block);
  AwaitGraphsEnd(Get(pool_));
}

TEST_F(Captures, AreNotBrokenByAPoolThatKeepsToAThreshold) {
  const PoolHandle releasing = CreateWith({.name = "threshold", .release_threshold_bytes = 0});
  const CUdeviceptr before = Allocate(releasing, kBytes, stream_);
  const CUdeviceptr elsewhere = Allocate(releasing, 64 * kMiB, other_);
  Free(before);
  BeginCapture();
  Free(elsewhere);  // nothing is trimmed in a capture
  EXPECT_TRUE(Get(releasing).mode().Reclaim().ok());
  EndCapture();
  capture_.DestroyGraph();
  Synchronize();
  EXPECT_TRUE(Get(releasing).mode().Reclaim().ok());
}

TEST_F(Captures, AreReportedWhereNoPoolWasTold) {
  COMMPOOL_REQUIRE_EMULATOR("nobody else reports it");
  BeginUnannounced(stream_);
  const CUdeviceptr block = Allocate(stream_);
  ExpectOneReport({"unannounced capture: pool captured"});
  Free(block);
  EndAndDropGraph(stream_);
}

TEST_F(Captures, AreReportedWhereABlockIsServedAtOnce) {
  COMMPOOL_REQUIRE_EMULATOR("nobody else reports it");
  Free(Allocate(stream_));  // the thread knows the pool
  BeginUnannounced(stream_);
  Allocate(pool_, kBytes, stream_);
  EXPECT_EQ(TakeReports().size(), 1u);
  EndAndDropGraph(stream_);
}

TEST_F(Captures, DoNotBeginWhereTheDriverWouldNotTellOfTheirEnd) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  const InjectedFault fault({.call = "cuUserObjectCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
  ExpectFailure(capture_.Begin(runtime(), pool_, stream_), StatusCode::kOutOfMemory, "cuUserObjectCreate");
  EndAndDropGraph(stream_);
}

// But for the question whether the stream still captures.
TEST_F(Captures, EndWithoutADriverCallWhereNoDestroyedPoolWaits) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  BeginCapture();
  const auto others = [] {
    return CallCount("*") - CallCount("cuCtxGetCurrent") - CallCount("cuStreamIsCapturing") -
           CallCount("cuStreamGetCaptureInfo");
  };
  const uint64_t before = others();
  ExpectOk(capture_.EndForThePool());
  EXPECT_EQ(others(), before);
  capture_.EndOnTheStream();
}

TEST_F(Captures, ServeNothingAfterTheirEnd) {
  BeginCapture();
  AnnouncedCapture other;
  EXPECT_TRUE(other.Begin(runtime(), pool_, other_).ok());
  EXPECT_TRUE(capture_.EndForThePool().ok());
  EXPECT_EQ(TryAllocate(pool_, kBytes, stream_).status().code(), StatusCode::kFailedPrecondition)
      << "the stream still captures";
  capture_.EndOnTheStream();
  EXPECT_TRUE(other.End().ok());
}

// The stream's handle may be nobody's by then, or another stream's.
TEST_F(Captures, EndAfterTheirStreamWasReleasedAndDestroyed) {
  const CUstream captured = NewStream();
  ASSERT_TRUE(runtime().PromiseStream(captured).ok());
  ASSERT_TRUE(capture_.Begin(runtime(), pool_, captured).ok());
  const std::vector<CUdeviceptr> blocks = {Allocate(pool_, kBytes, captured), Allocate(pool_, kBytes, captured)};
  capture_.EndOnTheStream();
  ASSERT_TRUE(runtime().ReleaseStream(captured).ok());
  DestroyStream(captured);
  Free(blocks.front());
  EXPECT_TRUE(capture_.EndForThePool().ok());
  Free(blocks.back());
  CheckInvariants(Get(pool_));
}

TEST_F(Captures, LeaveTheirMemoryToTheNextAllocationOnceTheirGraphIsGone) {
  const uint64_t reserved = Reserved(pool_);
  BeginCapture();
  const CUdeviceptr block = Allocate(stream_, 32 * kMiB);
  Free(block);
  EndCapture();
  capture_.DestroyGraph();
  AwaitAGraphsEnd(Get(pool_));
  EXPECT_EQ(Allocate(stream_, 32 * kMiB), block);
  EXPECT_EQ(Reserved(pool_), reserved);
  Free(block);
  EXPECT_EQ(Allocate(stream_, 32 * kMiB), block) << "no graph is known any more";
}

TEST_F(Captures, ThatThePoolNeverHadEndWithoutEffect) {
  BeginCapture();
  EXPECT_EQ(runtime().EndCapture(999).code(), StatusCode::kNotFound);
  Free(Allocate(stream_));
  EndCapture();
  capture_.DestroyGraph();
  EXPECT_EQ(runtime().EndCapture(1).code(), StatusCode::kNotFound) << "the first, which has ended";
  EXPECT_FALSE(runtime().devices().captures().any());
  AwaitGraphsEnd(Get(pool_));
}

TEST_F(Captures, MustBeAnnouncedInsideACapture) {
  EXPECT_EQ(runtime().BeginCapture(pool_, stream_).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(runtime().BeginCapture(999, stream_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(runtime().EndCapture(999).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace commpool::internal::testing
