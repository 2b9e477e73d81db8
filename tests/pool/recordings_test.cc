// Who is about to record on which stream.
#include "src/pool/recordings.h"

#include <gtest/gtest.h>

#include <thread>

namespace commpool::internal {
namespace {

constexpr StreamKey kStream = 64;
constexpr StreamKey kOther = 128;

TEST(Recordings, AreAwaitedByNobodyWhereThereAreNone) {
  Recordings recordings;
  recordings.AwaitEnd(kStream);
  const Recordings::Scope nothing = recordings.Begin({});
  const Recordings::Scope other = recordings.Begin({kOther});
  recordings.AwaitEnd(kStream);
}

TEST(Recordings, EndWithTheirScopeOrBefore) {
  Recordings recordings;
  { const Recordings::Scope scope = recordings.Begin({kStream, kOther}); }
  recordings.AwaitEnd(kStream);
  Recordings::Scope scope = recordings.Begin({kStream, kStream});
  Recordings::Scope moved = std::move(scope);
  moved.End();
  moved.End();
  recordings.AwaitEnd(kStream);
}

TEST(Recordings, AreAwaitedUntilTheLastHasEnded) {
  Recordings recordings;
  std::atomic<int> open{2};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&open, scope = recordings.Begin({kStream, kOther})]() mutable {
      std::this_thread::yield();
      --open;
      scope.End();
    });
  }
  recordings.AwaitEnd(kStream);
  EXPECT_EQ(open.load(), 0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace commpool::internal
