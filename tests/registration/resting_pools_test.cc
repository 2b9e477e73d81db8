// Pools that are awake rest while their communicator sleeps: their windows end before NCCL gives its memory back, and
// come back to their places after it. Memory and blocks stay.
#include <cstdlib>
#include <memory>
#include <vector>

#include "src/base/try.h"
#include "src/pool/group_calls.h"
#include "tests/driver/emulator_extension.h"
#include "tests/registration/captured_sum.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kNewer = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7,memory=1GiB,nccl_timeout_ms=20000", 1);
constexpr uint64_t kDeadlineMs = 10000;
constexpr char kRests[] = "rests while its communicator sleeps";

class RestingPools : public SymmetricTest {
 protected:
  void SetUp() override {
    if (SharedDriver()->nccl.ncclCommSuspend == nullptr) GTEST_SKIP() << "needs NCCL 2.29.7 or later";
    SymmetricTest::SetUp();
  }
  Statuses Sleep() {
    return Run([&](Rank& rank) { return runtime().sleeping_communicators().Sleep(rank.communicator, kDeadlineMs); });
  }
  Statuses Wake() {
    return Run([&](Rank& rank) { return runtime().sleeping_communicators().Wake(rank.communicator); });
  }
  void ExpectAll(bool resting, bool communicators_asleep) {
    for (int number = 0; number <= last(); ++number) {
      Rank& rank = group()[number];
      EXPECT_EQ(PoolOf(rank).resting(), resting) << "rank " << number;
      EXPECT_EQ(MemoryOf(driver(), rank.communicator).value().asleep, communicators_asleep) << "rank " << number;
    }
  }
  // The test's pool with a window, and a block on each rank.
  std::vector<CUdeviceptr> CreateWithBlocks() {
    ExpectOk(Create());
    ExpectOk(Reserve(2 * kMiB));
    return Allocate(kMiB);
  }
  // Likewise, and a sum over the blocks that was captured and replayed once.
  CapturedSum CreateWithSum(int seed) {
    CapturedSum sum(driver(), CreateWithBlocks());
    ExpectOk(Run([&](Rank& rank) { return sum.Capture(rank); }));
    ExpectOk(Run([&](Rank& rank) { return sum.Replay(rank, seed); }));
    return sum;
  }
  // Another pool of home, with a window.
  void CreateNewest() {
    newest_.assign(static_cast<size_t>(group().size()), 0);
    ExpectOk(Run([&](Rank& rank) -> Status {
      newest_[static_cast<size_t>(rank.number)] = COMMPOOL_TRY(runtime().CreatePool(Configured(rank)));
      return NewestOf(rank)->Reserve(2 * kMiB);
    }));
  }
  std::shared_ptr<Pool> NewestOf(const Rank& rank) {
    return runtime().pools().Find(newest_[static_cast<size_t>(rank.number)]).value();
  }
  void CloseNewest() {
    ExpectOk(Run([&](Rank& rank) { return NewestOf(rank)->Close(); }));
  }
  std::vector<ncclWindow_t> WindowsOf(const std::vector<CUdeviceptr>& blocks) {
    std::vector<ncclWindow_t> windows;
    for (int rank = 0; rank <= last(); ++rank) {
      const CUdeviceptr block = blocks[static_cast<size_t>(rank)];
      windows.push_back(PoolOf(group()[rank]).WindowOf(block, group()[rank].communicator).value().window);
    }
    return windows;
  }

 private:
  std::vector<PoolHandle> newest_;
};

TEST_F(RestingPools, KeepTheirMemoryAndGetTheirWindowsBackUnderALiveGraph) {
  const std::vector<CUdeviceptr> blocks = CreateWithBlocks();
  const std::vector<ncclWindow_t> windows = WindowsOf(blocks);
  CapturedSum sum(driver(), blocks);
  ExpectOk(Run([&](Rank& rank) { return sum.Capture(rank); }));
  for (int time = 0; time < 3; ++time) {
    ExpectOk(Run([&](Rank& rank) { return sum.Replay(rank, time); }));
    ExpectOk(Sleep());
    ExpectAll(true, true);
    ExpectOk(Run([&](Rank& rank) { return sum.ExpectSum(rank, time); }));  // the memory is there
    EXPECT_EQ(PoolOf(group()[0]).Statistics().asleep_bytes, 0u);
    EXPECT_EQ(RegisteredSegments(last()), 0u);
    ExpectOk(Wake());
    ExpectAll(false, false);
    EXPECT_EQ(WindowsOf(blocks), windows);
    ExpectOk(Run([&](Rank& rank) { return sum.ExpectSum(rank, time); }));
  }
  ExpectOk(Run([&](Rank& rank) { return sum.Replay(rank, 7); }));
  ExpectOk(Run([&](Rank& rank) { return sum.Destroy(rank); }));
  Free(blocks);
}

