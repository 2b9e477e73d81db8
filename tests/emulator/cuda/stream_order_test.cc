// The order of execution, with streams that stop until the test lets them go on: no timing.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class StreamOrder : public MachineTest {
 protected:
  bool IsDone(CUstream stream) {
    const CUresult result = cuda().cuStreamQuery(stream);
    EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) << result;
    return result == CUDA_SUCCESS;
  }
  // Waits until everything submitted so far has run, except behind stopped streams.
  void ExpectRuns(CUstream stream) { EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS); }

  const CUstream stream_ = MakeStream();
};

TEST_F(StreamOrder, WorkWaitsForWhatIsBeforeItInItsStream) {
  const CUdeviceptr memory = Allocate();
  ASSERT_EQ(Fill(memory, 1, kUnit), CUDA_SUCCESS);
  Gate gate(stream_);
  ASSERT_EQ(cuda().cuMemsetD8Async(memory, 2, kUnit, stream_), CUDA_SUCCESS);
  EXPECT_FALSE(IsDone(stream_));
  EXPECT_EQ(FirstByte(memory), 1) << "another stream reads what was there";
  gate.Open();
  ExpectRuns(stream_);
  EXPECT_EQ(FirstByte(memory), 2);
  EXPECT_TRUE(AnyContains(TakeReports(), "race: ")) << "nothing ordered that read";
}

TEST_F(StreamOrder, NonBlockingStreamsAreIndependent) {
  const CUstream held = MakeStream();
  const CUstream free = MakeStream();
  Gate gate(held);
  ASSERT_EQ(Launch(free, {}), CUDA_SUCCESS);
  ExpectRuns(free);
  EXPECT_FALSE(IsDone(held));
}

TEST_F(StreamOrder, TheLegacyStreamWaitsForBlockingStreams) {
  const CUstream blocking = MakeStream(CU_STREAM_DEFAULT);
  Gate gate(blocking);
  ASSERT_EQ(Launch(nullptr, {}), CUDA_SUCCESS);
  EXPECT_FALSE(IsDone(nullptr));
  EXPECT_FALSE(IsDone(CU_STREAM_LEGACY)) << "the same stream by its other name";
  gate.Open();
  ExpectRuns(nullptr);
}

TEST_F(StreamOrder, BlockingStreamsWaitForTheLegacyStream) {
  const CUstream blocking = MakeStream(CU_STREAM_DEFAULT);
  Gate gate(nullptr);
  ASSERT_EQ(Launch(blocking, {}), CUDA_SUCCESS);
  EXPECT_FALSE(IsDone(blocking));
  gate.Open();
  ExpectRuns(blocking);
}

TEST_F(StreamOrder, NonBlockingStreamsAndTheLegacyStreamAreIndependent) {
  const CUstream free = MakeStream();
  {
    Gate gate(nullptr);
    ASSERT_EQ(Launch(free, {}), CUDA_SUCCESS);
    ExpectRuns(free);
  }
  Gate gate(free);
  ASSERT_EQ(Launch(nullptr, {}), CUDA_SUCCESS);
  ExpectRuns(nullptr);
}

TEST_F(StreamOrder, APerThreadStreamIsItsThreadsOwn) {
  Gate gate(CU_STREAM_PER_THREAD);
  std::thread other([&] {
    ContextGuard guard(driver(), context());
    EXPECT_EQ(Launch(CU_STREAM_PER_THREAD, {}), CUDA_SUCCESS);
    ExpectRuns(CU_STREAM_PER_THREAD);
  });
  other.join();
  EXPECT_FALSE(IsDone(CU_STREAM_PER_THREAD));
}

