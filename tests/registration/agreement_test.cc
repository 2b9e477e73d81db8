// The verdict on all ranks' intents and outcomes. A channel in memory carries the messages.
#include "src/library/registration/agreement.h"

#include <barrier>

#include "tests/registration/link_fixture.h"

namespace commpool::internal {
namespace {

// Collects all ranks' messages of a step.
class Meeting {
 public:
  explicit Meeting(int ranks) : barrier_(ranks), messages_(static_cast<size_t>(ranks)) {}

  std::vector<std::string> Exchange(int rank, const std::string& mine) {
    messages_[static_cast<size_t>(rank)] = mine;
    barrier_.arrive_and_wait();
    std::vector<std::string> all = messages_;
    barrier_.arrive_and_wait();
    return all;
  }

 private:
  std::barrier<> barrier_;
  std::vector<std::string> messages_;
};

class MeetingChannel : public AgreementChannel {
 public:
  MeetingChannel(Meeting& meeting, int rank, int ranks) : AgreementChannel(rank, ranks), meeting_(meeting) {}
  void Break(const Status&) override {}
  // Only rank 0 decides, as over TCP.
  Result<std::string> Decide(const std::string& mine, const std::string&, const Decider& decide) override {
    const std::vector<std::string> contents = meeting_.Exchange(rank(), mine);
    return meeting_.Exchange(rank(), rank() == 0 ? decide(contents) : "")[0];
  }