TEST_F(RestingPools, ServeNobodyAndNeitherSleepNorWakeMeanwhile) {
  const std::vector<CUdeviceptr> blocks = CreateWithBlocks();
  ExpectOk(Sleep());
  const auto expect_refused = [&](const std::function<Status(Rank&)>& call, const char* why) {
    ExpectFailure(Run(call), StatusCode::kFailedPrecondition, why);
    ExpectAll(true, true);
  };
  expect_refused([&](Rank& rank) { return runtime().AllocateFrom(HandleOf(rank), kMiB, rank.stream).status(); },
                 kRests);
  expect_refused([&](Rank& rank) { return PoolOf(rank).Sleep({.keep = Keep::kHost}); }, kRests);
  expect_refused([&](Rank& rank) { return PoolOf(rank).Trim(0).status(); }, kRests);
  expect_refused([&](Rank& rank) { return PoolOf(rank).Wake(); }, "the communicator is asleep: wake it first");
  Free(blocks);
  ExpectOk(Wake());
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u) << "the frees in between count";
}

TEST_F(RestingPools, KeepTheAddressesOfTheirPeers) {
  const std::vector<CUdeviceptr> blocks = CreateWithBlocks();
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).MapPeers(); }));
  const auto first_peers = [&] {
    std::vector<CUdeviceptr> first;
    for (int rank = 0; rank <= last(); ++rank) {
      first.push_back(PoolOf(group()[rank]).PeersOf(blocks[static_cast<size_t>(rank)]).value().first);
    }
    return first;
  };
  const std::vector<CUdeviceptr> before = first_peers();
  ExpectOk(Sleep());
  EXPECT_EQ(first_peers(), before);
  ExpectOk(Wake());
  EXPECT_EQ(first_peers(), before);
  Free(blocks);
}

TEST_F(RestingPools, AreNoneThatRegisterLocalBuffers) {
  setenv("NCCL_LOCAL_REGISTER", "1", 1);
  std::vector<PoolHandle> handles(static_cast<size_t>(group().size()));
  const auto pool_of = [&](const Rank& rank) {
    return runtime().pools().Find(handles[static_cast<size_t>(rank.number)]).value();
  };
  ExpectOk(Run([&](Rank& rank) -> Status {
    PoolConfiguration fixed;
    fixed.streams = Streams::kOutlive;
    fixed.backing.placement.device = rank.number;
    handles[static_cast<size_t>(rank.number)] = COMMPOOL_TRY(runtime().CreatePool(fixed));
    COMMPOOL_TRY(pool_of(rank)->Reserve(2 * kMiB));
    return pool_of(rank)->RegisterWith(rank.communicator);
  }));
  ExpectFailure(Sleep(), StatusCode::kFailedPrecondition,
                "is registered with the communicator and is not symmetric: sleep() that pool before");
  for (int rank = 0; rank <= last(); ++rank) EXPECT_TRUE(pool_of(group()[rank])->open());
  ExpectOk(Run([&](Rank& rank) { return pool_of(rank)->Close(); }));
  setenv("NCCL_LOCAL_REGISTER", "0", 1);
}

TEST_F(RestingPools, OfAnotherHomeAreNamedAndNothingChanges) {
  ExpectOk(Create());
  ExpectOk(Reserve(2 * kMiB));
  std::vector<ncclComm_t> others = group().ConnectFrom(0);
  const auto other = [&](const Rank& rank) { return others[static_cast<size_t>(rank.number)]; };
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).RegisterWith(other(rank)); }));
  const auto sleep = [&] {
    return Run([&](Rank& rank) { return runtime().sleeping_communicators().Sleep(other(rank), kDeadlineMs); });
  };
  ExpectFailure(sleep(), StatusCode::kFailedPrecondition,
                "is registered with the communicator and has another home: sleep() that pool before");
  ExpectAll(false, false);
  ExpectOk(Sleep());  // their home rests them, and ends these windows too
  ExpectOk(sleep());
  ExpectOk(Run([&](Rank& rank) { return runtime().sleeping_communicators().Wake(other(rank)); }));
  ExpectOk(Wake());
  EXPECT_TRUE(PoolOf(group()[0]).IsRegisteredWith(others[0]));
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Deregister(other(rank)); }));
  group().Destroy(others);
}