TEST_F(StreamOrder, AWaitHoldsTheStreamUntilTheRecordHasPassed) {
  const CUstream waiting = MakeStream();
  Gate gate(stream_);
  const CUevent event = Record(stream_);
  ASSERT_EQ(cuda().cuStreamWaitEvent(waiting, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(IsDone(waiting));
  gate.Open();
  ExpectRuns(waiting);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS);
}

TEST_F(StreamOrder, AWaitIsForTheRecordAtTheTimeOfTheCall) {
  const CUstream held = MakeStream();
  const CUstream idle = MakeStream();
  const CUstream before = MakeStream();
  const CUstream after = MakeStream();
  const CUevent event = Record(idle);
  ASSERT_EQ(cuda().cuStreamWaitEvent(before, event, 0), CUDA_SUCCESS);
  Gate gate(held);
  ASSERT_EQ(cuda().cuEventRecord(event, held), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(after, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventRecord(event, idle), CUDA_SUCCESS);
  ExpectRuns(idle);
  ExpectRuns(before);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS) << "the event stands for its last record";
  EXPECT_FALSE(IsDone(after)) << "the wait for the one in the middle";
  gate.Open();
  ExpectRuns(after);
}

TEST_F(StreamOrder, AWaitOutlivesItsEvent) {
  const CUstream waiting = MakeStream();
  const CUevent event = Get(cuda().cuEventCreate, CU_EVENT_DISABLE_TIMING);
  Gate gate(stream_);
  ASSERT_EQ(cuda().cuEventRecord(event, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(waiting, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_FALSE(IsDone(waiting));
  gate.Open();
  ExpectRuns(waiting);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamOrder, AStreamWaitsForAnotherDevices) {
  PrimaryContext other = PrimaryContext::Retain(driver(), 1).value();
  const CUstream waiting = MakeStream();
  CUstream recorded = nullptr;
  CUevent event = nullptr;
  {
    ContextGuard guard(driver(), other);
    recorded = NewStream();
    ASSERT_EQ(cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    Gate gate(recorded);
    ASSERT_EQ(cuda().cuEventRecord(event, recorded), CUDA_SUCCESS);
    ContextGuard own(driver(), context());
    ASSERT_EQ(cuda().cuStreamWaitEvent(waiting, event, 0), CUDA_SUCCESS);
    EXPECT_FALSE(IsDone(waiting));
  }
  ExpectRuns(waiting);
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamDestroy(recorded), CUDA_SUCCESS);
}

TEST_F(StreamOrder, AnEventIsRecordedOnItsOwnDevice) {
  PrimaryContext other = PrimaryContext::Retain(driver(), 1).value();
  const CUevent event = MakeEvent();
  ContextGuard guard(driver(), other);
  EXPECT_EQ(cuda().cuEventRecord(event, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamOrder, ADestroyedStreamRunsItsWork) {
  const CUdeviceptr memory = Allocate();
  const CUstream stream = NewStream();
  Gate gate(stream);
  ASSERT_EQ(cuda().cuMemsetD8Async(memory, 9, kUnit, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS) << "does not wait";
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(TakeReports().size(), 1u);
  gate.Open();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(FirstByte(memory), 9);
}

TEST_F(StreamOrder, AStreamIsDestroyedOnce) {
  const CUstream stream = NewStream();
  ASSERT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(TakeReports().size(), 1u);
  for (const CUstream lasting : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(cuda().cuStreamDestroy(lasting), CUDA_ERROR_INVALID_HANDLE);
  }
}

TEST_F(StreamOrder, FreeingMemoryWaitsForWorkOnIt) {
  const CUdeviceptr memory = NewMemory();
  Gate gate(stream_);
  ASSERT_EQ(Launch(stream_, {{memory, kUnit}}), CUDA_SUCCESS);
  std::atomic<bool> freed = false;
  std::thread other([&] {
    ContextGuard guard(driver(), context());
    EXPECT_EQ(cuda().cuMemFree(memory), CUDA_SUCCESS);
    freed = true;
  });
  EXPECT_FALSE(freed);
  gate.Open();
  other.join();
  EXPECT_TRUE(freed);
}

TEST_F(StreamOrder, AHostFunctionRunsInOrder) {
  std::atomic<bool> ran = false;
  Gate gate(stream_);
  ASSERT_EQ(cuda().cuLaunchHostFunc(
                stream_, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &ran),
            CUDA_SUCCESS);
  EXPECT_FALSE(ran);
  gate.Open();
  ExpectRuns(stream_);
  EXPECT_TRUE(ran);
}

// A program may destroy a stream at any time. Later calls that name it are mistakes: on hardware they end the process,
// and no call can ask whether a stream lives.

class DeadStreams : public MachineTest {
 protected:
  unsigned long long IdOf(CUstream stream) {
    unsigned long long id = 0;
    EXPECT_EQ(cuda().cuStreamGetId(stream, &id), CUDA_SUCCESS);
    return id;
  }
};

TEST_F(DeadStreams, AreReportedByAnyCallThatNamesThem) {
  const CUstream dead = NewStream();
  ASSERT_EQ(cuda().cuStreamDestroy(dead), CUDA_SUCCESS);
  const CUevent event = MakeEvent(CU_EVENT_DISABLE_TIMING);
  unsigned long long id = 0;
  CUcontext context = nullptr;
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  const std::vector<CUresult> answers = {cuda().cuStreamQuery(dead),
                                         cuda().cuStreamSynchronize(dead),
                                         cuda().cuEventRecord(event, dead),
                                         cuda().cuStreamWaitEvent(dead, event, 0),
                                         cuda().cuStreamGetId(dead, &id),
                                         cuda().cuStreamGetCtx(dead, &context),
                                         cuda().cuStreamIsCapturing(dead, &capturing),
                                         cuda().cuStreamDestroy(dead)};
  for (const CUresult answer : answers) EXPECT_EQ(answer, CUDA_ERROR_INVALID_HANDLE);
  const std::vector<std::string> reports = TakeReports();
  EXPECT_EQ(reports.size(), answers.size());
  for (const std::string& report : reports) {
    EXPECT_NE(report.find("dead stream: a call names a stream that was destroyed"), std::string::npos) << report;
  }
}

TEST_F(DeadStreams, GiveTheirHandleToTheNextAndNeverTheirNumber) {
  const CUstream first = NewStream();
  const unsigned long long id = IdOf(first);
  ASSERT_EQ(cuda().cuStreamDestroy(first), CUDA_SUCCESS);
  const CUstream second = NewStream();
  EXPECT_EQ(second, first);
  EXPECT_NE(IdOf(second), id);
  EXPECT_EQ(cuda().cuStreamDestroy(second), CUDA_SUCCESS);
}

TEST_F(DeadStreams, RunTheirWork) {
  const CUdeviceptr memory = Allocate();
  const CUstream stream = NewStream();
  ASSERT_EQ(cuda().cuMemsetD8Async(memory, 7, kUnit, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(FirstByte(memory + kUnit - 1), 7);
}

TEST_F(DeadStreams, AreNotReportedWhereTheyNeverExisted) {
  unsigned long long id = 0;
  EXPECT_EQ(cuda().cuStreamGetId(reinterpret_cast<CUstream>(0xdead0), &id), CUDA_ERROR_INVALID_HANDLE);
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

}  // namespace
}  // namespace commpool::internal::testing
