// Windows that end as a pool falls asleep and come back to their places as it wakes: graphs that captured collectives
// over them hold, though nobody announced the captures. Where NCCL places one elsewhere the pool sleeps on, everywhere.
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "src/library/pool/group_calls.h"
#include "tests/registration/captured_sum.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class WindowReturn : public SymmetricTest {
 protected:
  void Prepare() override { ExpectOk(Create()); }
  // In a segment of their own.
  std::vector<CUdeviceptr> Grow(uint64_t bytes) {
    ExpectOk(Reserve(bytes));
    return Allocate(bytes);
  }
  CapturedSum& Captured(std::vector<CUdeviceptr> blocks) {
    CapturedSum& sum = sums_.emplace_back(driver(), std::move(blocks));
    ForEach([&](Rank& rank) { sum.Capture(rank); });
    return sum;
  }
  void ReplayAll(int seed) {
    for (CapturedSum& sum : sums_) ForEach([&](Rank& rank) { sum.Replay(rank, seed); });
  }
  void ExpectSums(int seed) {
    for (CapturedSum& sum : sums_) ForEach([&](Rank& rank) { sum.ExpectSum(rank, seed); });
  }
  void EndAll() {
    for (CapturedSum& sum : sums_) {
      ForEach([&](Rank& rank) { sum.Destroy(rank); });
      Free(sum.blocks());
    }
    sums_.clear();
  }
  std::vector<ncclWindow_t> WindowsOf(const Rank& rank) {
    std::vector<ncclWindow_t> windows;
    for (const CapturedSum& sum : sums_) {
      windows.push_back(WindowOf(rank, sum.BlockOf(rank)).value().window);
    }
    return windows;
  }
  // Another pool of home, with windows of its own.
  void BringStranger(uint64_t bytes) {
    strangers_.assign(static_cast<size_t>(group().size()), 0);
    ExpectOk(Run([&](Rank& rank) {
      PoolConfiguration configuration = Configured(rank);
      configuration.name = "stranger";
      strangers_[rank.index()] = runtime().CreatePool(std::move(configuration)).value();
      return Stranger(rank)->mode().Reserve(bytes);
    }));
  }
  std::shared_ptr<Pool> Stranger(const Rank& rank) { return runtime().pools().Find(strangers_[rank.index()]).value(); }
  void SendStrangerAway() {
    ExpectOk(Run([&](Rank& rank) { return Stranger(rank)->Close(); }));
  }

 private:
  std::deque<CapturedSum> sums_;
  std::vector<PoolHandle> strangers_;
};

// A of 4 MiB, B of 2; A ends; C of 2 takes its place, D of 4 comes last: one after the other B would come to C's.
TEST_F(WindowReturn, BringsBackWhatCameAfterAnotherWindowEnded) {
  const std::vector<CUdeviceptr> a = Grow(4 * kMiB);
  Captured(Grow(2 * kMiB));
  Free(a);
  ExpectOk(Trim(0));
  Captured(Grow(2 * kMiB));
  Captured(Grow(4 * kMiB));
  const auto windows = [&] {
    std::vector<std::vector<ncclWindow_t>> of_ranks;
    for (Rank& rank : group()) of_ranks.push_back(WindowsOf(rank));
    return of_ranks;
  };
  const auto before = windows();
  for (int sleeps = 0; sleeps < 20; ++sleeps) {
    SleepAndWake();
    EXPECT_EQ(windows(), before);
    ReplayAll(sleeps);
  }
  EndAll();
}

TEST_F(WindowReturn, IsRefusedOnAllRanksBeforeSleepWhereNoOrderBringsThemBack) {
  const std::vector<CUdeviceptr> first = Grow(4 * kMiB);
  const std::vector<CUdeviceptr> second = Grow(2 * kMiB);
  Free(first);
  ExpectOk(Trim(0));
  ExpectFailureNaming(Sleep(), StatusCode::kFailedPrecondition,
                      {"no order of registering brings all windows back", "graphs = DISCARDED accepts that"});
  EXPECT_EQ(RegisteredSegments(last()), 1u) << "nothing has changed";
  ExpectOk(Sleep({.graphs = LiveGraphs::kDiscarded}));
  ExpectOk(Wake());
  Free(second);
}

// The newest sleeps first and wakes last, whatever the order of the calls: so each finds the older ones where they
// were.
TEST_F(WindowReturn, OfSeveralPoolsHoldsInEveryOrder) {
  Captured(Grow(2 * kMiB));
  BringStranger(2 * kMiB);
  std::vector<PoolHandle> oldest_first;
  for (const Rank& rank : group()) oldest_first.push_back(HandleOf(rank));
  for (const Rank& rank : group()) oldest_first.push_back(Stranger(rank)->handle());
  const std::vector<PoolHandle> newest_first(oldest_first.rbegin(), oldest_first.rend());
  const auto sleep = [](Pool& pool, OtherPoolsOfCall others) { return pool.Sleep({}, others); };
  const auto wake = [](Pool& pool, OtherPoolsOfCall others) { return pool.Wake({}, others); };
  for (const std::vector<PoolHandle>& asleep : {oldest_first, newest_first}) {
    for (const std::vector<PoolHandle>& awake : {oldest_first, newest_first}) {
      ExpectOk({AllOrNone(runtime(), asleep, sleep, Oldest::kLast), AllOrNone(runtime(), awake, wake, Oldest::kFirst)});
    }
  }
  ReplayAll(1);
  SendStrangerAway();
  EndAll();
}

