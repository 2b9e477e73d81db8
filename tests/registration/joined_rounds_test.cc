// Several pools of one rank in the same rounds, over home links between threads that stand for ranks.
#include "src/registration/joined_rounds.h"

#include <atomic>

#include "src/registration/agreement.h"
#include "tests/registration/link_fixture.h"

namespace commpool::internal {
namespace {

using Names = std::vector<std::string>;
using Parts = std::vector<std::function<Status()>>;

class NoHistory : public CallHistory {
  std::vector<engine::SequenceEntry> LastCalls() const override { return {}; }
};

class JoinedPools : public LinkTest {
 protected:
  void Open(int ranks, size_t pools, std::chrono::milliseconds deadline = kLong) {
    links_ = OpenAll(ranks, deadline);
    for (const auto& link : links_) link->StopWatching();  // heartbeats would be counted
    for (uint64_t number = 1; number <= pools; ++number) {
      Channels channels = ChannelsOf(links_, number, deadline);
      for (std::unique_ptr<AgreementChannel>& channel : channels) channel = MakeJoinable(std::move(channel));
      channels_.push_back(std::move(channels));
    }
  }

  HomeLink& LinkOf(int rank) { return *links_[static_cast<size_t>(rank)]; }
  AgreementChannel& ChannelOf(int rank, size_t pool) { return *channels_[pool][static_cast<size_t>(rank)]; }
  Status Intend(int rank, size_t pool, uint64_t bytes = 1) {
    return AgreeOnIntent(ChannelOf(rank, pool), {.bytes = bytes}, NoHistory()).status();
  }
  Status Outcome(int rank, size_t pool, const Status& mine = Status()) {
    return AgreeOnOutcome(ChannelOf(rank, pool), mine, "making");
  }

  // The parts on threads of their own, begun last to first.
  static Status RunParts(const Names& names, const Parts& parts) {
    JoinedRounds rounds(names);
    std::vector<std::thread> threads;
    for (size_t place = parts.size(); place-- > 0;) {
      threads.emplace_back([&, place] { rounds.Run(place, parts[place]); });
    }
    for (std::thread& thread : threads) thread.join();
    return rounds.Outcome();
  }
  // Intent and outcome of these pools, whose names are their numbers, in one call.
  Status Call(int rank, const std::vector<size_t>& pools) {
    Names names;
    Parts parts;
    for (const size_t pool : pools) {
      names.push_back(std::to_string(pool));
      parts.push_back([=, this] {
        Status status = Intend(rank, pool);
        return status.ok() ? Outcome(rank, pool) : status;
      });
    }
    return RunParts(names, parts);
  }

