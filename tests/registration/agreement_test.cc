// The verdict on all ranks' intents and outcomes. A channel in memory carries the messages.
#include "src/library/registration/agreement.h"

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <thread>

#include "tests/base/expect_status.h"

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

CallHistory History(const Calls& calls) {
  return [calls](uint64_t) { return calls; };
}

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

void ForEachRank(size_t ranks, const std::function<void(AgreementChannel&)>& body) {
  Meeting meeting(static_cast<int>(ranks));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      MeetingChannel channel(meeting, static_cast<int>(rank), static_cast<int>(ranks));
      body(channel);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The result for every rank, which must be the same.
Result<Agreed> Agree(const std::vector<Intent>& intents, const std::vector<CallHistory>& histories = {}) {
  std::vector<Result<Agreed>> results(intents.size(), Status(StatusCode::kInternal, "not run"));
  ForEachRank(intents.size(), [&](AgreementChannel& channel) {
    const auto rank = static_cast<size_t>(channel.rank());
    results[rank] = AgreeOnIntent(channel, intents[rank], histories.empty() ? CallHistory() : histories[rank]);
  });
  for (const Result<Agreed>& result : results) {
    EXPECT_EQ(result.status().code(), results[0].status().code());
    EXPECT_EQ(result.status().message(), results[0].status().message());
  }
  return results[0];
}

void ExpectDisagreement(const std::vector<Intent>& intents, const std::string& message,
                        const std::vector<CallHistory>& histories = {}) {
  const Status status = Agree(intents, histories).status();
  EXPECT_EQ(status.code(), StatusCode::kDisagreement);
  EXPECT_EQ(status.message(), message);
}

Intent Reserving(uint64_t bytes) { return {.call = CollectiveCall::kReserve, .bytes = bytes, .nccl_version = 22809}; }

TEST(AgreementOnIntent, CombinesWhatRanksBring) {
  std::vector<Intent> intents(3, Reserving(4096));
  intents[0].memory_left = 900;
  intents[1].memory_left = 700;
  intents[2].memory_left = UINT64_MAX;
  intents[2].granularity = 2 << 20;
  const Result<Agreed> agreed = Agree(intents);
  ASSERT_TRUE(agreed.ok());
  EXPECT_EQ(agreed->granularity, uint64_t{2 << 20});
  EXPECT_EQ(agreed->least_memory_left, 700u);
  EXPECT_EQ(agreed->rank_with_least_memory, 1);
}

TEST(AgreementOnIntent, TakesTheLargestGranularityAndTheLeastMemoryOfAllRanks) {
  for (size_t extreme = 0; extreme < 3; ++extreme) {
    std::vector<Intent> intents(3, Reserving(4096));
    for (Intent& intent : intents) {
      intent.granularity = 64 << 10;
      intent.memory_left = 900;
    }
    intents[extreme].granularity = 2 << 20;
    intents[extreme].memory_left = 700;
    const Result<Agreed> agreed = Agree(intents);
    ASSERT_TRUE(agreed.ok());
    EXPECT_EQ(agreed->granularity, uint64_t{2 << 20}) << "rank " << extreme;
    EXPECT_EQ(agreed->least_memory_left, 700u) << "rank " << extreme;
    EXPECT_EQ(agreed->rank_with_least_memory, static_cast<int>(extreme));
  }
}

TEST(AgreementOnIntent, NamesTheLowestOfEqualRanks) {
  std::vector<Intent> intents(3, Reserving(4096));
  for (Intent& intent : intents) intent.memory_left = 900;
  for (const size_t rank : {1, 2}) intents[rank].memory_left = 7;
  const Result<Agreed> agreed = Agree(intents);
  ASSERT_TRUE(agreed.ok());
  EXPECT_EQ(agreed->rank_with_least_memory, 1);
}

TEST(AgreementOnIntent, FreesWhatEveryRankHasFreed) {
  std::vector<Intent> intents(3, Reserving(4096));
  intents[0].freed = {1, 2, 5, 9};
  intents[1].freed = {2, 3, 5, 9};
  intents[2].freed = {0, 2, 9};
  EXPECT_EQ(Agree(intents).value().freed, (std::vector<uint64_t>{2, 9}));
  intents[1].freed = {};
  EXPECT_TRUE(Agree(intents).value().freed.empty());
}

TEST(AgreementOnIntent, NamesTheRankThatMakesAnotherCall) {
  std::vector<Intent> intents(3, Reserving(4096));
  intents[2].call = CollectiveCall::kClose;
  ExpectDisagreement(intents, "ranks disagree on the collective call: rank 0: reserve, rank 2: close");
}

TEST(AgreementOnIntent, NamesTheRankThatAsksForOtherBytes) {
  std::vector<Intent> intents(3, Reserving(4096));
  intents[1].bytes = 8192;
  ExpectDisagreement(intents, "ranks disagree on the bytes of reserve: rank 0: 4096 bytes, rank 1: 8192 bytes");
}

TEST(AgreementOnIntent, NamesTheRankWithAnotherNccl) {
  std::vector<Intent> intents(2, Reserving(4096));
  intents[1].nccl_version = 23007;
  ExpectDisagreement(intents, "ranks disagree on the NCCL version: rank 0: NCCL 22809, rank 1: NCCL 23007");
}

TEST(AgreementOnIntent, NamesTheRankWithOtherOptions) {
  const Intent create{.call = CollectiveCall::kCreate, .options = {"alignment 512 bytes", "frees ordered"}};
  std::vector<Intent> intents(2, create);
  intents[1].options[0] = "alignment 4096 bytes";
  ExpectDisagreement(intents, "ranks disagree on the pool's options: alignment: rank 0 512 bytes, rank 1 4096 bytes");
}

TEST(AgreementOnIntent, NamesTheRanksThatMakeAnotherPool) {
  std::vector<Intent> intents(3, Intent{.call = CollectiveCall::kCreate, .pool = "weights"});
  intents[2].pool = "gradients";
  ExpectDisagreement(intents,
                     "ranks disagree on which pool they create: rank 0: pool weights, rank 2: pool gradients. Ranks "
                     "make the pools of one home in one order");
}

TEST(AgreementOnIntent, TellsEveryRankHowTheReportsWereJudged) {
  ForEachRank(3, [](AgreementChannel& channel) {
    Intent mine = Reserving(4096);
    mine.report.ranks = channel.rank() + 1;
    const ReportJudge judge = [](const std::vector<DomainReport>& reports) -> Findings {
      const int ranks = 100 * reports[0].ranks + 10 * reports[1].ranks + reports[2].ranks;
      return {.status = Status(StatusCode::kDisagreement, "they differ"), .home_id = static_cast<uint64_t>(ranks)};
    };
    const Result<Agreed> agreed = AgreeOnIntent(channel, mine, {}, judge);
    ASSERT_TRUE(agreed.ok());
    EXPECT_EQ(agreed->findings.status.message(), "they differ");
    EXPECT_EQ(agreed->findings.home_id, 123u);
  });
}

TEST(AgreementOnIntent, NamesTheRankWithOtherSegments) {
  std::vector<Intent> intents(2, Reserving(4096));
  intents[1].segment_index = 4;
  ExpectDisagreement(intents, "ranks disagree on the pool's segments: rank 0: segment 0 next, rank 1: segment 4 next");
}

TEST(AgreementOnIntent, ARankThatJoinsLearnsTheSegmentsOfTheOthers) {
  std::vector<Intent> intents(3, Intent{.call = CollectiveCall::kCreate});
  intents[1].segments = {2 << 20, 4 << 20};
  intents[2].segments = {2 << 20};
  EXPECT_EQ(Agree(intents).value().segments, intents[1].segments);
}

TEST(AgreementOnIntent, NamesTheRankWhoseMemoryIsNotTheBeginningOfTheOthers) {
  std::vector<Intent> intents(3, Intent{.call = CollectiveCall::kCreate});
  intents[0].segments = {2 << 20, 4 << 20};
  intents[2].segments = {4 << 20};
  ExpectDisagreement(intents,
                     "ranks disagree on the pool's segments: rank 2 has 1 segments: 4 MiB, another rank 2 segments: "
                     "2 MiB, 4 MiB");
}

TEST(AgreementOnIntent, ARankThatIsNotReadyFailsAllWithItsReason) {
  std::vector<Intent> intents(3, Reserving(4096));
  intents[1] = {.call = CollectiveCall::kReserve};  // it knows too little for a comparison
  intents[1].readiness = Status(StatusCode::kNotSupported, "no windows here");
  intents[2].readiness = Status(StatusCode::kInvalidArgument, "another reason");
  const Status status = Agree(intents).status();
  EXPECT_EQ(status.code(), StatusCode::kNotSupported);
  EXPECT_EQ(status.message(), "rank 1 cannot reserve: no windows here");
}

TEST(AgreementOnIntent, NamesTheFirstRankWhoseSegmentsDifferFromTheLongestList) {
  std::vector<Intent> intents(3, Intent{.call = CollectiveCall::kCreate});
  for (size_t rank = 0; rank < 3; ++rank) intents[rank].segments = {(rank + 1) << 20};
  ExpectDisagreement(
      intents, "ranks disagree on the pool's segments: rank 1 has 1 segments: 2 MiB, another rank 1 segments: 1 MiB");
}

TEST(AgreementOnIntent, NamesAFewOfManySegments) {
  for (const size_t segments : {8, 9}) {
    std::vector<Intent> intents(2, Intent{.call = CollectiveCall::kCreate});
    intents[0].segments.assign(segments, 2 << 20);
    intents[1].segments = {4 << 20};
    std::string names = "2 MiB";
    for (int more = 1; more < 8; ++more) names += ", 2 MiB";
    if (segments == 9) names += ", ...";
    ExpectDisagreement(intents, "ranks disagree on the pool's segments: rank 1 has 1 segments: 4 MiB, another rank " +
                                    std::to_string(segments) + " segments: " + names);
  }
}

// A sequence of allocations of these sizes.
std::vector<engine::SequenceEntry> Allocating(const std::vector<uint64_t>& bytes) {
  engine::SequenceLog log;
  std::vector<engine::SequenceEntry> calls;
  for (const uint64_t one : bytes) {
    log.Append(engine::SequenceCall::kAllocate, one);
    calls.push_back(*log.Entry(log.count() - 1));
  }
  return calls;
}

Intent After(const std::vector<engine::SequenceEntry>& calls) {
  Intent intent = Reserving(4096);
  intent.sequence_count = calls.size();
  intent.sequence_hash = calls.empty() ? 0 : calls.back().hash_after;
  return intent;
}

constexpr char kSequences[] = "the sequences of calls differ, so blocks are at different offsets: ";

TEST(AgreementOnIntent, NamesTheFirstDifferingCall) {
  const std::vector<engine::SequenceEntry> usual = Allocating({1, 2, 4});
  const std::vector<engine::SequenceEntry> other = Allocating({1, 3, 4});
  ExpectDisagreement(
      {After(usual), After(usual), After(other)},
      std::string(kSequences) + "rank 0 made allocate 2 bytes (call 1), rank 2 made allocate 3 bytes (call 1)",
      {History(usual), History(usual), History(other)});
}

TEST(AgreementOnIntent, NamesTheExtraCallOfARank) {
  const std::vector<engine::SequenceEntry> usual = Allocating({1});
  const std::vector<engine::SequenceEntry> more = Allocating({1, 2});
  const std::string made_also = " also made allocate 2 bytes (call 1)";
  ExpectDisagreement({After(usual), After(more)}, std::string(kSequences) + "rank 1" + made_also,
                     {History(usual), History(more)});
  ExpectDisagreement({After(more), After(usual)}, std::string(kSequences) + "rank 0" + made_also,
                     {History(more), History(usual)});
}

TEST(AgreementOnIntent, SaysWhereTheDifferenceIsTooOldToName) {
  const std::vector<engine::SequenceEntry> calls = Allocating({1});
  Intent other = After(calls);
  ++other.sequence_hash;
  ExpectDisagreement({After(calls), other},
                     std::string(kSequences) + "the first difference is older than the calls that are kept",
                     {History(calls), History(calls)});
}

TEST(AgreementOnIntent, ADifferenceThatOneRankKnowsReachesAll) {
  std::vector<Intent> intents(3, Reserving(4096));
  intents[1].divergence = Status(StatusCode::kDisagreement, "they differ");
  intents[2].call = CollectiveCall::kClose;  // its error adds nothing new
  ExpectDisagreement(intents, "they differ");
}

TEST(AgreementOnIntent, ACloseEndsADivergedPoolWhereAllRanksKnow) {
  std::vector<Intent> intents(2, Intent{.call = CollectiveCall::kClose, .sequence_count = 7});
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
    ForEachRank(2, [&](AgreementChannel& channel) {
      Intent mine = Reserving(4096);
      mine.sequence_count = static_cast<uint64_t>(channel.rank());
      if (heard_before && channel.rank() == 1) mine.divergence = Status(StatusCode::kDisagreement, "they differ");
      const CallVerdict verdict = AgreeAlone(channel, mine);
      EXPECT_EQ(verdict.failure.code(), StatusCode::kDisagreement);
      EXPECT_TRUE(verdict.diverged);
    });
  }
  ForEachRank(2, [](AgreementChannel& channel) {
    const CallVerdict verdict = AgreeAlone(channel, Reserving(channel.rank() == 0 ? 4096 : 8192));
    EXPECT_EQ(verdict.failure.code(), StatusCode::kDisagreement);
    EXPECT_FALSE(verdict.diverged);
  });
}

