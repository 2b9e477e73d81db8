// Stream capture: which calls become graph nodes, which are forbidden, and which break the capture.
//
// Sources: the driver API's sections "Stream Management" (cuStreamBeginCapture, cuStreamEndCapture,
// cuStreamIsCapturing, cuStreamGetCaptureInfo, cuThreadExchangeStreamCaptureMode) and "Data types" (the errors), and
// what an H200 with driver 580 answered to the same calls.
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tests/driver/capturing.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr CUstreamCaptureMode kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr CUstreamCaptureMode kThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr CUstreamCaptureMode kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
constexpr CUstreamCaptureStatus kNone = CU_STREAM_CAPTURE_STATUS_NONE;
constexpr CUstreamCaptureStatus kActive = CU_STREAM_CAPTURE_STATUS_ACTIVE;
constexpr CUstreamCaptureStatus kInvalidated = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
constexpr CUresult kUnsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
constexpr CUresult kWasInvalidated = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

class Captures : public Capturing<ConformanceTest> {
 protected:
  static constexpr uint64_t kBytes = 4096;

  // The result of a call on another thread.
  CUresult OnAnotherThread(const std::function<CUresult()>& call) {
    return std::async(std::launch::async,
                      [&] {
                        const ContextGuard current(driver(), context());
                        return call();
                      })
        .get();
  }
  CUresult AllocateAndFree() {
    CUdeviceptr address = 0;
    const CUresult result = cuda().cuMemAlloc(&address, kBytes);
    return result == CUDA_SUCCESS ? cuda().cuMemFree(address) : result;
  }

  const CUdeviceptr memory_ = Allocate(2 * kBytes);
  const CUstream forked_ = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUevent event_ = MakeEvent();
};

TEST_F(Captures, TakeOperationsInsteadOfRunningThem) {
  Fill(memory_, 1, kBytes);
  const CUstream stream = BeginOnNewStream();
  EXPECT_EQ(StatusOf(stream), kActive);
  Fill(memory_, 2, kBytes, stream);
  const CUgraph graph = End(stream);
  EXPECT_EQ(StatusOf(stream), kNone);
  EXPECT_EQ(NodesOf(graph), 1u);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(memory_, kBytes), std::vector<uint8_t>(kBytes, 1));
}