 private:
  Meeting& meeting_;
};

// Of one pool.
CallVerdict AgreeAlone(AgreementChannel& channel, const Intent& mine, const CallHistory& history = {},
                       const ReportJudge& judge = {}) {
  return AgreeOnCall({&channel}, {{mine, history, judge}});
}
Result<Agreed> AgreeOnIntent(AgreementChannel& channel, const Intent& mine, const CallHistory& history = {},
                             const ReportJudge& judge = {}) {
  CallVerdict verdict = AgreeAlone(channel, mine, history, judge);
  if (!verdict.failure.ok()) return verdict.failure;
  return verdict.pools.front();
}
Status AgreeOnOutcome(AgreementChannel& channel, const Status& mine, const std::string& step) {
  return AgreeOnOutcomes({&channel}, {mine}, {step}).front();
}

void ForEachChannel(size_t ranks, const std::function<void(AgreementChannel&)>& body) {
  const int count = static_cast<int>(ranks);
  Meeting meeting(count);
  ForEachRank(count, [&](int rank) {
    MeetingChannel channel(meeting, rank, count);
    body(channel);
  });
}

void ExpectSame(const Status& status, const Status& expected) {
  EXPECT_EQ(status.code(), expected.code());
  EXPECT_EQ(status.message(), expected.message());
}

// The result for every rank, which must be the same.
Result<Agreed> Agree(const std::vector<Intent>& intents, const std::vector<CallHistory>& histories = {}) {
  std::vector<Result<Agreed>> results(intents.size(), Status(StatusCode::kInternal, "not run"));
  ForEachChannel(intents.size(), [&](AgreementChannel& channel) {
    const auto rank = static_cast<size_t>(channel.rank());
    results[rank] = AgreeOnIntent(channel, intents[rank], histories.empty() ? CallHistory() : histories[rank]);
  });
  for (const Result<Agreed>& result : results) ExpectSame(result.status(), results[0].status());
  return results[0];
}

void ExpectDisagreement(const std::vector<Intent>& intents, const std::string& message,
                        const std::vector<CallHistory>& histories = {}) {
  ExpectSame(Agree(intents, histories).status(), Status(StatusCode::kDisagreement, message));
}

Intent Reserving(uint64_t bytes = 4096) {
  return {.call = CollectiveCall::kReserve, .bytes = bytes, .nccl_version = 22809};
}

std::vector<Intent> Ranks(size_t ranks, const Intent& intent = Reserving()) { return std::vector(ranks, intent); }

std::vector<Intent> Creating(size_t ranks) { return Ranks(ranks, {.call = CollectiveCall::kCreate}); }

TEST(AgreementOnIntent, CombinesWhatRanksBring) {
  std::vector<Intent> intents = Ranks(3);
  intents[0].memory_left = 900;
  intents[1].memory_left = 700;
  intents[2].memory_left = UINT64_MAX;
  intents[2].granularity = 2 << 20;
  const Agreed agreed = Agree(intents).value();
  EXPECT_EQ(agreed.granularity, uint64_t{2 << 20});
  EXPECT_EQ(agreed.least_memory_left, 700u);
  EXPECT_EQ(agreed.rank_with_least_memory, 1);
}

TEST(AgreementOnIntent, TakesTheLargestGranularityAndTheLeastMemoryOfAllRanks) {
  Intent usual = Reserving();
  usual.granularity = 64 << 10;
  usual.memory_left = 900;
  for (size_t extreme = 0; extreme < 3; ++extreme) {
    std::vector<Intent> intents = Ranks(3, usual);
    intents[extreme].granularity = 2 << 20;
    intents[extreme].memory_left = 700;
    const Agreed agreed = Agree(intents).value();
    EXPECT_EQ(agreed.granularity, uint64_t{2 << 20}) << "rank " << extreme;
    EXPECT_EQ(agreed.least_memory_left, 700u) << "rank " << extreme;
    EXPECT_EQ(agreed.rank_with_least_memory, static_cast<int>(extreme));
  }
}

TEST(AgreementOnIntent, NamesTheLowestOfEqualRanks) {
  std::vector<Intent> intents = Ranks(3);
  for (Intent& intent : intents) intent.memory_left = 900;
  for (const size_t rank : {1, 2}) intents[rank].memory_left = 7;
  EXPECT_EQ(Agree(intents).value().rank_with_least_memory, 1);
}

TEST(AgreementOnIntent, FreesWhatEveryRankHasFreed) {
  std::vector<Intent> intents = Ranks(3);
  intents[0].freed = {1, 2, 5, 9};
  intents[1].freed = {2, 3, 5, 9};
  intents[2].freed = {0, 2, 9};
  EXPECT_EQ(Agree(intents).value().freed, (std::vector<uint64_t>{2, 9}));
  intents[1].freed = {};
  EXPECT_TRUE(Agree(intents).value().freed.empty());
}

TEST(AgreementOnIntent, NamesTheRankThatMakesAnotherCall) {
  std::vector<Intent> intents = Ranks(3);
  intents[2].call = CollectiveCall::kClose;
  ExpectDisagreement(intents, "ranks disagree on the collective call: rank 0: reserve, rank 2: close");
}

TEST(AgreementOnIntent, NamesTheRankThatAsksForOtherBytes) {
  std::vector<Intent> intents = Ranks(3);
  intents[1].bytes = 8192;
  ExpectDisagreement(intents, "ranks disagree on the bytes of reserve: rank 0: 4096 bytes, rank 1: 8192 bytes");
}

TEST(AgreementOnIntent, NamesTheRankWithAnotherNccl) {
  std::vector<Intent> intents = Ranks(2);
  intents[1].nccl_version = 23007;
  ExpectDisagreement(intents, "ranks disagree on the NCCL version: rank 0: NCCL 22809, rank 1: NCCL 23007");
}

TEST(AgreementOnIntent, NamesTheRankWithOtherOptions) {
  std::vector<Intent> intents =
      Ranks(2, {.call = CollectiveCall::kCreate, .options = {"alignment 512 bytes", "frees ordered"}});
  intents[1].options[0] = "alignment 4096 bytes";
  ExpectDisagreement(intents, "ranks disagree on the pool's options: alignment: rank 0 512 bytes, rank 1 4096 bytes");
}

TEST(AgreementOnIntent, NamesTheRanksThatMakeAnotherPool) {
  std::vector<Intent> intents = Ranks(3, {.call = CollectiveCall::kCreate, .pool = "weights"});
  intents[2].pool = "gradients";
  ExpectDisagreement(intents,
                     "ranks disagree on which pool they create: rank 0: pool weights, rank 2: pool gradients. Ranks "
                     "make the pools of one home in one order");
}

TEST(AgreementOnIntent, TellsEveryRankHowTheReportsWereJudged) {
  ForEachChannel(3, [](AgreementChannel& channel) {
    Intent mine = Reserving();
    mine.report.ranks = channel.rank() + 1;
    const ReportJudge judge = [](const std::vector<DomainReport>& reports) -> Findings {
      const int ranks = 100 * reports[0].ranks + 10 * reports[1].ranks + reports[2].ranks;
      return {.status = Status(StatusCode::kDisagreement, "they differ"), .home_id = static_cast<uint64_t>(ranks)};
    };
    const Findings findings = AgreeOnIntent(channel, mine, {}, judge).value().findings;
    EXPECT_EQ(findings.status.message(), "they differ");
    EXPECT_EQ(findings.home_id, 123u);
  });
}

TEST(AgreementOnIntent, NamesTheRankWithOtherSegments) {
  std::vector<Intent> intents = Ranks(2);
  intents[1].segment_index = 4;
  ExpectDisagreement(intents, "ranks disagree on the pool's segments: rank 0: segment 0 next, rank 1: segment 4 next");
}

TEST(AgreementOnIntent, ARankThatJoinsLearnsTheSegmentsOfTheOthers) {
  std::vector<Intent> intents = Creating(3);
  intents[1].segments = {2 << 20, 4 << 20};
  intents[2].segments = {2 << 20};
  EXPECT_EQ(Agree(intents).value().segments, intents[1].segments);
}

TEST(AgreementOnIntent, NamesTheRankWhoseMemoryIsNotTheBeginningOfTheOthers) {
  std::vector<Intent> intents = Creating(3);
  intents[0].segments = {2 << 20, 4 << 20};
  intents[2].segments = {4 << 20};
  ExpectDisagreement(intents,
                     "ranks disagree on the pool's segments: rank 2 has 1 segments: 4 MiB, another rank 2 segments: "
                     "2 MiB, 4 MiB");
}

TEST(AgreementOnIntent, ARankThatIsNotReadyFailsAllWithItsReason) {
  std::vector<Intent> intents = Ranks(3);
  intents[1] = {.call = CollectiveCall::kReserve};  // it knows too little for a comparison
  intents[1].readiness = Status(StatusCode::kNotSupported, "no windows here");
  intents[2].readiness = Status(StatusCode::kInvalidArgument, "another reason");
  ExpectSame(Agree(intents).status(), Status(StatusCode::kNotSupported, "rank 1 cannot reserve: no windows here"));
}

TEST(AgreementOnIntent, NamesTheFirstRankWhoseSegmentsDifferFromTheLongestList) {
  std::vector<Intent> intents = Creating(3);
  for (size_t rank = 0; rank < 3; ++rank) intents[rank].segments = {(rank + 1) << 20};
  ExpectDisagreement(
      intents, "ranks disagree on the pool's segments: rank 1 has 1 segments: 2 MiB, another rank 1 segments: 1 MiB");
}

TEST(AgreementOnIntent, NamesAFewOfManySegments) {
  for (const size_t segments : {8, 9}) {
    std::vector<Intent> intents = Creating(2);
    intents[0].segments.assign(segments, 2 << 20);
    intents[1].segments = {4 << 20};
    const std::string names = "2 MiB, 2 MiB, 2 MiB, 2 MiB, 2 MiB, 2 MiB, 2 MiB, 2 MiB";
    ExpectDisagreement(intents, "ranks disagree on the pool's segments: rank 1 has 1 segments: 4 MiB, another rank " +
                                    std::to_string(segments) + " segments: " + names + (segments == 9 ? ", ..." : ""));
  }
}

// A rank that made a sequence of allocations of these sizes.
struct After {
  explicit After(const std::vector<uint64_t>& bytes) {
    engine::SequenceLog log;
    for (const uint64_t one : bytes) {
      log.Append(engine::SequenceCall::kAllocate, one);
      calls.push_back(*log.Entry(log.count() - 1));
    }
    intent.sequence_count = calls.size();
    intent.sequence_hash = calls.back().hash_after;
  }

