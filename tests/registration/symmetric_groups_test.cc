// A symmetric pool with several communicators: overlapping groups, split groups, ranks that mix groups up.
#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "src/library/pool/group_calls.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

using Group = std::vector<int>;  // ranks, in the communicator's order

class SymmetricGroups : public SymmetricTest {
 protected:
  void Prepare() override {
    if (group().size() < 4) GTEST_SKIP() << "needs 4 devices";
  }
  // A communicator on each rank of these disjoint groups; null on the others.
  const std::vector<ncclComm_t>& Connect(const std::vector<Group>& groups) {
    const NcclLibrary& nccl = driver().nccl;
    std::vector<ncclUniqueId> ids(groups.size());
    for (ncclUniqueId& id : ids) EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
    std::vector<ncclComm_t> communicators(4, nullptr);
    ForEach([&](Rank& rank) {
      for (size_t number = 0; number < groups.size(); ++number) {
        const Group& ranks = groups[number];
        const auto place = std::find(ranks.begin(), ranks.end(), rank.number);
        if (place == ranks.end()) continue;
        EXPECT_EQ(nccl.ncclCommInitRank(&communicators[rank.index()], static_cast<int>(ranks.size()), ids[number],
                                        static_cast<int>(place - ranks.begin())),
                  ncclSuccess);
      }
    });
    return Keep(communicators);
  }
  void ExpectRegistered(const std::vector<uint64_t>& segments) {
    for (size_t rank = 0; rank < segments.size(); ++rank) {
      EXPECT_EQ(RegisteredSegments(static_cast<int>(rank)), segments[rank]) << "rank " << rank;
    }
  }

  // With another communicator on one rank.
  static std::vector<ncclComm_t> Replaced(std::vector<ncclComm_t> communicators, size_t rank, ncclComm_t other) {
    communicators[rank] = other;
    return communicators;
  }
};

TEST_F(SymmetricGroups, TensorDataAndPipelineGroupsOverlap) {
  CreateAndReserve(2 * kMiB);
  const auto& tensor = Connect({{0, 1}, {2, 3}});
  const auto& data = Connect({{0, 2}, {1, 3}});
  const auto& pipeline = Connect({{3, 1, 0}});
  ExpectOk(Register(tensor));
  ExpectOk(Register(data));
  ExpectOk(Register(pipeline));
  ExpectRegistered({4, 4, 3, 4});
  ExpectOk(Reserve(4 * kMiB));  // home first, then the groups in one order on every rank
  ExpectRegistered({8, 8, 6, 8});

  const std::vector<CUdeviceptr> blocks = Allocate(4 * kMiB);
  const std::vector<uint64_t> offsets = OffsetsOf(blocks);
  for (const auto* communicators : {&tensor, &data, &pipeline}) {
    for (size_t rank = 0; rank < 4; ++rank) {
      if ((*communicators)[rank] == nullptr) continue;
      const auto place = runtime().windows().Find((*communicators)[rank], blocks[rank]);
      ASSERT_TRUE(place);
      EXPECT_EQ(place->offset, offsets[rank]);
    }
  }
  Free(blocks);
  ExpectOk(Deregister(data));
  ExpectRegistered({6, 6, 4, 6});
}

TEST_F(SymmetricGroups, ARankThatSharesNoGroupStopsTheOthers) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk(Create());
  ExpectOk(Register(Connect({{0, 1}, {2, 3}})));
  // Of rank 0's groups rank 3 is only in home.
  Account(3).SetLimit(0);
  const uint64_t windows = CallCount("ncclCommWindowRegister");
  ExpectFailure(Reserve(2 * kMiB), StatusCode::kOutOfMemory, "making a segment of 2 MiB failed on rank 3: 2 MiB more");
  EXPECT_EQ(CallCount("ncclCommWindowRegister"), windows) << "nobody went into NCCL";
  ExpectRegistered({0, 0, 0, 0});
  Account(3).SetLimit(UINT64_MAX);
  ExpectOk(Reserve(2 * kMiB));
  ExpectRegistered({2, 2, 2, 2});
}

TEST_F(SymmetricGroups, AMemberThatPassesNullIsNamedBeforeAnyNcclCall) {
  CreateAndReserve(2 * kMiB);
  const auto& all = Connect({{0, 1, 2}});
  const std::vector<ncclComm_t> without = Replaced(all, 1, nullptr);
  const uint64_t gathers = CallCount("ncclAllGather");
  ExpectFailure(Register(without), StatusCode::kDisagreement,
                "nobody passed one as its rank 1; ranks 1, 3 passed null");
  EXPECT_EQ(CallCount("ncclAllGather"), gathers);
  ExpectRegistered({1, 1, 1, 1});
  ExpectOk(Register(all));
  ExpectFailure(Register(without), StatusCode::kDisagreement, "rank 1 passed null");
  ExpectFailure(Deregister(without), StatusCode::kDisagreement, "rank 1 passed null");
  ExpectRegistered({2, 2, 2, 1});
  ExpectOk(Deregister(all));
  ExpectOk(Deregister(all));
}