TEST(AgreementOnIntent, RefusesUnreadableMessages) {
  ForEachRank(2, [](AgreementChannel& channel) {
    const Status status = channel.rank() == 0 ? AgreeOnIntent(channel, Reserving(4096)).status()
                                              : channel.Decide("what is this", "reserve", {}).status();
    if (channel.rank() != 0) return;
    ExpectFailure(status, StatusCode::kDisagreement, "rank 1 sent an unreadable intent");
  });
}

TEST(AgreementOnIntent, ARefusalReachesAllRanks) {
  ForEachRank(2, [](AgreementChannel& channel) {
    Intent mine{.call = CollectiveCall::kCreate};
    if (channel.rank() == 1) mine.readiness = Status(StatusCode::kInvalidArgument, "no device 9");
    const Status status = channel.rank() == 1 ? TellRefusal({&channel}, mine) : AgreeOnIntent(channel, mine).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "rank 1 cannot create: no device 9");
  });
}

TEST(AgreementOnOutcome, IsOkWhereEveryRankSucceeded) {
  ForEachRank(3, [](AgreementChannel& channel) { EXPECT_TRUE(AgreeOnOutcome(channel, Status(), "making").ok()); });
}

TEST(AgreementOnOutcome, IsTheFailureOfTheLowestRank) {
  ForEachRank(3, [](AgreementChannel& channel) {
    const Status mine =
        channel.rank() == 0 ? Status() : Status(StatusCode::kOutOfMemory, "as rank " + std::to_string(channel.rank()));
    const Status status = AgreeOnOutcome(channel, mine, "making a segment");
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(status.message(), "making a segment failed on rank 1: as rank 1");
  });
}

TEST(AgreementOnOutcome, RefusesUnreadableMessages) {
  ForEachRank(2, [](AgreementChannel& channel) {
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
