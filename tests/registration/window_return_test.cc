// Windows that end as a pool falls asleep and come back to their places as it wakes: graphs that captured collectives
// over them hold, though nobody announced the captures. Where NCCL places one elsewhere the pool sleeps on, everywhere.
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/library/pool/group_calls.h"
#include "tests/pool/pool_fixture.h"
#include "tests/registration/captured_sum.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class WindowReturn : public SymmetricTest {
 protected:
  Statuses Sleep(const SleepRequest& request = {}) {
    return Run([&](Rank& rank) { return SleepAlone(PoolOf(rank), request); });
  }
  Statuses Wake(const SleepRequest& request = {}) {
    return Run([&](Rank& rank) { return WakeAlone(PoolOf(rank), request); });
  }
  // In a segment of their own.
  std::vector<CUdeviceptr> Grow(uint64_t bytes) {
    ExpectOk(Reserve(bytes));
    return Allocate(bytes);
  }
  CapturedSum& Captured(std::vector<CUdeviceptr> blocks) {
    CapturedSum& sum = sums_.emplace_back(driver(), std::move(blocks));
    ExpectOk(Run([&](Rank& rank) { return sum.Capture(rank); }));
    return sum;
  }
  void ReplayAll(int seed) {
    for (CapturedSum& sum : sums_) ExpectOk(Run([&](Rank& rank) { return sum.Replay(rank, seed); }));
  }
  void ExpectSums(int seed) {
    for (CapturedSum& sum : sums_) ExpectOk(Run([&](Rank& rank) { return sum.ExpectSum(rank, seed); }));
  }
  void EndAll() {
    for (CapturedSum& sum : sums_) {
      ExpectOk(Run([&](Rank& rank) { return sum.Destroy(rank); }));
      Free(sum.blocks());
    }
    sums_.clear();
  }
  std::vector<ncclWindow_t> WindowsOf(Rank& rank) {
    std::vector<ncclWindow_t> windows;
    for (const CapturedSum& sum : sums_) {
      windows.push_back(runtime().windows().Find(rank.communicator, sum.BlockOf(rank)).value().window);
    }
    return windows;
  }
  // Another pool of home, with windows of its own.
  void BringStranger(uint64_t bytes) {
    strangers_.assign(static_cast<size_t>(group().size()), 0);
    ExpectOk(Run([&](Rank& rank) {
      PoolConfiguration configuration = Configured(rank);
      configuration.name = "stranger";
      strangers_[static_cast<size_t>(rank.number)] = runtime().CreatePool(std::move(configuration)).value();
      return Stranger(rank)->mode().Reserve(bytes);
    }));
  }
  std::shared_ptr<Pool> Stranger(const Rank& rank) {
    return runtime().pools().Find(strangers_[static_cast<size_t>(rank.number)]).value();
  }
  void SendStrangerAway() {
    ExpectOk(Run([&](Rank& rank) { return Stranger(rank)->Close(); }));
  }

 private:
  std::deque<CapturedSum> sums_;
  std::vector<PoolHandle> strangers_;
};

// A of 4 MiB, B of 2; A ends; C of 2 takes its place, D of 4 comes last: one after the other B would come to C's.
TEST_F(WindowReturn, BringsBackWhatCameAfterAnotherWindowEnded) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> a = Grow(4 * kMiB);
  Captured(Grow(2 * kMiB));
  Free(a);
  ExpectOk(Trim(0));
  Captured(Grow(2 * kMiB));
  Captured(Grow(4 * kMiB));
  std::vector<std::vector<ncclWindow_t>> before;
  for (int rank = 0; rank <= last(); ++rank) before.push_back(WindowsOf(group()[rank]));
  for (int sleeps = 0; sleeps < 20; ++sleeps) {
    ExpectOk(Sleep());
    ExpectOk(Wake());
    for (int rank = 0; rank <= last(); ++rank) {
      EXPECT_EQ(WindowsOf(group()[rank]), before[static_cast<size_t>(rank)]);
    }
    ReplayAll(sleeps);
  }
  EndAll();
}

