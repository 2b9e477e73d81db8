// One agreement for several pools of each rank, over home links. Threads stand for ranks.
#include <vector>

#include "src/library/registration/agreement.h"
#include "tests/registration/link_fixture.h"

namespace commpool::internal {
namespace {

// The pools of a call, by their places in home.
using Places = std::vector<size_t>;

// One call with a value of this rank.
CallHistory HistoryOf(int rank) {
  return [value = static_cast<uint64_t>(rank)](uint64_t) -> Calls {
    return {{.call = engine::SequenceCall::kFree, .value = value, .hash_after = value}};
  };
}

class SeveralInACall : public LinkTest {
 protected:
  void Open(int ranks, size_t pools, std::chrono::milliseconds deadline = kLong) {
    links_ = OpenAll(ranks, deadline);
    for (const auto& link : links_) link->StopWatching();  // heartbeats would count
    for (uint64_t number = 1; number <= pools; ++number) channels_.push_back(ChannelsOf(links_, number, deadline));
  }
  HomeLink& LinkOf(int rank) { return *links_[rank]; }
  PoolChannels ChannelsFor(int rank, const Places& pools) {
    PoolChannels channels;
    for (const size_t pool : pools) channels.push_back(channels_[pool][rank].get());
    return channels;
  }

  // `adjust` changes the intent of each pool.
  CallVerdict Call(int rank, const Places& pools, const std::function<void(size_t pool, Intent&)>& adjust = nullptr) {
    std::vector<PoolInCall> asked;
    for (const size_t pool : pools) {
      Intent intent{.pool = std::to_string(pool), .bytes = 1, .channel = pool + 1};
      if (adjust) adjust(pool, intent);
      asked.push_back({intent, HistoryOf(rank)});
    }
    return AgreeOnCall(ChannelsFor(rank, pools), asked);
  }
  std::vector<Status> Outcome(int rank, const Places& pools, std::vector<Status> mine = {}) {
    mine.resize(pools.size());
    return AgreeOnOutcomes(ChannelsFor(rank, pools), mine, std::vector<std::string>(pools.size(), "making"));
  }

