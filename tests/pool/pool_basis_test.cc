// Parts of each pool's basis: its state, and the streams on which calls are about to record.
#include "src/library/pool/basis/pool_basis.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace commpool::internal {
namespace {

// Which transitions exist.
using State = PoolLife::State;

void BeginClose(PoolLife& life) {
  EXPECT_TRUE(life.BeginClose([] { return Status(); }).ok());
}

TEST(PoolLife, BeginsOpen) {
  const PoolLife life;
  EXPECT_EQ(life.state(), State::kOpen);
  EXPECT_TRUE(life.open());
  EXPECT_FALSE(life.closed());
  EXPECT_TRUE(life.CheckOpen().ok());
}

TEST(PoolLife, ServesNoMoreOnceItCloses) {
  PoolLife life;
  BeginClose(life);
  EXPECT_FALSE(life.open());
  EXPECT_FALSE(life.closed()) << "a close that failed is made again";
  EXPECT_EQ(life.CheckOpen().code(), StatusCode::kFailedPrecondition);
  life.EndClose();
  EXPECT_TRUE(life.closed());
  EXPECT_FALSE(life.destroyed());
}

TEST(PoolLife, IsAsItWasWhereAWaitOfItsCloseFails) {
  PoolLife life;
  for (const State before : {State::kOpen, State::kAsleep, State::kClosing}) {
    if (before == State::kAsleep) life.BeginSleep();
    if (before == State::kClosing) BeginClose(life);
    const auto fail = [&] {
      EXPECT_EQ(life.state(), before == State::kAsleep ? before : State::kClosing);
      return FailedPrecondition("busy");
    };
    EXPECT_FALSE(life.BeginClose(fail).ok());
    EXPECT_EQ(life.state(), before);
  }
}

TEST(PoolLife, EndsWithItsHandleFromAnyState) {
  for (const int before : {0, 1, 2}) {
    PoolLife life;
    if (before > 0) BeginClose(life);
    if (before > 1) life.EndClose();
    life.Destroy();
    EXPECT_TRUE(life.destroyed());
    EXPECT_NE(life.CheckOpen().message().find("destroyed"), std::string::npos);
  }
}

TEST(PoolLife, SleepsAndServesAgain) {
  PoolLife life;
  life.EndSleep();
  EXPECT_TRUE(life.open()) << "it did not sleep";
  life.BeginSleep();
  EXPECT_TRUE(life.asleep());
  EXPECT_FALSE(life.open());
  EXPECT_FALSE(life.closed());
  EXPECT_NE(life.CheckOpen().message().find("is asleep: wake() it first"), std::string::npos);
  life.EndSleep();
  EXPECT_TRUE(life.open());
}

TEST(PoolLife, EndsAsleepToo) {
  PoolLife life;
  life.BeginSleep();
  BeginClose(life);
  life.EndSleep();
  EXPECT_EQ(life.state(), State::kClosing) << "others end it meanwhile";
  life.EndClose();
  life.BeginSleep();
  EXPECT_TRUE(life.closed());
}

TEST(PoolLife, NeverReturnsToAnEarlierState) {
  PoolLife life;
  life.Destroy();
  BeginClose(life);
  life.EndClose();
  EXPECT_EQ(life.state(), State::kDestroyed);
  life.Abandon();
  life.Destroy();
  EXPECT_EQ(life.state(), State::kAbandoned);
}

// Calls announce on which stream they are about to record, and others wait for them.

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