TEST_F(Captures, TellTheirIdTheirGraphAndWhatTheNextNodeDependsOn) {
  const CUstream stream = BeginOnNewStream();
  CUstreamCaptureStatus status = kNone;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 1;
  ASSERT_EQ(cuda().cuStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count), CUDA_SUCCESS);
  EXPECT_EQ(status, kActive);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(count, 0u);
  Fill(memory_, 1, kBytes, stream);
  ASSERT_EQ(cuda().cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &dependencies, &edges, &count),
            CUDA_SUCCESS);
  EXPECT_EQ(count, 1u);
  End(stream);
  ASSERT_EQ(cuda().cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(status, kNone);
  Begin(stream);
  cuuint64_t next_id = 0;
  ASSERT_EQ(cuda().cuStreamGetCaptureInfo(stream, &status, &next_id, nullptr, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_NE(next_id, id);
  End(stream);
}

TEST_F(Captures, BeginOnceAndEndOnce) {
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(cuda().cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(3)), CUDA_ERROR_INVALID_VALUE);
  EndFails(stream, CUDA_ERROR_ILLEGAL_STATE);
  Begin(stream);
  EXPECT_EQ(cuda().cuStreamBeginCapture(stream, kGlobal), CUDA_ERROR_ILLEGAL_STATE);
  EndFails(MakeStream(CU_STREAM_NON_BLOCKING), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(StatusOf(stream), kActive) << "none of these breaks it";
  End(stream);
}

TEST_F(Captures, AreNotOfTheLegacyStream) {
  EXPECT_EQ(cuda().cuStreamBeginCapture(nullptr, kGlobal), kUnsupported);
  EXPECT_EQ(cuda().cuStreamBeginCapture(CU_STREAM_LEGACY, kRelaxed), kUnsupported);
}

TEST_F(Captures, OfAThreadsOwnStreamWork) {
  Begin(CU_STREAM_PER_THREAD);
  Fill(memory_, 1, kBytes, CU_STREAM_PER_THREAD);
  EXPECT_EQ(NodesOf(End(CU_STREAM_PER_THREAD)), 1u);
}

TEST_F(Captures, ForkToAStreamThatWaitsAndJoin) {
  const CUstream stream = BeginOnNewStream();
  Order(stream, forked_);
  EXPECT_EQ(StatusOf(forked_), kActive);
  Fill(memory_, 1, kBytes, stream);
  Fill(memory_ + kBytes, 2, kBytes, forked_);
  Order(forked_, stream);
  EXPECT_EQ(NodesOf(End(stream)), 2u) << "records and waits are order, not nodes";
  EXPECT_EQ(StatusOf(forked_), kNone);
}

TEST_F(Captures, FailWhereAForkIsNotJoined) {
  const CUstream stream = BeginOnNewStream();
  Order(stream, forked_);
  Fill(memory_, 1, kBytes, forked_);
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(StatusOf(forked_), kNone);
  Fill(memory_, 1, kBytes, forked_);
}

TEST_F(Captures, AForkWithoutNodesNeedsNoJoin) {
  const CUstream stream = BeginOnNewStream();
  Order(stream, forked_);
  End(stream);
}

TEST_F(Captures, EndOnTheStreamWhereTheyBegan) {
  const CUstream stream = BeginOnNewStream();
  Order(stream, forked_);
  EXPECT_EQ(cuda().cuStreamBeginCapture(forked_, kGlobal), CUDA_ERROR_ILLEGAL_STATE);
  EndFails(forked_, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(StatusOf(stream), kInvalidated);
  EndFails(stream, kWasInvalidated);
}

TEST_F(Captures, DoNotMerge) {
  const CUstream first = BeginOnNewStream();
  const CUstream second = BeginOnNewStream();
  ASSERT_EQ(cuda().cuEventRecord(event_, first), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(second, event_, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EndFails(first, kWasInvalidated);
  EndFails(second, kWasInvalidated);
}

TEST_F(Captures, DoNotWaitForWhatIsOutside) {
  const CUstream stream = BeginOnNewStream();
  EXPECT_EQ(cuda().cuStreamWaitEvent(stream, event_, 0), CUDA_SUCCESS) << "never recorded";
  ASSERT_EQ(cuda().cuEventRecord(event_, MakeStream(CU_STREAM_NON_BLOCKING)), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(stream, event_, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EndFails(stream, kWasInvalidated);
}

TEST_F(Captures, BreakWhenTheirStreamsAreAskedForProgressOrTheirNumber) {
  const auto breaks = [&](const char* what, const std::function<CUresult(CUstream)>& ask) {
    const CUstream stream = BeginOnNewStream(kRelaxed);
    Order(stream, forked_);
    EXPECT_EQ(ask(stream), kUnsupported) << what;
    EXPECT_EQ(StatusOf(stream), kInvalidated) << what;
    EndFails(stream, kWasInvalidated);
  };
  breaks("query", [&](CUstream stream) { return cuda().cuStreamQuery(stream); });
  breaks("synchronize", [&](CUstream stream) { return cuda().cuStreamSynchronize(stream); });
  unsigned long long id = 0;
  breaks("number", [&](CUstream stream) {
    EXPECT_EQ(cuda().cuStreamGetId(MakeStream(), &id), CUDA_SUCCESS) << "of another stream it may be asked";
    return cuda().cuStreamGetId(stream, &id);
  });
  breaks("query of a fork", [&](CUstream) { return cuda().cuStreamQuery(forked_); });
  breaks("the whole context", [&](CUstream) { return cuda().cuCtxSynchronize(); });
  breaks("by another thread", [&](CUstream) { return OnAnotherThread([&] { return cuda().cuCtxSynchronize(); }); });
}

TEST_F(Captures, BreakWhenTheirEventsAreAskedForProgress) {
  for (const auto ask : {cuda().cuEventQuery, cuda().cuEventSynchronize}) {
    const CUstream stream = BeginOnNewStream(kRelaxed);
    ASSERT_EQ(cuda().cuEventRecord(event_, stream), CUDA_SUCCESS);
    EXPECT_EQ(ask(event_), CUDA_ERROR_CAPTURED_EVENT);
    EndFails(stream, kWasInvalidated);
  }
}

TEST_F(Captures, LeaveEventsThatAreNoUseUntilTheyAreRecordedAgain) {
  const CUstream stream = BeginOnNewStream();
  ASSERT_EQ(cuda().cuEventRecord(event_, stream), CUDA_SUCCESS);
  End(stream);
  EXPECT_EQ(cuda().cuEventQuery(event_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuEventSynchronize(event_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuStreamWaitEvent(MakeStream(), event_, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuda().cuEventRecord(event_, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventSynchronize(event_), CUDA_SUCCESS);
}

TEST_F(Captures, OnceBrokenRefuseEverythingButTheirEnd) {
  const CUstream stream = BeginOnNewStream();
  EXPECT_EQ(cuda().cuStreamQuery(stream), kUnsupported);
  EXPECT_EQ(cuda().cuMemsetD8Async(memory_, 1, kBytes, stream), kWasInvalidated);
  EXPECT_EQ(cuda().cuEventRecord(event_, stream), kWasInvalidated);
  EXPECT_EQ(cuda().cuStreamWaitEvent(stream, event_, 0), kWasInvalidated);
  EXPECT_EQ(cuda().cuStreamBeginCapture(stream, kGlobal), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(cuda().cuStreamQuery(stream), kUnsupported);
  EndFails(stream, kWasInvalidated);
  EXPECT_EQ(StatusOf(stream), kNone);
  Fill(memory_, 1, kBytes, stream);
}

TEST_F(Captures, OfABlockingStreamForbidTheLegacyStream) {
  const CUstream stream = MakeStream(CU_STREAM_DEFAULT);
  const std::vector<std::function<CUresult()>> uses = {
      [&] { return cuda().cuMemsetD8Async(memory_, 1, kBytes, nullptr); },
      [&] { return cuda().cuEventRecord(event_, CU_STREAM_LEGACY); },
      [&] { return cuda().cuStreamQuery(nullptr); },
      [&] { return cuda().cuStreamBeginCapture(nullptr, kRelaxed); },
  };
  for (const auto& use : uses) {
    Begin(stream, kRelaxed);
    CUstreamCaptureStatus status = kNone;
    EXPECT_EQ(cuda().cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_EQ(StatusOf(stream), kActive) << "asking breaks nothing";
    EXPECT_EQ(use(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EndFails(stream, kWasInvalidated);
  }
}

TEST_F(Captures, OfANonBlockingStreamLeaveTheLegacyStreamAlone) {
  const CUstream stream = BeginOnNewStream();
  Fill(memory_, 1, kBytes);
  EXPECT_EQ(StatusOf(nullptr), kNone);
  EXPECT_EQ(StatusOf(stream), kActive);
  ASSERT_EQ(cuda().cuEventRecord(event_, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(nullptr, event_, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EndFails(stream, kWasInvalidated);
}

// Calls that wait, or that a capture would not see: which modes refuse them.
class UnsafeCalls : public Captures {
 protected:
  std::vector<std::pair<std::string, std::function<CUresult()>>> Calls() {
    return {{"cuMemAlloc", [&] { return AllocateAndFree(); }},
            {"cuMemAllocHost",
             [&] {
               void* pointer = nullptr;
               const CUresult result = cuda().cuMemAllocHost(&pointer, kBytes);
               return result == CUDA_SUCCESS ? cuda().cuMemFreeHost(pointer) : result;
             }},
            {"cuEventQuery", [&] { return cuda().cuEventQuery(event_); }},
            {"cuEventSynchronize", [&] { return cuda().cuEventSynchronize(event_); }},
            {"cuStreamQuery", [&] { return cuda().cuStreamQuery(forked_); }},
            {"cuStreamSynchronize", [&] { return cuda().cuStreamSynchronize(forked_); }}};
  }
  void ExpectEach(CUstreamCaptureMode mode, CUresult own_thread, CUresult other_thread) {
    for (const auto& [name, call] : Calls()) {
      for (const bool own : {true, false}) {
        const CUresult expected = own ? own_thread : other_thread;
        const CUstream stream = BeginOnNewStream(mode);
        EXPECT_EQ(own ? call() : OnAnotherThread(call), expected) << name;
        EXPECT_EQ(End(stream, expected == CUDA_SUCCESS ? CUDA_SUCCESS : kWasInvalidated) != nullptr,
                  expected == CUDA_SUCCESS);
      }
    }
  }
};

TEST_F(UnsafeCalls, AreRefusedToEveryThreadByAGlobalCapture) { ExpectEach(kGlobal, kUnsupported, kUnsupported); }

TEST_F(UnsafeCalls, AreRefusedToItsOwnThreadByAThreadLocalCapture) {
  ExpectEach(kThreadLocal, kUnsupported, CUDA_SUCCESS);
}

TEST_F(UnsafeCalls, AreAllowedInARelaxedCapture) { ExpectEach(kRelaxed, CUDA_SUCCESS, CUDA_SUCCESS); }

TEST_F(UnsafeCalls, AreAllowedToAThreadThatIsRelaxed) {
  const CUstream stream = BeginOnNewStream();
  CUstreamCaptureMode mode = kRelaxed;
  ASSERT_EQ(cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, kGlobal);
  for (const auto& [name, call] : Calls()) EXPECT_EQ(call(), CUDA_SUCCESS) << name;
  ASSERT_EQ(cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, kRelaxed);
  End(stream);
}

TEST_F(UnsafeCalls, AreStillRefusedToAThreadLocalThreadThatCaptures) {
  const CUstream stream = BeginOnNewStream();
  CUstreamCaptureMode mode = kThreadLocal;
  ASSERT_EQ(cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(AllocateAndFree(), kUnsupported);
  ASSERT_EQ(cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EndFails(stream, kWasInvalidated);
}

TEST_F(Captures, AllowWhatOnlyMakesAndMaps) {
  const CUstream stream = BeginOnNewStream();
  {
    MappedMemory memory = MakeMapped(granularity());  // reserves, creates, maps, grants; then unmaps and releases
    const Result<Event> event = Event::Create(driver());
    EXPECT_TRUE(event.ok());
  }
  EXPECT_EQ(StatusOf(stream), kActive);
  End(stream);
}

TEST_F(Captures, EndOnTheThreadWhereTheyBeganUnlessRelaxed) {
  for (const CUstreamCaptureMode mode : {kGlobal, kThreadLocal}) {
    const CUstream stream = BeginOnNewStream(mode);
    OnAnotherThread([&] { return EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD), CUDA_SUCCESS; });
    EXPECT_EQ(StatusOf(stream), kNone) << "it has ended all the same";
  }
  OnAnotherThread([&, stream = BeginOnNewStream(kRelaxed)] { return End(stream), CUDA_SUCCESS; });
}

TEST_F(Captures, EndWithTheirStream) {
  const CUstream stream = Get(cuda().cuStreamCreate, CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(cuda().cuStreamBeginCapture(stream, kGlobal), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(AllocateAndFree(), CUDA_SUCCESS) << "nothing captures any more";
}

}  // namespace
}  // namespace commpool::internal::testing
