// Replays::kOneAtATime: graphs that never run at once share memory, until the last of them is gone.
#include <vector>

#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class SharedGraphMemory : public PoolTestInEachMode {
 protected:
  static PoolConfiguration Of(Replays replays) {
    PoolConfiguration configuration = InMode("graphs");
    configuration.replays = replays;
    return configuration;
  }
  CUdeviceptr Allocate(uint64_t bytes, const TestStream& stream) { return PoolTest::Allocate(pool_, bytes, stream); }
  uint64_t reserved() { return Reserved(pool_); }
  void Begin(AnnouncedCapture& capture, CUstream stream) { ExpectOk(capture.Begin(runtime(), pool_, stream)); }
  // A temporary of the size, then an output of 2 MiB: both are filled, and the output stays live.
  CUdeviceptr Capture(AnnouncedCapture& capture, const TestStream& stream, uint64_t temporary_bytes, uint8_t value) {
    Begin(capture, stream);
    const CUdeviceptr temporary = Allocate(temporary_bytes, stream);
    Fill(stream, temporary, kMiB, value);
    const CUdeviceptr output = Allocate(2 * kMiB, stream);
    Fill(stream, output, kMiB, value);
    Free(temporary);
    EXPECT_TRUE(capture.End().ok());
    CheckInvariants(Get(pool_));
    return output;
  }
  void AwaitEmpty() {
    AwaitGraphsEnd(Get(pool_));
    CheckInvariants(Get(pool_));
  }

  PoolHandle pool_ = 0;
  const TestStream first_;
  const TestStream second_;
};

TEST_P(SharedGraphMemory, IsThatOfTheLargestGraphAndTheOutputs) {
  for (const Replays replays : {Replays::kConcurrent, Replays::kOneAtATime}) {
    pool_ = Create(Of(replays));
    AnnouncedCapture captures[3];
    std::vector<CUdeviceptr> outputs;
    const TestStream* const streams[] = {&first_, &second_, &first_};
    for (uint8_t graph = 0; graph < 3; ++graph) {
      outputs.push_back(Capture(captures[graph], *streams[graph], (64 - graph * 8) * kMiB, graph + 1));
    }
    const uint64_t temporaries = replays == Replays::kOneAtATime ? 64 * kMiB : (64 + 56 + 48) * kMiB;
    EXPECT_GE(reserved(), temporaries);
    EXPECT_LE(reserved(), temporaries + 3 * 8 * kMiB) << "three outputs, each in a segment of its own at most";
    for (const uint8_t graph : std::vector<uint8_t>{2, 0, 1, 0}) {
      SCOPED_TRACE(int{graph});
      captures[graph].Replay(second_);
      ExpectBytes(first_, outputs[graph], kMiB, graph + 1);
    }
    FreeAll(outputs);
    for (AnnouncedCapture& capture : captures) capture.DestroyGraph();
    AwaitEmpty();
  }
}

TEST_P(SharedGraphMemory, StaysUntilTheLastGraphIsGone) {
  pool_ = Create(Of(Replays::kOneAtATime));
  AnnouncedCapture captures[2];
  for (AnnouncedCapture& capture : captures) Free(Capture(capture, first_, 64 * kMiB, 1));
  const uint64_t of_graphs = reserved();
  captures[0].DestroyGraph();
  ASSERT_TRUE(Get(pool_).Trim(0).ok());  // waits a moment for what the driver says of the graph that is gone
  EXPECT_EQ(reserved(), of_graphs);
  AnnouncedCapture third;
  Free(Capture(third, first_, 64 * kMiB, 2));
  EXPECT_EQ(reserved(), of_graphs) << "a later graph has the part that the first one began";
  captures[1].DestroyGraph();
  third.DestroyGraph();
  AwaitEmpty();
}

TEST_P(SharedGraphMemory, IsCapturedByOneAtATime) {
  pool_ = Create(Of(Replays::kOneAtATime));
  AnnouncedCapture first, second;
  Begin(first, first_);
  ExpectFailure(second.Begin(runtime(), pool_, second_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                StatusCode::kFailedPrecondition, "one at a time");
  second.EndOnTheStream();
  Free(Allocate(2 * kMiB, first_));
  EXPECT_TRUE(first.End().ok());
  second.DestroyGraph();
  Free(Capture(second, second_, 2 * kMiB, 1));
  first.DestroyGraph();
  second.DestroyGraph();
  AwaitEmpty();
}

INSTANTIATE_TEST_SUITE_P(Modes, SharedGraphMemory, EachMode(), NameOfMode);

}  // namespace
}  // namespace commpool::internal::testing