TEST_F(SymmetricGroups, ARankThatPassesOneInsteadOfNullIsNamed) {
  ExpectOk(Create());
  const auto& pair = Connect({{0, 1}});
  const auto& other = Connect({{2, 3}});
  ExpectFailure(Register(Replaced(pair, 2, other[2])), StatusCode::kDisagreement,
                "and only rank 1 passed one as its rank 1; rank 3 passed null");
}

TEST_F(SymmetricGroups, OneRankInAnotherOrderIsNamedBeforeAnyNcclCall) {
  CreateAndReserve(2 * kMiB);
  const auto& triple = Connect({{0, 1, 2}});
  const auto& pair = Connect({{2, 3}});
  ExpectFailure(Register(Replaced(triple, 2, pair[2])), StatusCode::kDisagreement,
                "ranks disagree on the communicator");
  ExpectOk(Register(triple));
  ExpectOk(Register(pair));
}

TEST_F(SymmetricGroups, ANewCommunicatorBesideAKnownOneIsNamed) {
  ExpectOk(Create());
  const auto& first = Connect({{0, 1}});
  const auto& second = Connect({{0, 1}});
  ExpectOk(Register(first));
  ExpectFailure(Register(Replaced(first, 1, second[1])), StatusCode::kDisagreement,
                "rank 1 passed a new communicator of 2 ranks");
}

TEST_F(SymmetricGroups, AGroupAbandonedOnOneRankStopsGrowthUntilAllHave) {
  CreateAndReserve(2 * kMiB);
  const auto& pair = Connect({{1, 2}});
  ExpectOk(Register(pair));
  ExpectOk(Deregister(pair));
  ExpectOk(Register(pair));
  // The communicator is alive, so end its windows here: abandon() calls nothing.
  const std::vector<CUdeviceptr> blocks = Allocate(512);
  ForEach([&](Rank& rank) {
    const ncclComm_t mine = pair[rank.index()];
    if (mine == nullptr) return;
    const WindowPlace place = runtime().windows().Find(mine, blocks[rank.index()]).value();
    EXPECT_EQ(driver().nccl.ncclCommWindowDeregister(mine, place.window), ncclSuccess);
  });
  Free(blocks);
  ExpectOk({PoolOf(group()[1]).mode().AbandonCommunicator(pair[1], CommunicatorLife::kEnded)});
  ExpectFailure(Reserve(4 * kMiB), StatusCode::kDisagreement,
                "registration 6 (ranks 1, 2) was abandoned on rank 1 and not on rank 2");
  ExpectOk({PoolOf(group()[2]).mode().AbandonCommunicator(pair[2], CommunicatorLife::kEnded),
            PoolOf(group()[2]).mode().AbandonCommunicator(pair[2], CommunicatorLife::kEnded)});
  ExpectOk(Reserve(4 * kMiB));
  ExpectRegistered({2, 2, 2, 2});
}

TEST_F(SymmetricGroups, SeveralPoolsShareOneCommunicator) {
  const auto& all = Connect({{0, 1, 2, 3}});
  std::vector<PoolHandle> second(4);
  ExpectOk(Create());
  ForEach([&](Rank& rank) { second[rank.index()] = runtime().CreatePool(Configured(rank)).value(); });
  const auto other = [&](const Rank& rank) { return runtime().pools().Find(second[rank.index()]).value(); };
  ExpectOk(Reserve(2 * kMiB));
  ExpectOk(Run([&](Rank& rank) { return other(rank)->mode().Reserve(4 * kMiB); }));
  ExpectOk(Register(all));
  ExpectOk(Run([&](Rank& rank) { return other(rank)->mode().RegisterWith(all[rank.index()]); }));
  ExpectRegistered({2, 2, 2, 2});
  ExpectOk(Run([&](Rank& rank) { return other(rank)->Close(); }));
  ExpectRegistered({2, 2, 2, 2});
  ExpectOk(Run([&](Rank& rank) { return runtime().DestroyPool(second[rank.index()]); }));
}

