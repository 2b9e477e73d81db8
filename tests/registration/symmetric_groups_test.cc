// A symmetric pool with several communicators: overlapping groups, split groups, ranks that mix groups up.
#include <algorithm>
#include <deque>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

using Group = std::vector<int>;  // ranks, in the communicator's order

class SymmetricGroups : public SymmetricTest {
 protected:
  void SetUp() override {
    SymmetricTest::SetUp();
    if (IsSkipped()) return;
    if (group().size() < 4) GTEST_SKIP() << "needs 4 devices";
  }
  void TearDown() override {
    if (!IsSkipped()) {
      ExpectOk(Close());  // before the communicators end
      for (std::vector<ncclComm_t>& made : made_) group().Destroy(made);
    }
    SymmetricTest::TearDown();
  }

  // A communicator on each rank of these disjoint groups; null on the others.
  std::vector<ncclComm_t>& Connect(const std::vector<Group>& groups) {
    const NcclLibrary& nccl = driver().nccl;
    std::vector<ncclUniqueId> ids(groups.size());
    for (ncclUniqueId& id : ids) EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
    std::vector<ncclComm_t> communicators(4, nullptr);
    ForEach([&](Rank& rank) {
      for (size_t number = 0; number < groups.size(); ++number) {
        const Group& ranks = groups[number];
        const auto place = std::find(ranks.begin(), ranks.end(), rank.number);
        if (place == ranks.end()) continue;
        EXPECT_EQ(
            nccl.ncclCommInitRank(&communicators[static_cast<size_t>(rank.number)], static_cast<int>(ranks.size()),
                                  ids[number], static_cast<int>(place - ranks.begin())),
            ncclSuccess);
      }
    });
    return made_.emplace_back(std::move(communicators));
  }
  Statuses Register(const std::vector<ncclComm_t>& communicators) {
    return Run(
        [&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(communicators[static_cast<size_t>(rank.number)]); });
  }
  Statuses Deregister(const std::vector<ncclComm_t>& communicators) {
    return Run(
        [&](Rank& rank) { return PoolOf(rank).mode().Deregister(communicators[static_cast<size_t>(rank.number)]); });
  }
  void ExpectRegistered(const std::vector<uint64_t>& segments) {
    for (size_t rank = 0; rank < segments.size(); ++rank) {
      EXPECT_EQ(RegisteredSegments(static_cast<int>(rank)), segments[rank]) << "rank " << rank;
    }
  }

  void ForgetConnected() { made_.clear(); }

 private:
  std::deque<std::vector<ncclComm_t>> made_;
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
  MemoryAccount& account = runtime().devices().Get(3).value()->account();
  account.SetLimit(0);
  const uint64_t windows = CallCount("ncclCommWindowRegister");
  ExpectFailure(Reserve(2 * kMiB), StatusCode::kOutOfMemory, "making a segment of 2 MiB failed on rank 3: 2 MiB more");
  EXPECT_EQ(CallCount("ncclCommWindowRegister"), windows) << "nobody went into NCCL";
  ExpectRegistered({0, 0, 0, 0});
  account.SetLimit(UINT64_MAX);
  ExpectOk(Reserve(2 * kMiB));
  ExpectRegistered({2, 2, 2, 2});
}

TEST_F(SymmetricGroups, AMemberThatPassesNullIsNamedBeforeAnyNcclCall) {
  CreateAndReserve(2 * kMiB);
  const auto& all = Connect({{0, 1, 2}});
  std::vector<ncclComm_t> without = all;
  without[1] = nullptr;
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
  std::vector<ncclComm_t> mixed = pair;
  mixed[2] = other[2];
  ExpectFailure(Register(mixed), StatusCode::kDisagreement,
                "and only rank 1 passed one as its rank 1; rank 3 passed null");
}

TEST_F(SymmetricGroups, OneRankInAnotherOrderIsNamedBeforeAnyNcclCall) {
  CreateAndReserve(2 * kMiB);
  const auto& triple = Connect({{0, 1, 2}});
  const auto& pair = Connect({{2, 3}});
  std::vector<ncclComm_t> mixed = triple;
  mixed[2] = pair[2];
  ExpectFailure(Register(mixed), StatusCode::kDisagreement, "ranks disagree on the communicator");
  ExpectOk(Register(triple));
  ExpectOk(Register(pair));
}