  Calls calls;
  Intent intent = Reserving();
};

void ExpectDifference(const std::vector<After>& ranks, const std::string& difference) {
  std::vector<Intent> intents;
  std::vector<CallHistory> histories;
  for (const After& rank : ranks) {
    intents.push_back(rank.intent);
    histories.push_back([calls = rank.calls](uint64_t) { return calls; });
  }
  ExpectDisagreement(intents, "the sequences of calls differ, so blocks are at different offsets: " + difference,
                     histories);
}

TEST(AgreementOnIntent, NamesTheFirstDifferingCall) {
  const After usual({1, 2, 4});
  ExpectDifference({usual, usual, After({1, 3, 4})},
                   "rank 0 made allocate 2 bytes (call 1), rank 2 made allocate 3 bytes (call 1)");
}

TEST(AgreementOnIntent, NamesTheExtraCallOfARank) {
  const After usual({1});
  const After more({1, 2});
  ExpectDifference({usual, more}, "rank 1 also made allocate 2 bytes (call 1)");
  ExpectDifference({more, usual}, "rank 0 also made allocate 2 bytes (call 1)");
}

TEST(AgreementOnIntent, SaysWhereTheDifferenceIsTooOldToName) {
  const After usual({1});
  After other = usual;
  ++other.intent.sequence_hash;
  ExpectDifference({usual, other}, "the first difference is older than the calls that are kept");
}

TEST(AgreementOnIntent, ADifferenceThatOneRankKnowsReachesAll) {
  std::vector<Intent> intents = Ranks(3);
  intents[1].divergence = Status(StatusCode::kDisagreement, "they differ");
  intents[2].call = CollectiveCall::kClose;  // its error adds nothing new
  ExpectDisagreement(intents, "they differ");
}

TEST(AgreementOnIntent, ACloseEndsADivergedPoolWhereAllRanksKnow) {
  std::vector<Intent> intents = Ranks(2, {.call = CollectiveCall::kClose, .sequence_count = 7});
  intents[0].sequence_count = 8;
  intents[0].divergence = Status(StatusCode::kDisagreement, "they differ");
  intents[0].freed = {1, 2};
  intents[1].freed = {2, 3};
  ExpectDisagreement(intents, "they differ");
  intents[1].divergence = intents[0].divergence;
  EXPECT_EQ(Agree(intents).value().freed, std::vector<uint64_t>{2});
  intents[1].readiness = Status(StatusCode::kFailedPrecondition, "a live block");
  EXPECT_EQ(Agree(intents).status().message(), "rank 1 cannot close: a live block");
}

TEST(AgreementOnIntent, MarksAFailureAsADifferenceOfTheSequences) {
  for (const bool heard_before : {false, true}) {
    ForEachChannel(2, [&](AgreementChannel& channel) {
      Intent mine = Reserving();
      mine.sequence_count = static_cast<uint64_t>(channel.rank());
      if (heard_before && channel.rank() == 1) mine.divergence = Status(StatusCode::kDisagreement, "they differ");
      const CallVerdict verdict = AgreeAlone(channel, mine);
      EXPECT_EQ(verdict.failure.code(), StatusCode::kDisagreement);
      EXPECT_TRUE(verdict.diverged);
    });
  }
  ForEachChannel(2, [](AgreementChannel& channel) {
    const CallVerdict verdict = AgreeAlone(channel, Reserving(channel.rank() == 0 ? 4096 : 8192));
    EXPECT_EQ(verdict.failure.code(), StatusCode::kDisagreement);
    EXPECT_FALSE(verdict.diverged);
  });
}

TEST(AgreementOnIntent, RefusesUnreadableMessages) {
  ForEachChannel(2, [](AgreementChannel& channel) {
    const Status status = channel.rank() == 0 ? AgreeOnIntent(channel, Reserving()).status()
                                              : channel.Decide("what is this", "reserve", {}).status();
    if (channel.rank() != 0) return;
    ExpectFailure(status, StatusCode::kDisagreement, "rank 1 sent an unreadable intent");
  });
}

TEST(AgreementOnIntent, ARefusalReachesAllRanks) {
  ForEachChannel(2, [](AgreementChannel& channel) {
    Intent mine{.call = CollectiveCall::kCreate};
    if (channel.rank() == 1) mine.readiness = Status(StatusCode::kInvalidArgument, "no device 9");
    ExpectSame(channel.rank() == 1 ? TellRefusal({&channel}, mine) : AgreeOnIntent(channel, mine).status(),
               Status(StatusCode::kInvalidArgument, "rank 1 cannot create: no device 9"));
  });
}

TEST(AgreementOnOutcome, IsOkWhereEveryRankSucceeded) {
  ForEachChannel(3, [](AgreementChannel& channel) { EXPECT_TRUE(AgreeOnOutcome(channel, Status(), "making").ok()); });
}

TEST(AgreementOnOutcome, IsTheFailureOfTheLowestRank) {
  ForEachChannel(3, [](AgreementChannel& channel) {
    const Status mine =
        channel.rank() == 0 ? Status() : Status(StatusCode::kOutOfMemory, "as rank " + std::to_string(channel.rank()));
    ExpectSame(AgreeOnOutcome(channel, mine, "making a segment"),
               Status(StatusCode::kOutOfMemory, "making a segment failed on rank 1: as rank 1"));
  });
}

TEST(AgreementOnOutcome, RefusesUnreadableMessages) {
  ForEachChannel(2, [](AgreementChannel& channel) {
    const Status status =
        channel.rank() == 0 ? AgreeOnOutcome(channel, Status(), "making") : channel.Decide("?", "making", {}).status();
    EXPECT_EQ(status.code(), channel.rank() == 0 ? StatusCode::kDisagreement : StatusCode::kOk);
  });
}

TEST(CollectiveCalls, HaveNames) {
  EXPECT_EQ(Name(CollectiveCall::kRegister), "register_with");
  EXPECT_EQ(Name(static_cast<CollectiveCall>(99)), "unknown call");
}

}  // namespace
}  // namespace commpool::internal