TEST_F(WindowReturn, IsRefusedOnAllRanksBeforeSleepWhereNoOrderBringsThemBack) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> first = Grow(4 * kMiB);
  const std::vector<CUdeviceptr> second = Grow(2 * kMiB);
  Free(first);
  ExpectOk(Trim(0));
  const Statuses refused = Sleep();
  ExpectFailure(refused, StatusCode::kFailedPrecondition, "no order of registering brings all windows back");
  ExpectFailure(refused, StatusCode::kFailedPrecondition, "graphs = DISCARDED accepts that");
  EXPECT_EQ(RegisteredSegments(last()), 1u) << "nothing has changed";
  ExpectOk(Sleep({.graphs = LiveGraphs::kDiscarded}));
  ExpectOk(Wake());
  Free(second);
}

// The newest sleeps first and wakes last, whatever the order of the calls: so each finds the older ones where they
// were.
TEST_F(WindowReturn, OfSeveralPoolsHoldsInEveryOrder) {
  ExpectOk(Create());
  Captured(Grow(2 * kMiB));
  BringStranger(2 * kMiB);
  std::vector<PoolHandle> oldest_first;
  for (int rank = 0; rank < group().size(); ++rank) oldest_first.push_back(HandleOf(group()[rank]));
  for (int rank = 0; rank < group().size(); ++rank) oldest_first.push_back(Stranger(group()[rank])->handle());
  const std::vector<PoolHandle> newest_first(oldest_first.rbegin(), oldest_first.rend());
  const auto sleep = [](Pool& pool, OtherPoolsOfCall others) { return pool.Sleep({}, others); };
  const auto wake = [](Pool& pool, OtherPoolsOfCall others) { return pool.Wake({}, others); };
  for (const std::vector<PoolHandle>& asleep : {oldest_first, newest_first}) {
    for (const std::vector<PoolHandle>& awake : {oldest_first, newest_first}) {
      ExpectOk({AllOrNone(runtime(), asleep, sleep, Oldest::kLast)});
      ExpectOk({AllOrNone(runtime(), awake, wake, Oldest::kFirst)});
    }
  }
  ReplayAll(1);
  SendStrangerAway();
  EndAll();
}

TEST_F(WindowReturn, HoldsWhereAStrangersWindowCameAndWent) {
  ExpectOk(Create());
  Captured(Grow(2 * kMiB));
  ExpectOk(Sleep());
  BringStranger(2 * kMiB);
  SendStrangerAway();
  ExpectOk(Wake());
  ReplayAll(1);
  EndAll();
}

TEST_F(WindowReturn, IsRefusedOnEveryRankWhileAStrangersWindowIsInTheWay) {
  ExpectOk(Create());
  Captured(Grow(2 * kMiB));
  Captured(Grow(4 * kMiB));
  ReplayAll(1);
  ExpectOk(Sleep({.keep = Keep::kHost}));
  BringStranger(2 * kMiB);
  for (int time = 0; time < 2; ++time) {
    ExpectFailure(Wake(), StatusCode::kFailedPrecondition,
                  "NCCL placed 2 of 2 windows, first that of segment 0 (2 MiB) with communicator 0, elsewhere than "
                  "before");
    for (int rank = 0; rank <= last(); ++rank) {
      const auto statistics = PoolOf(group()[rank]).Statistics();
      EXPECT_EQ(statistics.asleep_bytes, ReservedBytes(rank));
      EXPECT_EQ(statistics.kept_bytes, 6 * kMiB);
      EXPECT_EQ(RegisteredSegments(rank), 0u);
    }
  }
  SendStrangerAway();
  ExpectOk(Wake());
  ExpectSums(1);
  ReplayAll(2);
  EndAll();
}

TEST_F(WindowReturn, MayBeGivenUpWithTheGraphs) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> first = Grow(2 * kMiB);
  const std::vector<CUdeviceptr> second = Grow(4 * kMiB);
  ExpectOk(Sleep());
  BringStranger(2 * kMiB);
  ExpectFailure(Wake(), StatusCode::kFailedPrecondition, "elsewhere than before");
  ExpectOk(Wake({.graphs = LiveGraphs::kDiscarded}));
  // From now on they are at home there.
  Captured(first);
  Captured(second);
  ExpectOk(Sleep());
  ExpectOk(Wake());
  ReplayAll(1);
  SendStrangerAway();
  EndAll();
}