TEST_F(SymmetricGroups, ANewCommunicatorBesideAKnownOneIsNamed) {
  ExpectOk(Create());
  const auto& first = Connect({{0, 1}});
  const auto& second = Connect({{0, 1}});
  ExpectOk(Register(first));
  std::vector<ncclComm_t> mixed = first;
  mixed[1] = second[1];
  ExpectFailure(Register(mixed), StatusCode::kDisagreement, "rank 1 passed a new communicator of 2 ranks");
}

TEST_F(SymmetricGroups, AGroupAbandonedOnOneRankStopsGrowthUntilAllHave) {
  CreateAndReserve(2 * kMiB);
  const auto& pair = Connect({{1, 2}});
  ExpectOk(Register(pair));
  ExpectOk(Deregister(pair));
  ExpectOk(Register(pair));
  // The communicator is alive, so end its windows here: abandon() calls nothing.
  ExpectOk(Run([&](Rank& rank) {
    const ncclComm_t mine = pair[static_cast<size_t>(rank.number)];
    if (mine == nullptr) return Status();
    const CUdeviceptr block = PoolOf(rank).Allocate(512, KeyOfStream(rank.stream, rank.number)).value();
    const WindowPlace place = runtime().windows().Find(mine, block).value();
    EXPECT_EQ(driver().nccl.ncclCommWindowDeregister(mine, place.window), ncclSuccess);
    return PoolOf(rank).Free(block);
  }));
  // The other ranks make the same calls.
  ExpectOk(Run([&](Rank& rank) {
    if (pair[static_cast<size_t>(rank.number)] != nullptr) return Status();
    return PoolOf(rank).Free(PoolOf(rank).Allocate(512, KeyOfStream(rank.stream, rank.number)).value());
  }));
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
  ExpectOk(Run([&](Rank& rank) {
    Result<PoolHandle> made = runtime().CreatePool(Configured(rank));
    if (made.ok()) second[static_cast<size_t>(rank.number)] = *made;
    return made.status();
  }));
  const auto other = [&](const Rank& rank) {
    return runtime().pools().Find(second[static_cast<size_t>(rank.number)]).value();
  };
  ExpectOk(Reserve(2 * kMiB));
  ExpectOk(Run([&](Rank& rank) { return other(rank)->mode().Reserve(4 * kMiB); }));
  ExpectOk(Register(all));
  ExpectOk(Run([&](Rank& rank) { return other(rank)->mode().RegisterWith(all[static_cast<size_t>(rank.number)]); }));
  ExpectRegistered({2, 2, 2, 2});
  ExpectOk(Run([&](Rank& rank) { return other(rank)->Close(); }));
  ExpectRegistered({2, 2, 2, 2});
  ExpectOk(Run([&](Rank& rank) { return runtime().DestroyPool(second[static_cast<size_t>(rank.number)]); }));
}

// Two mixed-up groups of equal size look complete. The ranks wait for each other on their communicators, but not longer
// than the deadline.
TEST_F(SymmetricGroups, ThatAreMixedUpAreFoundWithinTheDeadline) {
  COMMPOOL_REQUIRE_EMULATOR("NCCL's kernel would run on");
  ExpectOk(Create([](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = 2000; }));
  const auto& tensor = Connect({{0, 1}, {2, 3}});
  const auto& data = Connect({{0, 2}, {1, 3}});
  const std::vector<ncclComm_t> mixed = {tensor[0], data[1], data[2], tensor[3]};
  ExpectFailure(Register(mixed), StatusCode::kDisagreement, "ranks passed different communicators");
  ExpectRegistered({0, 0, 0, 0});
  ExpectOk(Reserve(2 * kMiB));  // home is as before
  for (const auto* made : {&tensor, &data}) {
    for (const ncclComm_t communicator : *made) EXPECT_EQ(driver().nccl.ncclCommAbort(communicator), ncclSuccess);
  }
  ForgetConnected();
  static_cast<void>(TakeReports());
}

}  // namespace
}  // namespace commpool::internal::testing
