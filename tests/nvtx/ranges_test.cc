// Calls and scopes are ranges of the pool's domain, in order, whether they succeed or not, and without a recording.
#include <thread>

#include "tests/nvtx/listener_fixture.h"
#include "tests/pool/announced_capture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

using Lines = std::vector<std::string>;

class Ranges : public ListenerTest {
 protected:
  Lines Take() { return std::exchange(heard().lines, {}); }
  ScopeHandle BeginScope(PoolHandle pool) {
    return runtime().BeginScope({.pool = runtime().pools().Find(pool).value()}).value();
  }
};

TEST_F(Ranges, ACallIsARangeAroundItsOwnSteps) {
  Pool& pool = Get(Create(Configured("gradients")));
  ASSERT_TRUE(pool.mode().Reserve(8 * kMiB).ok());
  EXPECT_EQ(Take(), (Lines{"push reserve", "push growth", "pop growth", "pop reserve"}));
  ASSERT_TRUE(pool.Trim(0).ok());
  EXPECT_EQ(Take(), (Lines{"push trim", "pop trim"}));
  ASSERT_TRUE(pool.Close().ok());
  EXPECT_EQ(Take(), (Lines{"push close", "pop close"}));
}

TEST_F(Ranges, SleepAndWakeAreRangesToo) {
  Pool& pool = Get(Create(Configured("gradients")));
  ASSERT_TRUE(SleepAlone(pool, {}).ok());
  ASSERT_TRUE(WakeAlone(pool).ok());
  EXPECT_EQ(Take(), (Lines{"push sleep", "pop sleep", "push wake", "pop wake"}));
}

TEST_F(Ranges, ACallThatFailsEndsItsRange) {
  Pool& pool = Get(Create(Configured("gradients")));
  EXPECT_FALSE(WakeAlone(pool).ok());
  EXPECT_EQ(Take(), (Lines{"push wake", "pop wake"}));
}

TEST_F(Ranges, AScopeIsARangeThatAnotherThreadMayEnd) {
  const PoolHandle pool = Create(Configured("gradients"));
  const ScopeHandle outer = BeginScope(pool);
  const ScopeHandle inner = BeginScope(pool);
  EXPECT_EQ(heard().open.size(), 2u);
  EXPECT_TRUE(runtime().EndScope(inner).ok());
  EXPECT_TRUE(runtime().EndScope(outer).ok());
  EXPECT_EQ(Take(), (Lines{"start scope", "start scope", "end scope", "end scope"}));
}

// Scopes as the C ABI begins and ends them: at once where that is possible.
TEST_F(Ranges, EachScopeOfAThreadIsARange) {
  const PoolHandle pool = Create(Configured("gradients"));
  for (int round = 0; round < 3; ++round) {
    ScopeHandle scope = runtime().BeginScopeAtOnce(pool, {}, Exhaustion::kError);
    if (scope == 0) scope = BeginScope(pool);
    if (!runtime().EndScopeAtOnce(scope)) {
      EXPECT_TRUE(runtime().EndScope(scope).ok());
    }
    EXPECT_EQ(Take(), (Lines{"start scope", "end scope"}));
  }
}

TEST_F(Ranges, ACaptureIsARange) {
  const PoolHandle pool = Create(Configured("gradients"));
  TestStream stream;
  AnnouncedCapture capture;
  ASSERT_TRUE(capture.Begin(runtime(), pool, stream.get()).ok());
  ASSERT_TRUE(capture.End().ok());
  EXPECT_EQ(Take(), (Lines{"start capture", "end capture"}));
  capture.DestroyGraph();
}

TEST_F(Ranges, ADomainHasThePoolsName) {
  Create(Configured("gradients"));
  ASSERT_EQ(heard().domains.size(), 1u);
  EXPECT_EQ(**heard().domains.begin(), "commpool: gradients");
}

}  // namespace
}  // namespace commpool::internal::testing