TEST_F(WindowReturn, IsNotAskedForWhereTheProgramGaveUpGraphsWithCollectives) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> blocks = Grow(2 * kMiB);
  for (const LiveGraphs graphs : {LiveGraphs::kNoCollectives, LiveGraphs::kDiscarded}) {
    ExpectOk(Sleep({.graphs = graphs}));
    BringStranger(2 * kMiB);
    ExpectOk(Wake());
    SendStrangerAway();
  }
  Free(blocks);
}

TEST_F(WindowReturn, CoversEveryCommunicator) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> blocks = Grow(2 * kMiB);
  std::vector<ncclComm_t> others = group().ConnectFrom(1);
  const auto other_of = [&](const Rank& rank) { return others[static_cast<size_t>(rank.number)]; };
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(other_of(rank)); }));
  const auto window_of = [&](int rank) {
    return runtime()
        .windows()
        .Find(others[static_cast<size_t>(rank)], blocks[static_cast<size_t>(rank)])
        .value()
        .window;
  };
  std::vector<ncclWindow_t> before;
  for (int rank = 1; rank <= last(); ++rank) before.push_back(window_of(rank));
  ExpectOk(Sleep());
  ExpectOk(Wake());
  for (int rank = 1; rank <= last(); ++rank) EXPECT_EQ(window_of(rank), before[static_cast<size_t>(rank) - 1]);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(other_of(rank)); }));
  group().Destroy(others);
  Free(blocks);
}

// The last rank ends a window of the program's own by itself, so what comes next lies there in its place alone.
TEST_F(WindowReturn, IsRefusedOnAllRanksWhereTheRanksOfACommunicatorOfSomeHaveOtherPlaces) {
  if (group().size() < 4) GTEST_SKIP() << "needs two ranks beside two others";
  ExpectOk(Create());
  std::vector<ncclComm_t> others = group().ConnectFrom(2);
  const auto other_of = [&](const Rank& rank) { return others[static_cast<size_t>(rank.number)]; };
  std::vector<std::pair<void*, ncclWindow_t>> own(others.size());
  const auto own_of = [&](const Rank& rank) -> auto& { return own[static_cast<size_t>(rank.number)]; };
  ExpectOk(RunFrom(2, [&](Rank& rank) {
    auto& [memory, window] = own_of(rank);
    EXPECT_EQ(driver().nccl.ncclMemAlloc(&memory, 2 * kMiB), ncclSuccess);
    EXPECT_EQ(driver().nccl.ncclCommWindowRegister(other_of(rank), memory, 2 * kMiB, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
    return Status();
  }));
  const auto end_own = [&](Rank& rank) {
    EXPECT_EQ(driver().nccl.ncclCommWindowDeregister(other_of(rank), own_of(rank).second), ncclSuccess);
    EXPECT_EQ(driver().nccl.ncclMemFree(own_of(rank).first), ncclSuccess);
    return Status();
  };
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(other_of(rank)); }));
  const std::vector<CUdeviceptr> first = Grow(2 * kMiB);
  ExpectOk(RunFrom(3, end_own));
  const std::vector<CUdeviceptr> second = Grow(2 * kMiB);
  const Statuses refused = Sleep();
  ExpectFailure(refused, StatusCode::kDisagreement,
                "NCCL has placed windows of registration 3 (ranks 2, 3) otherwise on rank 3 than on rank 2");
  ExpectFailure(refused, StatusCode::kDisagreement, "graphs = DISCARDED accepts that");
  for (int rank = 0; rank <= last(); ++rank) {
    EXPECT_EQ(RegisteredSegments(rank), rank < 2 ? 2u : 4u) << "nothing has changed";
  }
  ExpectOk(Sleep({.graphs = LiveGraphs::kDiscarded}));
  ExpectOk(Wake());
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(other_of(rank)); }));
  ExpectOk(Run([&](Rank& rank) { return rank.number == 2 ? end_own(rank) : Status(); }));
  group().Destroy(others);
  Free(first);
  Free(second);
}

}  // namespace
}  // namespace commpool::internal::testing
