// Stream capture: which calls become graph nodes, which are forbidden, and which break the capture.
//
// Sources: the driver API's sections "Stream Management" (cuStreamBeginCapture, cuStreamEndCapture,
// cuStreamIsCapturing, cuStreamGetCaptureInfo, cuThreadExchangeStreamCaptureMode) and "Data types" (the errors), and
// what an H200 with driver 580 answered to the same calls.
#include <cuda.h>

#include <functional>
#include <future>
#include <string>
#include <thread>
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
  CUresult EndInto(CUstream stream, CUgraph* graph) { return cuda().cuStreamEndCapture(stream, graph); }
};

TEST_F(Captures, TakeOperationsInsteadOfRunningThem) {
  const CUdeviceptr memory = Allocate(kBytes);
  Fill(memory, 1, kBytes);
  const CUstream stream = BeginOnNewStream();
  EXPECT_EQ(StatusOf(stream), kActive);
  Fill(memory, 2, kBytes, stream);
  const CUgraph graph = End(stream);
  EXPECT_EQ(StatusOf(stream), kNone);
  EXPECT_EQ(NodesOf(graph), 1u);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(memory, kBytes), std::vector<uint8_t>(kBytes, 1));
}

TEST_F(Captures, TellTheirIdTheirGraphAndWhatTheNextNodeDependsOn) {
  const CUdeviceptr memory = Allocate(kBytes);
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
  Fill(memory, 1, kBytes, stream);
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
  const CUdeviceptr memory = Allocate(kBytes);
  Begin(CU_STREAM_PER_THREAD);
  Fill(memory, 1, kBytes, CU_STREAM_PER_THREAD);
  EXPECT_EQ(NodesOf(End(CU_STREAM_PER_THREAD)), 1u);
}

TEST_F(Captures, ForkToAStreamThatWaitsAndJoin) {
  const CUdeviceptr memory = Allocate(2 * kBytes);
  const CUstream forked = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream stream = BeginOnNewStream();
  Order(stream, forked);
  EXPECT_EQ(StatusOf(forked), kActive);
  Fill(memory, 1, kBytes, stream);
  Fill(memory + kBytes, 2, kBytes, forked);
  Order(forked, stream);
  EXPECT_EQ(NodesOf(End(stream)), 2u) << "records and waits are order, not nodes";
  EXPECT_EQ(StatusOf(forked), kNone);
}

TEST_F(Captures, FailWhereAForkIsNotJoined) {
  const CUdeviceptr memory = Allocate(kBytes);
  const CUstream forked = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream stream = BeginOnNewStream();
  Order(stream, forked);
  Fill(memory, 1, kBytes, forked);
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(StatusOf(forked), kNone);
  Fill(memory, 1, kBytes, forked);
}

TEST_F(Captures, AForkWithoutNodesNeedsNoJoin) {
  const CUstream forked = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream stream = BeginOnNewStream();
  Order(stream, forked);
  End(stream);
}