TEST_F(WindowReturn, HoldsWhereAStrangersWindowCameAndWent) {
  Captured(Grow(2 * kMiB));
  ExpectOk(Sleep());
  BringStranger(2 * kMiB);
  SendStrangerAway();
  ExpectOk(Wake());
  ReplayAll(1);
  EndAll();
}

TEST_F(WindowReturn, IsRefusedOnEveryRankWhileAStrangersWindowIsInTheWay) {
  Captured(Grow(2 * kMiB));
  Captured(Grow(4 * kMiB));
  ReplayAll(1);
  ExpectOk(Sleep({.keep = Keep::kHost}));
  BringStranger(2 * kMiB);
  for (int time = 0; time < 2; ++time) {
    ExpectFailure(Wake(), StatusCode::kFailedPrecondition,
                  "NCCL placed 2 of 2 windows, first that of segment 0 (2 MiB) with communicator 0, elsewhere than "
                  "before");
    ExpectOnAll(6 * kMiB, 0);
    for (int rank = 0; rank <= last(); ++rank) {
      EXPECT_EQ(StatisticsOf(rank).asleep_bytes, 6 * kMiB);
      EXPECT_EQ(StatisticsOf(rank).kept_bytes, 6 * kMiB);
    }
  }
  SendStrangerAway();
  ExpectOk(Wake());
  ExpectSums(1);
  ReplayAll(2);
  EndAll();
}

TEST_F(WindowReturn, MayBeGivenUpWithTheGraphs) {
  const std::vector<CUdeviceptr> first = Grow(2 * kMiB);
  const std::vector<CUdeviceptr> second = Grow(4 * kMiB);
  ExpectOk(Sleep());
  BringStranger(2 * kMiB);
  ExpectFailure(Wake(), StatusCode::kFailedPrecondition, "elsewhere than before");
  ExpectOk(Wake({.graphs = LiveGraphs::kDiscarded}));
  // From now on they are at home there.
  Captured(first);
  Captured(second);
  SleepAndWake();
  ReplayAll(1);
  SendStrangerAway();
  EndAll();
}

TEST_F(WindowReturn, IsNotAskedForWhereTheProgramGaveUpGraphsWithCollectives) {
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
  const std::vector<CUdeviceptr> blocks = Grow(2 * kMiB);
  const std::vector<ncclComm_t>& others = Another(1);
  ExpectOk(Register(others));
  const auto windows = [&] {
    std::vector<ncclWindow_t> found;
    for (size_t rank = 1; rank < others.size(); ++rank) {
      found.push_back(runtime().windows().Find(others[rank], blocks[rank]).value().window);
    }
    return found;
  };
  const std::vector<ncclWindow_t> before = windows();
  SleepAndWake();
  EXPECT_EQ(windows(), before);
  ExpectOk(Deregister(others));
  Free(blocks);
}

// The last rank ends a window of the program's own by itself, so what comes next lies there in its place alone.
TEST_F(WindowReturn, IsRefusedOnAllRanksWhereTheRanksOfACommunicatorOfSomeHaveOtherPlaces) {
  if (group().size() < 4) GTEST_SKIP() << "needs two ranks beside two others";
  const std::vector<ncclComm_t>& others = Another(2);
  const auto other_of = [&](const Rank& rank) { return others[rank.index()]; };
  std::vector<std::pair<void*, ncclWindow_t>> own(others.size());
  const auto own_of = [&](const Rank& rank) -> auto& { return own[rank.index()]; };
  ForEach([&](Rank& rank) {
    if (rank.number < 2) return;
    auto& [memory, window] = own_of(rank);
    EXPECT_EQ(driver().nccl.ncclMemAlloc(&memory, 2 * kMiB), ncclSuccess);
    EXPECT_EQ(driver().nccl.ncclCommWindowRegister(other_of(rank), memory, 2 * kMiB, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
  });
  const auto end_own = [&](Rank& rank) {
    EXPECT_EQ(driver().nccl.ncclCommWindowDeregister(other_of(rank), own_of(rank).second), ncclSuccess);
    EXPECT_EQ(driver().nccl.ncclMemFree(own_of(rank).first), ncclSuccess);
    return Status();
  };
  ExpectOk(Register(others));
  const std::vector<CUdeviceptr> first = Grow(2 * kMiB);
  ExpectOk(RunFrom(3, end_own));
  const std::vector<CUdeviceptr> second = Grow(2 * kMiB);
  ExpectFailureNaming(Sleep(), StatusCode::kDisagreement,
                      {"NCCL has placed windows of registration 3 (ranks 2, 3) otherwise on rank 3 than on rank 2",
                       "graphs = DISCARDED accepts that"});
  for (int rank = 0; rank <= last(); ++rank) {
    EXPECT_EQ(RegisteredSegments(rank), rank < 2 ? 2u : 4u) << "nothing has changed";
  }
  ExpectOk(Sleep({.graphs = LiveGraphs::kDiscarded}));
  ExpectOk(Wake());
  ExpectOk(Deregister(others));
  ExpectOk(Run([&](Rank& rank) { return rank.number == 2 ? end_own(rank) : Status(); }));
  Free(first);
  Free(second);
}

}  // namespace
}  // namespace commpool::internal::testing