// That thread calls them together: one by one it would wait for its own other ranks.
TEST_F(RestingPools, AreNoneThatOneThreadMadeForSeveralRanks) {
  std::vector<PoolRequest> requests;
  for (int rank = 0; rank <= last(); ++rank) requests.push_back({Configured(group()[rank])});
  const std::vector<PoolHandle> handles = CreatePools(runtime(), std::move(requests)).value();
  ExpectOk({ReservePools(runtime(), handles, 2 * kMiB)});
  ExpectFailure(Sleep(), StatusCode::kFailedPrecondition,
                "is registered with the communicator and was made for several ranks by one thread: sleep() that pool");
  ExpectOk({OnEach(runtime(), handles, [](Pool& pool, size_t) { return pool.Close(); })});
}

// Captured collectives could hold what NCCL registered by itself.
TEST_F(RestingPools, AreRefusedWhereNcclMayRegisterUnseen) {
  ExpectOk(Create());
  ExpectOk(Reserve(2 * kMiB));
  unsetenv("NCCL_LOCAL_REGISTER");
  const Statuses refused = Sleep();
  setenv("NCCL_LOCAL_REGISTER", "0", 1);
  ExpectFailure(refused, StatusCode::kFailedPrecondition, "NCCL_LOCAL_REGISTER is not 0");
  ExpectAll(false, false);
}

// The newest pool rests first; then the windows of this one could not come back to their places.
TEST_F(RestingPools, ServeAgainWhereALaterOneCannotRest) {
  ExpectOk(Create());
  ExpectOk(Reserve(4 * kMiB));
  const std::vector<CUdeviceptr> first = Allocate(4 * kMiB);
  ExpectOk(Reserve(2 * kMiB));
  const std::vector<CUdeviceptr> second = Allocate(2 * kMiB);
  CreateNewest();
  Free(first);
  ExpectOk(Trim(0));
  const std::vector<ncclWindow_t> windows = WindowsOf(second);
  ExpectFailure(Sleep(), StatusCode::kFailedPrecondition, "no order of registering brings all windows back");
  ExpectAll(false, false);
  for (int rank = 0; rank <= last(); ++rank) {
    EXPECT_TRUE(NewestOf(group()[rank])->open());
    EXPECT_EQ(NewestOf(group()[rank])->Statistics().registered_segments, 1u);
  }
  EXPECT_EQ(WindowsOf(second), windows);
  Free(second);
  CloseNewest();
}

TEST_F(RestingPools, OfOneHomeRestTogether) {
  const std::vector<CUdeviceptr> blocks = CreateWithBlocks();
  const std::vector<ncclWindow_t> windows = WindowsOf(blocks);
  CreateNewest();
  for (int time = 0; time < 2; ++time) {
    ExpectOk(Sleep());
    ExpectAll(true, true);
    for (int rank = 0; rank <= last(); ++rank) EXPECT_TRUE(NewestOf(group()[rank])->resting());
    ExpectOk(Wake());
    ExpectAll(false, false);
    for (int rank = 0; rank <= last(); ++rank) EXPECT_TRUE(NewestOf(group()[rank])->open());
    EXPECT_EQ(WindowsOf(blocks), windows);
  }
  Free(blocks);
  CloseNewest();
}

// The others would wait for it in that pool.
TEST_F(RestingPools, AreComparedByTheRanksFirst) {
  AllowLeak("reserved addresses");  // the other ranks may still know them
  ExpectOk(Create());
  ExpectOk(Reserve(2 * kMiB));
  ExpectOk({PoolOf(group()[last()]).AbandonCommunicator(group()[last()].communicator, CommunicatorLife::kAlive)});
  ExpectFailure(Sleep(), StatusCode::kDisagreement, "ranks disagree on the pools that rest with the communicator");
  ExpectOk(Run([&](Rank& rank) {
    return rank.number == last() ? Status()
                                 : PoolOf(rank).AbandonCommunicator(rank.communicator, CommunicatorLife::kAlive);
  }));
}

TEST_F(RestingPools, MayHaveMemoryThatCannotSleep) {
  ExpectOk(
      Create([](const Rank&, PoolConfiguration& configuration) { configuration.backing.kind = BackingKind::kNccl; }));
  ExpectOk(Reserve(2 * kMiB));
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  const std::vector<ncclWindow_t> windows = WindowsOf(blocks);
  ExpectOk(Sleep());
  ExpectOk(Wake());
  EXPECT_EQ(WindowsOf(blocks), windows);
  Free(blocks);
}