 private:
  Links links_;
  std::vector<Channels> channels_;
};

TEST_F(JoinedPools, SendAsManyMessagesAsOnePool) {
  constexpr int kRanks = 3;
  Open(kRanks, 5);
  std::vector<uint64_t> alone(kRanks);
  std::vector<uint64_t> together(kRanks);
  ForEachRank(kRanks, [&](int rank) {
    const auto count = [&](const std::function<void()>& call) {
      const uint64_t before = LinkOf(rank).traffic().messages;
      call();
      return LinkOf(rank).traffic().messages - before;
    };
    EXPECT_TRUE(Intend(rank, 0).ok());  // what the watchers sent before has come
    alone[static_cast<size_t>(rank)] = count([&] {
      EXPECT_TRUE(Intend(rank, 0).ok());
      EXPECT_TRUE(Outcome(rank, 0).ok());
    });
    together[static_cast<size_t>(rank)] = count([&] { EXPECT_TRUE(Call(rank, {0, 1, 2, 3, 4}).ok()); });
  });
  EXPECT_EQ(alone, (std::vector<uint64_t>{8, 4, 4}));
  EXPECT_EQ(together, alone);
}

TEST_F(JoinedPools, RunOneAtATimeAndInTheirOrderBetweenRounds) {
  Open(2, 3);
  ForEachRank(2, [&](int rank) {
    std::string order;
    Parts parts;
    for (size_t pool = 0; pool < 3; ++pool) {
      parts.push_back([&, pool, rank] {
        for (int round = 0; round < 3; ++round) {
          order += std::to_string(pool);
          if (const Status status = Outcome(rank, pool); !status.ok()) return status;
        }
        return Status();
      });
    }
    EXPECT_TRUE(RunParts({"a", "b", "c"}, parts).ok());
    EXPECT_EQ(order, "012012012");
  });
}

TEST_F(JoinedPools, GoOnWithoutThoseThatHaveEndedWell) {
  Open(2, 3);
  ForEachRank(2, [&](int rank) {
    EXPECT_TRUE(RunParts({"a", "b", "c"}, {[] { return Status(); }, [&] { return Intend(rank, 1); },
                                           [&] {
                                             const Status status = Intend(rank, 2);
                                             return status.ok() ? Outcome(rank, 2) : status;
                                           }})
                    .ok());
    EXPECT_TRUE(Call(rank, {0, 1, 2}).ok()) << "every channel is in step";
  });
}

TEST_F(JoinedPools, StopWhereOneRankFailsForOneOfThem) {
  Open(3, 3);
  ForEachRank(3, [&](int rank) {
    std::vector<Status> heard(3);
    int ways_back = 0;
    Parts parts;
    for (size_t pool = 0; pool < 3; ++pool) {
      parts.push_back([&, pool, rank] {
        Status status = Intend(rank, pool);
        if (!status.ok()) return status;
        const bool fails = pool == 1 && rank == 2;
        heard[pool] = Outcome(rank, pool, fails ? Status(StatusCode::kOutOfMemory, "no room") : Status());
        // Undoing goes wrong for the last pool, and right for the others: that is nobody else's any more.
        const bool stays = pool == 2 && rank == 0;
        const Status undone = Outcome(rank, pool, stays ? Status(StatusCode::kInternal, "it stays") : Status());
        if (undone.ok()) ++ways_back;
        return heard[pool];
      });
    }
    const Status all = RunParts({"a", "b", "c"}, parts);
    EXPECT_EQ(all.code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(all.message(), "making failed on rank 2: no room");
    ExpectMessage(heard[0], "pool b, in the same call: making failed on rank 2: no room");
    EXPECT_EQ(heard[1].message(), all.message());
    ExpectMessage(heard[2], "pool b, in the same call: ");
    EXPECT_EQ(ways_back, 2);
    EXPECT_TRUE(Call(rank, {0, 1, 2}).ok()) << "every channel is in step";
  });
}

TEST_F(JoinedPools, KnowWhatFailedBeforeThemInTheSameStep) {
  Open(2, 3);
  ForEachRank(2, [&](int rank) {
    Parts parts;
    std::vector<Status> before(3);
    for (size_t pool = 0; pool < 3; ++pool) {
      parts.push_back([&, pool, rank] {
        before[pool] = ChannelOf(rank, pool).FailureBefore();
        const bool fails = pool == 1 && rank == 1;
        const Status status = Outcome(rank, pool, fails ? Status(StatusCode::kOutOfMemory, "no room") : before[pool]);
        EXPECT_TRUE(ChannelOf(rank, pool).FailureBefore().ok()) << "a step later";
        return status;
      });
    }
    const Status all = RunParts({"a", "b", "c"}, parts);
    EXPECT_EQ(all.message(), "making failed on rank 1: no room");
    EXPECT_TRUE(before[0].ok() && before[1].ok());
    EXPECT_EQ(before[2].message(), rank == 1 ? "pool b, in the same call: no room" : "");
  });
}

TEST_F(JoinedPools, StopWhereOneEndsByItself) {
  Open(2, 2);
  ForEachRank(2, [&](int rank) {
    Status second;
    const Status all = RunParts({"a", "b"}, {[&] {
                                               EXPECT_TRUE(Intend(rank, 0).ok());
                                               return Status(StatusCode::kOutOfMemory, "beyond its limit");
                                             },
                                             [&] {
                                               EXPECT_TRUE(Intend(rank, 1).ok());
                                               return second = Outcome(rank, 1);
                                             }});
    EXPECT_EQ(all.message(), "beyond its limit");
    EXPECT_EQ(second.code(), StatusCode::kOutOfMemory);
    ExpectMessage(second, "beyond its limit");
  });
}

TEST_F(JoinedPools, TraceWhatOneOfThemDidDifferently) {
  Open(2, 2);
  class OneCall : public CallHistory {
   public:
    explicit OneCall(int rank) : rank_(rank) {}
    std::vector<engine::SequenceEntry> LastCalls() const override {
      const auto rank = static_cast<uint64_t>(rank_);
      return {{.call = engine::SequenceCall::kFree, .value = rank, .hash_after = rank}};
    }

   private:
    const int rank_;
  };
  ForEachRank(2, [&](int rank) {
    Status first;
    const Status all =
        RunParts({"a", "b"}, {[&] { return first = Intend(rank, 0); },
                              [&] {
                                const Intent mine{.sequence_count = 1, .sequence_hash = static_cast<uint64_t>(rank)};
                                return AgreeOnIntent(ChannelOf(rank, 1), mine, OneCall(rank)).status();
                              }});
    EXPECT_EQ(all.code(), StatusCode::kDisagreement);
    ExpectMessage(all, "rank 0 made free of block 0");
    ExpectMessage(first, "pool b, in the same call: its ranks made different calls before");
  });
}

// Which pools a rank passes, and in which order.
struct Passed {
  std::vector<std::vector<size_t>> by_rank;
  std::string difference;
};
class DifferentPools : public JoinedPools, public ::testing::WithParamInterface<Passed> {};

TEST_P(DifferentPools, AreNamedAndLeaveEveryChannelInStep) {
  const auto& [by_rank, difference] = GetParam();
  Open(2, 3);
  ForEachRank(2, [&](int rank) {
    const std::vector<size_t>& pools = by_rank[static_cast<size_t>(rank)];
    const Status status = pools.size() == 1 ? Intend(rank, pools[0]) : Call(rank, pools);
    EXPECT_EQ(status.code(), StatusCode::kDisagreement) << status.message();
    ExpectMessage(status, "ranks disagree on the pools of one call: " + difference);
    EXPECT_TRUE(Call(rank, {0, 1, 2}).ok());
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

TEST_F(JoinedPools, HearOfARankThatDiedInTheRoundAndEverAfter) {
  Open(3, 2);
  LinkOf(2).Break();
  ForEachRank(2, [&](int rank) {
    std::vector<Status> heard(2);
    const Status all =
        RunParts({"a", "b"}, {[&] { return heard[0] = Intend(rank, 0); }, [&] { return heard[1] = Intend(rank, 1); }});
    EXPECT_EQ(all.code(), StatusCode::kRemoteFailure);
    for (const Status& status : heard) ExpectMessage(status, "rank 2 was lost ");
    for (const size_t pool : {0, 1}) ExpectMessage(Intend(rank, pool), "the channel failed before");
  });
}

// A rank that gave up is out of step with every pool of the call, and the others hear of it for each.
TEST_F(JoinedPools, AreAllOutOfStepWhereARankGaveTheirRoundUp) {
  Open(2, 2, kShort);
  const Status gave_up = Call(1, {0, 1});
  EXPECT_EQ(gave_up.code(), StatusCode::kDeadlineExceeded);
  ExpectMessage(gave_up, "missing: rank 0: no answer before the deadline");
  for (const size_t pool : {0, 1}) {
    const Status status = Intend(0, pool);
    EXPECT_FALSE(status.ok());
    ExpectMessage(status, "missing: rank ");
    ExpectMessage(Intend(1, pool), "the channel failed before");
  }
}

TEST(JoinedMessages, ThatCannotBeReadAreNotTakenForOthers) {
  EXPECT_FALSE(DecodeJoinedVerdict("", 1));
  EXPECT_FALSE(DecodeJoinedVerdict("nonsense of some length", 1));
  const JoinedWords words{.pools = {{.channel = 1, .name = "a"}, {.channel = 2, .name = "b"}}};
  std::string bytes = Encode(words);
  EXPECT_TRUE(CheckSamePools({bytes, bytes}).ok());
  const Decider common = [](const std::vector<std::string>&) { return Decision{.common = "yes"}; };
  const Decision decision = DecideJoined({bytes, bytes}, {&common, &common});
  ASSERT_TRUE(DecodeJoinedVerdict(decision.common, 2));
  EXPECT_EQ(DecodeJoinedVerdict(decision.common, 2)->pools[1].common, "yes");
  EXPECT_FALSE(DecodeJoinedVerdict(decision.common, 3));
  bytes.pop_back();
  for (const auto& contents : {std::vector<std::string>{bytes, bytes}, {Encode(words), bytes}}) {
    const std::optional<JoinedVerdict> verdict =
        DecodeJoinedVerdict(DecideJoined(contents, {&common, &common}).common, 2);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->failure.code(), StatusCode::kDisagreement);
  }
}

}  // namespace
}  // namespace commpool::internal
