// Streams, events, host functions: the order of execution.
#include <cuda.h>

#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/driver/conformance/conformance_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {
namespace {

// Host functions that write down the order in which they ran.
class Journal {
 public:
  void Add(int entry) {
    std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(entry);
  }
  std::vector<int> entries() {
    std::lock_guard<std::mutex> lock(mutex_);
    return entries_;
  }

 private:
  std::mutex mutex_;
  std::vector<int> entries_;
};

class Streams : public ConformanceTest {
 protected:
  void Append(int entry, CUstream stream) {
    struct Note {
      Journal& journal;
      int entry;
    };
    const auto run = [](void* context) {
      const std::unique_ptr<Note> note(static_cast<Note*>(context));
      note->journal.Add(note->entry);
    };
    EXPECT_EQ(cuda().cuLaunchHostFunc(stream, run, new Note{journal_, entry}), CUDA_SUCCESS);
  }

  // Holds a stream until `release` is called.
  void Hold(CUstream stream) {
    const auto wait = [](void* context) { static_cast<std::promise<void>*>(context)->get_future().wait(); };
    EXPECT_EQ(cuda().cuLaunchHostFunc(stream, wait, &gate_), CUDA_SUCCESS);
  }
  void Release() { gate_.set_value(); }

  Journal journal_;
  std::promise<void> gate_;
};

TEST_F(Streams, RunInTheOrderOfSubmission) {
  const CUstream stream = MakeStream();
  for (int entry = 0; entry < 5; ++entry) Append(entry, stream);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(journal_.entries(), (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST_F(Streams, AreNotReadyWhileTheirWorkRuns) {
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUevent event = MakeEvent();
  Hold(stream);
  ASSERT_EQ(cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  Release();
  ASSERT_EQ(cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST_F(Streams, WaitForAnEventOfAnother) {
  const CUstream first = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream second = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUevent event = MakeEvent();
  Hold(first);
  Append(1, first);
  ASSERT_EQ(cuda().cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  Append(2, second);
  Release();
  ASSERT_EQ(cuda().cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(journal_.entries(), (std::vector<int>{1, 2}));
}

TEST_F(Streams, AWaitKeepsTheRecordThatItSaw) {
  const CUstream first = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream second = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUevent event = MakeEvent();
  ASSERT_EQ(cuda().cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  Append(1, second);
  ASSERT_EQ(cuda().cuStreamSynchronize(second), CUDA_SUCCESS);
  Hold(first);
  ASSERT_EQ(cuda().cuEventRecord(event, first), CUDA_SUCCESS);  // recorded again, and not passed
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda().cuStreamQuery(second), CUDA_SUCCESS);
  Release();
}

TEST_F(Streams, AnEventThatWasNeverRecordedHasPassed) {
  const CUevent event = MakeEvent();
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(MakeStream(), event, 0), CUDA_SUCCESS);
}

TEST_F(Streams, TheLegacyStreamStandsBetweenBlockingStreams) {
  const CUstream first = MakeStream();
  const CUstream second = MakeStream();
  Hold(first);
  Append(1, first);
  Append(2, CU_STREAM_LEGACY);
  Append(3, second);
  Release();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(journal_.entries(), (std::vector<int>{1, 2, 3}));
}

TEST_F(Streams, NullIsTheLegacyStream) {
  Hold(nullptr);
  Append(1, nullptr);
  Append(2, CU_STREAM_LEGACY);
  Append(3, nullptr);
  Release();
  ASSERT_EQ(cuda().cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
  EXPECT_EQ(journal_.entries(), (std::vector<int>{1, 2, 3}));
}

TEST_F(Streams, FinishTheirWorkAfterTheyAreDestroyed) {
  CUstream stream = nullptr;
  ASSERT_EQ(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Hold(stream);
  Append(1, stream);
  ASSERT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  Release();
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(journal_.entries(), std::vector<int>{1});
}

TEST_F(Streams, TellTheirContextAndThatNothingIsCaptured) {
  const CUstream stream = MakeStream();
  CUcontext context_of_stream = nullptr;
  ASSERT_EQ(cuda().cuStreamGetCtx(stream, &context_of_stream), CUDA_SUCCESS);
  EXPECT_EQ(context_of_stream, context());
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  ASSERT_EQ(cuda().cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
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
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr from = Allocate(4096);
  const CUdeviceptr to = Allocate(4096);
  Fill(from, 20, 4096, stream);
  const auto add_one = [](const std::vector<const void*>& reads, const std::vector<void*>& writes) {
    const auto* source = static_cast<const uint8_t*>(reads.at(0));
    auto* target = static_cast<uint8_t*>(writes.at(0));
    for (int index = 0; index < 4096; ++index) target[index] = static_cast<uint8_t>(source[index] + 1);
  };
  Status status = Launch(driver(), stream, {{from, 4096}}, {{to, 4096}}, add_one);
  ASSERT_TRUE(status.ok()) << status.message();
  status = Launch(driver(), stream, {{to, 4096}}, {{from, 4096}}, add_one);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
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