TEST_F(Captures, EndOnTheStreamWhereTheyBegan) {
  const CUstream forked = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream stream = BeginOnNewStream();
  Order(stream, forked);
  EXPECT_EQ(cuda().cuStreamBeginCapture(forked, kGlobal), CUDA_ERROR_ILLEGAL_STATE);
  EndFails(forked, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(StatusOf(stream), kInvalidated);
  EndFails(stream, kWasInvalidated);
}

TEST_F(Captures, DoNotMerge) {
  const CUstream first = BeginOnNewStream();
  const CUstream second = BeginOnNewStream();
  const CUevent event = MakeEvent();
  ASSERT_EQ(cuda().cuEventRecord(event, first), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(second, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EndFails(first, kWasInvalidated);
  EndFails(second, kWasInvalidated);
}

TEST_F(Captures, DoNotWaitForWhatIsOutside) {
  const CUevent event = MakeEvent();
  const CUstream stream = BeginOnNewStream();
  EXPECT_EQ(cuda().cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS) << "never recorded";
  ASSERT_EQ(cuda().cuEventRecord(event, MakeStream(CU_STREAM_NON_BLOCKING)), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EndFails(stream, kWasInvalidated);
}

TEST_F(Captures, BreakWhenTheirStreamsAreAskedForProgressOrTheirNumber) {
  const CUstream forked = MakeStream(CU_STREAM_NON_BLOCKING);
  const auto breaks = [&](const char* what, const std::function<CUresult(CUstream)>& ask) {
    const CUstream stream = BeginOnNewStream(kRelaxed);
    Order(stream, forked);
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
  breaks("query of a fork", [&](CUstream) { return cuda().cuStreamQuery(forked); });
  breaks("the whole context", [&](CUstream) { return cuda().cuCtxSynchronize(); });
  breaks("by another thread", [&](CUstream) { return OnAnotherThread([&] { return cuda().cuCtxSynchronize(); }); });
}

TEST_F(Captures, BreakWhenTheirEventsAreAskedForProgress) {
  const CUevent event = MakeEvent();
  for (const auto ask : {cuda().cuEventQuery, cuda().cuEventSynchronize}) {
    const CUstream stream = BeginOnNewStream(kRelaxed);
    ASSERT_EQ(cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
    EXPECT_EQ(ask(event), CUDA_ERROR_CAPTURED_EVENT);
    EndFails(stream, kWasInvalidated);
  }
}

TEST_F(Captures, LeaveEventsThatAreNoUseUntilTheyAreRecordedAgain) {
  const CUevent event = MakeEvent();
  const CUstream stream = BeginOnNewStream();
  ASSERT_EQ(cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
  End(stream);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuStreamWaitEvent(MakeStream(), event, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
}

TEST_F(Captures, OnceBrokenRefuseEverythingButTheirEnd) {
  const CUdeviceptr memory = Allocate(kBytes);
  const CUevent event = MakeEvent();
  const CUstream stream = BeginOnNewStream();
  EXPECT_EQ(cuda().cuStreamQuery(stream), kUnsupported);
  EXPECT_EQ(cuda().cuMemsetD8Async(memory, 1, kBytes, stream), kWasInvalidated);
  EXPECT_EQ(cuda().cuEventRecord(event, stream), kWasInvalidated);
  EXPECT_EQ(cuda().cuStreamWaitEvent(stream, event, 0), kWasInvalidated);
  EXPECT_EQ(cuda().cuStreamBeginCapture(stream, kGlobal), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(cuda().cuStreamQuery(stream), kUnsupported);
  EndFails(stream, kWasInvalidated);
  EXPECT_EQ(StatusOf(stream), kNone);
  Fill(memory, 1, kBytes, stream);
}

TEST_F(Captures, OfABlockingStreamForbidTheLegacyStream) {
  const CUdeviceptr memory = Allocate(kBytes);
  const CUevent event = MakeEvent();
  const CUstream stream = MakeStream(CU_STREAM_DEFAULT);
  const std::vector<std::function<CUresult()>> uses = {
      [&] { return cuda().cuMemsetD8Async(memory, 1, kBytes, nullptr); },
      [&] { return cuda().cuEventRecord(event, CU_STREAM_LEGACY); },
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
  const CUdeviceptr memory = Allocate(kBytes);
  const CUstream stream = BeginOnNewStream();
  Fill(memory, 1, kBytes);
  EXPECT_EQ(StatusOf(nullptr), kNone);
  EXPECT_EQ(StatusOf(stream), kActive);
  const CUevent event = MakeEvent();
  ASSERT_EQ(cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(nullptr, event, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
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
            {"cuStreamQuery", [&] { return cuda().cuStreamQuery(other_); }},
            {"cuStreamSynchronize", [&] { return cuda().cuStreamSynchronize(other_); }}};
  }
  void ExpectEach(CUstreamCaptureMode mode, bool from_another_thread, CUresult answer) {
    for (const auto& [name, call] : Calls()) {
      const CUstream stream = BeginOnNewStream(mode);
      EXPECT_EQ(from_another_thread ? OnAnotherThread(call) : call(), answer) << name;
      if (answer == CUDA_SUCCESS) {
        End(stream);
      } else {
        EndFails(stream, kWasInvalidated);
      }
    }
  }

  const CUevent event_ = MakeEvent();
  const CUstream other_ = MakeStream(CU_STREAM_NON_BLOCKING);
};

TEST_F(UnsafeCalls, AreRefusedToEveryThreadByAGlobalCapture) {
  ExpectEach(kGlobal, false, kUnsupported);
  ExpectEach(kGlobal, true, kUnsupported);
}

TEST_F(UnsafeCalls, AreRefusedToItsOwnThreadByAThreadLocalCapture) {
  ExpectEach(kThreadLocal, false, kUnsupported);
  ExpectEach(kThreadLocal, true, CUDA_SUCCESS);
}

TEST_F(UnsafeCalls, AreAllowedInARelaxedCapture) {
  ExpectEach(kRelaxed, false, CUDA_SUCCESS);
  ExpectEach(kRelaxed, true, CUDA_SUCCESS);
}

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
    CUgraph graph = nullptr;
    EXPECT_EQ(OnAnotherThread([&] { return EndInto(stream, &graph); }), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(StatusOf(stream), kNone) << "it has ended all the same";
  }
  const CUstream stream = BeginOnNewStream(kRelaxed);
  CUgraph graph = nullptr;
  EXPECT_EQ(OnAnotherThread([&] { return EndInto(stream, &graph); }), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Captures, EndWithTheirStream) {
  CUstream stream = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamBeginCapture(stream, kGlobal), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(AllocateAndFree(), CUDA_SUCCESS) << "nothing captures any more";
}

}  // namespace
}  // namespace commpool::internal::testing
