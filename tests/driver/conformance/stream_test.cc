// Streams, events, host functions: the order of execution.
#include <memory>
#include <mutex>
#include <vector>

#include "tests/driver/conformance/conformance_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {
namespace {

class Streams : public ConformanceTest {
 protected:
  // A host function that writes down that it ran.
  void Append(int entry, CUstream stream) {
    struct Note {
      Streams& test;
      int entry;
    };
    const auto run = [](void* context) {
      const std::unique_ptr<Note> note(static_cast<Note*>(context));
      const std::lock_guard<std::mutex> lock(note->test.mutex_);
      note->test.entries_.push_back(note->entry);
    };
    EXPECT_EQ(cuda().cuLaunchHostFunc(stream, run, new Note{*this, entry}), CUDA_SUCCESS);
  }
  std::vector<int> Entries() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return entries_;
  }

  const CUstream first_ = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream second_ = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUevent event_ = MakeEvent();

 private:
  std::mutex mutex_;
  std::vector<int> entries_;
};

TEST_F(Streams, RunInTheOrderOfSubmission) {
  const CUstream stream = MakeStream();
  for (int entry = 0; entry < 5; ++entry) Append(entry, stream);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Entries(), (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST_F(Streams, AreNotReadyWhileTheirWorkRuns) {
  Hold(first_);
  ASSERT_EQ(cuda().cuEventRecord(event_, first_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(first_), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda().cuEventQuery(event_), CUDA_ERROR_NOT_READY);
  LetGo();
  ASSERT_EQ(cuda().cuEventSynchronize(event_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamSynchronize(first_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(first_), CUDA_SUCCESS);
}

TEST_F(Streams, WaitForAnEventOfAnother) {
  Hold(first_);
  Append(1, first_);
  Order(first_, second_);
  Append(2, second_);
  LetGo();
  ASSERT_EQ(cuda().cuStreamSynchronize(second_), CUDA_SUCCESS);
  EXPECT_EQ(Entries(), (std::vector<int>{1, 2}));
}

TEST_F(Streams, AWaitKeepsTheRecordThatItSaw) {
  ASSERT_EQ(cuda().cuEventRecord(event_, first_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(second_, event_, 0), CUDA_SUCCESS);
  Append(1, second_);
  ASSERT_EQ(cuda().cuStreamSynchronize(second_), CUDA_SUCCESS);
  Hold(first_);
  ASSERT_EQ(cuda().cuEventRecord(event_, first_), CUDA_SUCCESS);  // recorded again, and not passed
  EXPECT_EQ(cuda().cuEventQuery(event_), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda().cuStreamQuery(second_), CUDA_SUCCESS);
  LetGo();
}

TEST_F(Streams, AnEventThatWasNeverRecordedHasPassed) {
  EXPECT_EQ(cuda().cuEventQuery(event_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(MakeStream(), event_, 0), CUDA_SUCCESS);
}

TEST_F(Streams, TheLegacyStreamStandsBetweenBlockingStreams) {
  const CUstream first = MakeStream();
  const CUstream second = MakeStream();
  Hold(first);
  Append(1, first);
  Append(2, CU_STREAM_LEGACY);
  Append(3, second);
  LetGo();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Entries(), (std::vector<int>{1, 2, 3}));
}

TEST_F(Streams, NullIsTheLegacyStream) {
  Hold(nullptr);
  Append(1, nullptr);
  Append(2, CU_STREAM_LEGACY);
  Append(3, nullptr);
  LetGo();
  ASSERT_EQ(cuda().cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
  EXPECT_EQ(Entries(), (std::vector<int>{1, 2, 3}));
}

TEST_F(Streams, FinishTheirWorkAfterTheyAreDestroyed) {
  const CUstream stream = Get(cuda().cuStreamCreate, CU_STREAM_NON_BLOCKING);
  Hold(stream);
  Append(1, stream);
  ASSERT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  LetGo();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Entries(), std::vector<int>{1});
}

TEST_F(Streams, TellTheirContextAndThatNothingIsCaptured) {
  const CUstream stream = MakeStream();
  CUcontext context_of_stream = nullptr;
  ASSERT_EQ(cuda().cuStreamGetCtx(stream, &context_of_stream), CUDA_SUCCESS);
  EXPECT_EQ(context_of_stream, context());
  EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(Streams, TimePassesBetweenTimedEventsAlone) {
  const CUevent start = MakeEvent(CU_EVENT_DEFAULT);
  const CUevent end = MakeEvent(CU_EVENT_DEFAULT);
  const CUevent untimed = MakeEvent(CU_EVENT_DISABLE_TIMING);
  for (const CUevent event : {start, end, untimed}) ASSERT_EQ(cuda().cuEventRecord(event, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  float milliseconds = -1;
  ASSERT_EQ(cuda().cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cuda().cuEventElapsedTime(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Streams, ALaunchReadsAndWritesItsRanges) {
  const CUdeviceptr from = Allocate(4096);
  const CUdeviceptr to = Allocate(4096);
  Fill(from, 20, 4096, first_);
  AddOne(driver(), from, to, 4096, first_);
  AddOne(driver(), to, from, 4096, first_);
  ASSERT_EQ(cuda().cuStreamSynchronize(first_), CUDA_SUCCESS);
  EXPECT_EQ(Read(to, 4096), std::vector<uint8_t>(4096, 21));
  EXPECT_EQ(Read(from, 4096), std::vector<uint8_t>(4096, 22));
}

TEST_F(Streams, ALaunchRefusesAnEmptyRange) {
  const auto nothing = [](const std::vector<const void*>&, const std::vector<void*>&) {};
  EXPECT_EQ(Launch(driver(), nullptr, {{0, 16}}, {}, nothing).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Launch(driver(), nullptr, {}, {{Allocate(16), 0}}, nothing).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace commpool::internal::testing
