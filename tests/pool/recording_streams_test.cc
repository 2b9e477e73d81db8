// Calls announce on which stream they are about to record, and others wait for them.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "src/library/pool/basis/pool_basis.h"

namespace commpool::internal {
namespace {

constexpr StreamKey kStream = 64;
constexpr StreamKey kOther = 128;

TEST(RecordingStreams, AreAwaitedByNobodyWhereThereAreNone) {
  RecordingStreams recording;
  recording.AwaitEnd(kStream);
  const RecordingStreams::Scope nothing(recording, {});
  const RecordingStreams::Scope other(recording, {kOther});
  recording.AwaitEnd(kStream);
}

TEST(RecordingStreams, EndWithTheirScope) {
  RecordingStreams recording;
  { const RecordingStreams::Scope scope(recording, {kStream, kOther}); }
  recording.AwaitEnd(kStream);
  { const RecordingStreams::Scope twice(recording, {kStream, kStream}); }
  recording.AwaitEnd(kStream);
}

TEST(RecordingStreams, AreAwaitedUntilTheLastHasEnded) {
  RecordingStreams recording;
  std::atomic<int> open{2};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    auto scope = std::make_unique<RecordingStreams::Scope>(recording, std::vector<StreamKey>{kStream, kOther});
    threads.emplace_back([&open, scope = std::move(scope)]() mutable {
      std::this_thread::yield();
      --open;
      scope.reset();
    });
  }
  recording.AwaitEnd(kStream);
  EXPECT_EQ(open.load(), 0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace commpool::internal