 private:
  Links links_;
  std::vector<Channels> channels_;
};

TEST_F(SeveralInACall, SendAsManyMessagesAsOnePool) {
  constexpr int kRanks = 3;
  Open(kRanks, 5);
  std::vector<uint64_t> alone(kRanks);
  std::vector<uint64_t> together(kRanks);
  ForEachRank(kRanks, [&](int rank) {
    const auto count = [&](const Places& pools) {
      const uint64_t before = LinkOf(rank).traffic().messages;
      EXPECT_TRUE(Call(rank, pools).failure.ok());
      EXPECT_TRUE(Outcome(rank, pools)[0].ok());
      return LinkOf(rank).traffic().messages - before;
    };
    EXPECT_TRUE(Call(rank, {0}).failure.ok());  // the watchers' earlier messages have arrived
    alone[rank] = count({0});
    together[rank] = count({0, 1, 2, 3, 4});
  });
  EXPECT_EQ(alone, (std::vector<uint64_t>{8, 4, 4}));
  EXPECT_EQ(together, alone);
}

TEST_F(SeveralInACall, GetADecisionForEachOfThem) {
  Open(2, 3);
  ForEachRank(2, [&](int rank) {
    const CallVerdict verdict = Call(rank, {0, 1, 2}, [](size_t pool, Intent& intent) { intent.freed = {pool}; });
    ASSERT_EQ(verdict.pools.size(), 3u) << verdict.failure.message();
    for (size_t pool = 0; pool < 3; ++pool) EXPECT_EQ(verdict.pools[pool].freed, std::vector<uint64_t>{pool});
  });
}

TEST_F(SeveralInACall, AllStopWhereOneRankIsNotReadyForOneOfThem) {
  Open(3, 3);
  ForEachRank(3, [&](int rank) {
    const CallVerdict verdict = Call(rank, {0, 1, 2}, [&](size_t pool, Intent& intent) {
      if (rank == 2 && pool == 1) intent.readiness = Status(StatusCode::kOutOfMemory, "no room");
    });
    EXPECT_EQ(verdict.pools.size(), 1u);
    EXPECT_EQ(verdict.failure.code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(verdict.failure.message(), "rank 2 cannot reserve: no room");
    EXPECT_TRUE(Call(rank, {0, 1, 2}).failure.ok()) << "every channel is in step";
  });
}

TEST_F(SeveralInACall, HaveAnOutcomeEach) {
  Open(3, 3);
  ForEachRank(3, [&](int rank) {
    std::vector<Status> mine(3);
    if (rank == 2) mine[1] = Status(StatusCode::kOutOfMemory, "no room");
    if (rank == 1) mine[2] = Status(StatusCode::kInternal, "it stays");
    const std::vector<Status> all = Outcome(rank, {0, 1, 2}, mine);
    EXPECT_TRUE(all[0].ok());
    EXPECT_EQ(all[1].message(), "making failed on rank 2: no room");
    EXPECT_EQ(all[2].message(), "making failed on rank 1: it stays");
    EXPECT_TRUE(Call(rank, {0, 1, 2}).failure.ok()) << "every channel is in step";
  });
}

TEST_F(SeveralInACall, TraceADifferenceToOneOfThem) {
  Open(2, 2);
  ForEachRank(2, [&](int rank) {
    const CallVerdict verdict = Call(rank, {0, 1}, [&](size_t pool, Intent& intent) {
      intent.sequence_count = 1;
      if (pool == 1) intent.sequence_hash = static_cast<uint64_t>(rank);
    });
    EXPECT_EQ(verdict.pools.size(), 1u);
    ExpectFailure(verdict.failure, StatusCode::kDisagreement,
                  "rank 0 made free of block 0 (call 0), rank 1 made free of block 1 (call 0)");
  });
}

// The pools that a rank passes, in its order.
struct Passed {
  std::vector<Places> by_rank;
  std::string difference;
};
class DifferentPools : public SeveralInACall, public ::testing::WithParamInterface<Passed> {};

TEST_P(DifferentPools, AreNamedAndLeaveEveryChannelInStep) {
  const Passed& passed = GetParam();
  Open(2, 3);
  ForEachRank(2, [&](int rank) {
    const auto& [by_rank, difference] = passed;
    ExpectFailure(Call(rank, by_rank[rank]).failure, StatusCode::kDisagreement,
                  "ranks disagree on the pools of one call: " + difference);
    EXPECT_TRUE(Call(rank, {0, 1, 2}).failure.ok());
  });
}

INSTANTIATE_TEST_SUITE_P(
    Of, DifferentPools,
    ::testing::Values(
        Passed{{{0, 1}, {1, 0}},
               "rank 0: 0 (pool 1 of home), 1 (pool 2 of home); rank 1: 1 (pool 2 of home), 0 (pool 1 of home)"},
        Passed{{{0, 1}, {0, 2}},
               "rank 0: 0 (pool 1 of home), 1 (pool 2 of home); rank 1: 0 (pool 1 of home), 2 (pool 3 of home)"},
        Passed{{{0, 1, 2}, {0, 1}}, "rank 0: 0 (pool 1 of home), 1 (pool 2 of home), 2 (pool 3 of home); rank 1: "},
        Passed{{{0, 1}, {0}}, "rank 0: 0 (pool 1 of home), 1 (pool 2 of home); rank 1: one pool alone"},
        Passed{{{0}, {1, 0}}, "rank 0: one pool alone; rank 1: 1 (pool 2 of home), 0 (pool 1 of home)"}));

TEST_F(SeveralInACall, HearOfARankThatDiedInTheRoundAndEverAfter) {
  Open(3, 2);
  LinkOf(2).Break();
  ForEachRank(2, [&](int rank) {
    ExpectFailure(Call(rank, {0, 1}).failure, StatusCode::kRemoteFailure, "rank 2 was lost ");
    for (const size_t pool : {0, 1}) ExpectMessage(Call(rank, {pool}).failure, "an earlier call of the ranks failed");
  });
}

// A rank that gave up is out of step with every pool of the call; the others see that for each pool.
TEST_F(SeveralInACall, AreAllOutOfStepWhereARankGaveUpTheirRound) {
  Open(2, 2, kShort);
  ExpectFailure(Call(1, {0, 1}).failure, StatusCode::kDeadlineExceeded,
                "missing: rank 0: no answer before the deadline");
  for (const size_t pool : {0, 1}) {
    ExpectMessage(Call(0, {pool}).failure, "missing: rank ");
    ExpectMessage(Call(1, {pool}).failure, "an earlier call of the ranks failed");
  }
}

}  // namespace
}  // namespace commpool::internal
