// Who is about to record on which stream.
#include "src/pool/blocks/recording_streams.h"

#include <gtest/gtest.h>

#include <thread>

namespace commpool::internal {
namespace {

constexpr StreamKey kStream = 64;
constexpr StreamKey kOther = 128;

TEST(RecordingStreams, AreAwaitedByNobodyWhereThereAreNone) {
  RecordingStreams recording;
  recording.AwaitEnd(kStream);
  const RecordingStreams::Scope nothing = recording.Begin({});
  const RecordingStreams::Scope other = recording.Begin({kOther});
  recording.AwaitEnd(kStream);
}

TEST(RecordingStreams, EndWithTheirScopeOrBefore) {
  RecordingStreams recording;
  { const RecordingStreams::Scope scope = recording.Begin({kStream, kOther}); }
  recording.AwaitEnd(kStream);
  RecordingStreams::Scope scope = recording.Begin({kStream, kStream});
  RecordingStreams::Scope moved = std::move(scope);
  moved.End();
  moved.End();
  recording.AwaitEnd(kStream);
}

TEST(RecordingStreams, AreAwaitedUntilTheLastHasEnded) {
  RecordingStreams recording;
  std::atomic<int> open{2};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&open, scope = recording.Begin({kStream, kOther})]() mutable {
      std::this_thread::yield();
      --open;
      scope.End();
    });
  }
  recording.AwaitEnd(kStream);
  EXPECT_EQ(open.load(), 0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace commpool::internal