// A program may still read them.
TEST_F(RestingPools, LeaveCopiesThatAProgramRetained) {
  const std::vector<CUdeviceptr> blocks = CreateWithBlocks();
  const SleepRequest kept{.keep = Keep::kHost, .copies = {.retain = true}};
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Sleep(kept); }));
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Wake(); }));
  const std::byte* const copy = PoolOf(group()[0]).Kept(blocks[0], kMiB).value();
  ExpectOk(Sleep());
  EXPECT_EQ(PoolOf(group()[0]).Kept(blocks[0], kMiB).value(), copy);
  ExpectOk(Wake());
  EXPECT_EQ(PoolOf(group()[0]).Kept(blocks[0], kMiB).value(), copy);
  Free(blocks);
}

// NCCL refuses on every rank, after the windows have ended.
TEST_F(RestingPools, ServeAgainWhereNcclRefusesToSleep) {
  COMMPOOL_REQUIRE_EMULATOR("NCCL 2.30.7 breaks the parent's memory as such children end, several ranks in a process");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = 1;
  std::vector<ncclComm_t> parents = group().ConnectFrom(0, config);
  std::vector<ncclComm_t> children(parents.size());
  std::vector<PoolHandle> handles(parents.size());
  const auto pool_of = [&](const Rank& rank) {
    return runtime().pools().Find(handles[static_cast<size_t>(rank.number)]).value();
  };
  ExpectOk(Run([&](Rank& rank) {
    const auto number = static_cast<size_t>(rank.number);
    EXPECT_EQ(driver().nccl.ncclCommSplit(parents[number], 0, rank.number, &children[number], nullptr), ncclSuccess);
    PoolConfiguration configuration = Configured(rank);
    configuration.home = parents[number];
    handles[number] = runtime().CreatePool(std::move(configuration)).value();
    return pool_of(rank)->Reserve(2 * kMiB);
  }));
  ExpectFailure(Run([&](Rank& rank) {
                  return runtime().sleeping_communicators().Sleep(parents[static_cast<size_t>(rank.number)],
                                                                  kDeadlineMs);
                }),
                StatusCode::kCommunicatorError, "the communicator shares resources with one that was split from it");
  for (int rank = 0; rank <= last(); ++rank) {
    EXPECT_TRUE(pool_of(group()[rank])->open());
    EXPECT_EQ(pool_of(group()[rank])->Statistics().registered_segments, 1u);
  }
  ExpectOk(Run([&](Rank& rank) { return pool_of(rank)->Close(); }));
  group().Destroy(children);
  group().Destroy(parents);
}

TEST_F(RestingPools, RestOnWhereTheirWindowsDoNotComeBackAndWakeLater) {
  COMMPOOL_REQUIRE_EMULATOR("it can be told to fail");
  CapturedSum sum = CreateWithSum(1);
  ExpectOk(Sleep());
  {
    const InjectedFault on_all({"ncclCommWindowRegister", ncclInternalError, 0, group().size()});
    ExpectFailure(Wake(), StatusCode::kCommunicatorError, "the communicator is awake: ");
  }
  ExpectAll(true, false);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Wake(); }));
  ExpectOk(Run([&](Rank& rank) { return sum.ExpectSum(rank, 1); }));  // nothing was lost on the way
  ExpectOk(Run([&](Rank& rank) { return sum.Replay(rank, 2); }));
  ExpectOk(Run([&](Rank& rank) { return sum.Destroy(rank); }));
  Free(sum.blocks());
}

TEST_F(RestingPools, OutliveACommunicatorThatIsAbortedInItsSleep) {
  AllowLeak("reserved addresses");  // the other ranks may still know them
  CapturedSum sum = CreateWithSum(1);
  ExpectOk(Run([&](Rank& rank) { return sum.Destroy(rank); }));
  ExpectOk(Sleep());
  ExpectOk(Run([&](Rank& rank) {
    const Status abandoned = PoolOf(rank).AbandonCommunicator(rank.communicator, CommunicatorLife::kAlive);
    EXPECT_EQ(driver().nccl.ncclCommAbort(rank.communicator), ncclSuccess);
    rank.communicator = nullptr;
    return abandoned;
  }));
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Wake(); }));
  ExpectOk(Run([&](Rank& rank) { return sum.ExpectSum(rank, 1); }));
  Free(sum.blocks());
}

TEST_F(RestingPools, ThatEndMeanwhileAreLeftAlone) {
  ExpectOk(Create());
  ExpectOk(Reserve(2 * kMiB));
  ExpectOk(Sleep());
  ExpectOk(Close());
  EXPECT_EQ(ReservedBytes(0), 0u);
  ExpectOk(Wake());
}

}  // namespace
}  // namespace commpool::internal::testing