// Two mixed-up groups of equal size look complete. The ranks wait for each other on their communicators, but not longer
// than the deadline.
TEST_F(SymmetricGroups, ThatAreMixedUpAreFoundWithinTheDeadline) {
  COMMPOOL_REQUIRE_EMULATOR("NCCL's kernel would run on");
  ExpectOk(Create(Deadline(2000)));
  const auto& tensor = Connect({{0, 1}, {2, 3}});
  const auto& data = Connect({{0, 2}, {1, 3}});
  ExpectFailure(Register({tensor[0], data[1], data[2], tensor[3]}), StatusCode::kDisagreement,
                "ranks passed different communicators");
  ExpectRegistered({0, 0, 0, 0});
  ExpectOk(Reserve(2 * kMiB));  // home is as before
  Abort(tensor);
  Abort(data);
  ForgetOthers();
  static_cast<void>(TakeReports());
}

// Several pools of a rank in one call: pools with a common communicator take turns, the others do not wait for each
// other.

class SharedCommunicator : public SymmetricTest {
 protected:
  using Call = std::function<Status(Pool&, ncclComm_t)>;

  void TearDown() override {
    if (IsSkipped()) return;
    ForEach([&](Rank& rank) {
      for (const PoolHandle handle : HandlesOf(rank)) {
        ExpectOk({runtime().pools().Find(handle).value()->Close(), runtime().DestroyPool(handle)});
      }
    });
    SymmetricTest::TearDown();
  }

  std::vector<PoolHandle>& HandlesOf(const Rank& rank) { return handles_[rank.number]; }
  // One more pool on each rank, with that home; without a home a fixed one.
  void CreateOf(const std::vector<ncclComm_t>& homes) {
    for (Rank& rank : group()) HandlesOf(rank);
    ForEach([&](Rank& rank) {
      PoolConfiguration configuration = Configured(rank);
      configuration.home = homes.empty() ? nullptr : homes[rank.index()];
      HandlesOf(rank).push_back(runtime().CreatePool(std::move(configuration)).value());
    });
  }
  // One call of each rank for all of its pools. Returns how many threads made it on rank 0.
  size_t ThreadsOf(const Call& call, const std::vector<ncclComm_t>& passed = {}) {
    std::mutex mutex;
    std::map<std::thread::id, int> threads;
    ExpectOk(Run([&](Rank& rank) {
      std::vector<ncclComm_t> each;
      if (!passed.empty()) each.assign(HandlesOf(rank).size(), passed[rank.index()]);
      return OnEach(
          runtime(), HandlesOf(rank),
          [&](Pool& pool, size_t place) {
            if (rank.number == 0) {
              const std::lock_guard lock(mutex);
              ++threads[std::this_thread::get_id()];
            }
            return call(pool, each.empty() ? nullptr : each[place]);
          },
          each.empty() ? nullptr : each.data());
    }));
    return threads.size();
  }
  static Status Reserve(Pool& pool, ncclComm_t) { return pool.mode().Reserve(4 * kMiB); }
  static Status Abandon(Pool& pool, ncclComm_t) {
    return pool.mode().AbandonCommunicator(pool.mode().AsSymmetric()->home(), CommunicatorLife::kAlive);
  }
  static Status Rehome(Pool& pool, ncclComm_t communicator) { return pool.mode().AsSymmetric()->Rehome(communicator); }
  static Status RegisterWith(Pool& pool, ncclComm_t communicator) { return pool.mode().RegisterWith(communicator); }
  static Status Deregister(Pool& pool, ncclComm_t communicator) { return pool.mode().Deregister(communicator); }

 private:
  std::map<int, std::vector<PoolHandle>> handles_;  // by rank
};

TEST_F(SharedCommunicator, IsUsedInTurnByPoolsThatWereRehomedThere) {
  COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
  AllowLeak("reserved addresses");
  CreateOf(Another());
  CreateOf(Another());
  EXPECT_EQ(ThreadsOf(Reserve), 2u) << "of different homes they wait for nobody's turn";
  EXPECT_EQ(ThreadsOf(Abandon), 2u);
  EXPECT_EQ(ThreadsOf(Rehome, Another()), 1u);
  EXPECT_EQ(ThreadsOf(Reserve), 1u);
}

TEST_F(SharedCommunicator, IsUsedInTurnByPoolsThatRegisterWithIt) {
  CreateOf(Another());
  CreateOf(Another());
  const std::vector<ncclComm_t>& third = Another();
  EXPECT_EQ(ThreadsOf(RegisterWith, third), 1u);
  EXPECT_EQ(ThreadsOf(Deregister, third), 1u);
}

TEST_F(SharedCommunicator, IsUsedInTurnByFixedPools) {
  CreateOf({});
  CreateOf({});
  EXPECT_EQ(ThreadsOf(Reserve), 1u);
  EXPECT_EQ(ThreadsOf(RegisterWith, Another()), 1u);
  EXPECT_EQ(ThreadsOf([](Pool& pool, ncclComm_t) { return pool.Trim(0).status(); }), 1u);
}

}  // namespace
}  // namespace commpool::internal::testing
