// The violations that `commpool_stress ranks` finds: records as processes would make them, with one change in each.
#include <gtest/gtest.h>

#include "tools/stress/ranks/judge.h"

namespace commpool::cli::stress_ranks {
namespace {

constexpr uint64_t kDeadlineMs = 1000;
constexpr int64_t kMs = 1'000'000;

class StressRanksJudge : public testing::Test {
 protected:
  StressRanksJudge() {
    schedule_.ranks = 3;
    schedule_.second = Second::kGrown;  // of all ranks
    schedule_.pools = {Home::kWorld};
    schedule_.steps = {{.action = Action::kCreate}, {.action = Action::kReserve, .bytes = 1024}};
    records_.resize(3);
    for (RankRecord& record : records_) {
      record.complete = true;
      record.wait_status = 0;
      Return(record, 0, StatusCode::kOk, "");
      Return(record, 1, StatusCode::kOk, "");
    }
  }

  static void Return(RankRecord& record, size_t step, StatusCode code, const std::string& message) {
    const auto begin = static_cast<int64_t>(100 * step) * kMs;
    record.calls[step] = {.begin_ns = begin, .end_ns = begin + kMs, .code = code, .state = "1/1", .message = message};
  }

  // Rank 2 is killed in step 1, and the others say `message`.
  void KillRank2(StatusCode code, const std::string& message) {
    schedule_.faults = {{.point = Point::kFrame, .kind = Kind::kKill, .victim = 2, .step = 1}};
    records_[2].faults = {{.point = Point::kFrame, .at_ns = 100 * kMs}};
    records_[2].complete = false;
    records_[2].wait_status = 9;
    records_[2].calls[1].end_ns.reset();
    for (int rank = 0; rank < 2; ++rank) Return(records_[static_cast<size_t>(rank)], 1, code, message);
  }

  std::string Verdict() const {
    std::string all;
    for (const std::string& line : Judge(schedule_, records_, kDeadlineMs)) all += line + "\n";
    return all;
  }

  testing::AssertionResult Finds(const std::string& words) const {
    const bool found = Verdict().find(words) != std::string::npos;
    return (found ? testing::AssertionSuccess() : testing::AssertionFailure()) << words << " in: " << Verdict();
  }

  Schedule schedule_;
  std::vector<RankRecord> records_;
};

TEST_F(StressRanksJudge, FindsNothingInASoundRun) { EXPECT_EQ(Verdict(), ""); }

TEST_F(StressRanksJudge, FindsNothingWhereTheLostRankIsNamed) {
  KillRank2(StatusCode::kRemoteFailure, "reserve: rank 0 of 3 could not agree; missing: rank 2: the peer closed");
  EXPECT_EQ(Verdict(), "");
}

TEST_F(StressRanksJudge, FindsTheNameOfAHealthyRank) {
  KillRank2(StatusCode::kRemoteFailure, "reserve: missing: rank 1: the peer closed");
  EXPECT_TRUE(Finds("rank 0 names the healthy rank 1 in step 1 (reserve of 1024 bytes in pool 0)"));
  EXPECT_TRUE(Finds("rank 0 names none of the faulty ranks (2)"));
}

TEST_F(StressRanksJudge, FindsAnErrorThatNamesNobody) {
  KillRank2(StatusCode::kDeadlineExceeded, "reserve: somebody is missing");
  EXPECT_TRUE(Finds("rank 1 names none of the faulty ranks (2)"));
}

TEST_F(StressRanksJudge, FindsACallThatSucceedsOnSomeRanksOnly) {
  KillRank2(StatusCode::kRemoteFailure, "missing: rank 2");
  Return(records_[0], 1, StatusCode::kOk, "");
  EXPECT_TRUE(Finds("rank 0 and rank 1 differ after step 1"));
}

TEST_F(StressRanksJudge, ForgivesThatWhereTheDecidingRankWent) {
  KillRank2(StatusCode::kRemoteFailure, "missing: rank 0");
  std::swap(records_[0], records_[2]);
  schedule_.faults.front().victim = 0;
  Return(records_[1], 1, StatusCode::kOk, "");
  EXPECT_EQ(Verdict(), "");
}

TEST_F(StressRanksJudge, FindsUnequalStates) {
  records_[1].calls[1].state = "2/1";
  EXPECT_TRUE(Finds("rank 0 and rank 1 differ after step 1 (reserve of 1024 bytes in pool 0): 1/1 and 2/1"));
}

TEST_F(StressRanksJudge, FindsACallThatTakesLongerThanItsDeadlineAndTwoSeconds) {
  records_[1].calls[1].end_ns = records_[1].calls[1].begin_ns + 3000 * kMs;
  EXPECT_EQ(Verdict(), "");
  records_[1].calls[1].end_ns = records_[1].calls[1].begin_ns + 3001 * kMs;
  EXPECT_TRUE(Finds("rank 1 takes 3001 ms for step 1"));
}

TEST_F(StressRanksJudge, CountsFromTheAbortOfABlockingCommunicator) {
  KillRank2(StatusCode::kRemoteFailure, "missing: rank 2");
  for (int rank = 0; rank < 2; ++rank) {
    RankRecord& record = records_[static_cast<size_t>(rank)];
    record.aborted_ns = record.calls[1].begin_ns + 1500 * kMs;
    record.calls[1].end_ns = *record.aborted_ns + 2000 * kMs;
  }
  EXPECT_EQ(Verdict(), "");
  records_[0].calls[1].end_ns = *records_[0].aborted_ns + 2001 * kMs;
  EXPECT_TRUE(Finds("rank 0 takes 2001 ms after its abort"));
}

TEST_F(StressRanksJudge, FindsACallThatNeverReturns) {
  records_[0].calls[1].end_ns.reset();
  EXPECT_TRUE(Finds("rank 0 never returns from step 1"));
}

TEST_F(StressRanksJudge, FindsAFailureWithoutAFault) {
  for (RankRecord& record : records_) Return(record, 1, StatusCode::kInternal, "rank 2 is odd");
  EXPECT_TRUE(Finds("though no rank has a fault by then"));
}

TEST_F(StressRanksJudge, FindsASuccessAfterADeath) {
  KillRank2(StatusCode::kOk, "");
  schedule_.faults.front().step = 0;
  EXPECT_TRUE(Finds("rank 0 succeeds in step 1 (reserve of 1024 bytes in pool 0) after a kill"));
}

TEST_F(StressRanksJudge, FindsProcessesThatDoNotEndOrEndBadly) {
  records_[0].wait_status.reset();
  records_[1].wait_status = 11;
  records_[2].wait_status = 4 << 8;
  records_[2].complete = false;
  EXPECT_EQ(Verdict(), "rank 0 does not end\nrank 1 ends by signal 11\nrank 2 ends early, code 4\n");
}

TEST_F(StressRanksJudge, FindsWhatIsLeft) {
  records_[1].left = {"mapping of 65536 bytes", "stream 9"};
  EXPECT_EQ(Verdict(), "rank 1 leaves 2 things behind, the first of them mapping of 65536 bytes\n");
}

TEST_F(StressRanksJudge, LeavesItsAddressesToARankThatClosedAlone) {
  records_[1].left = {"reserved addresses at 0x7f0000000000 of 65536 bytes"};
  EXPECT_EQ(Verdict(), "rank 1 leaves 1 things behind, the first of them " + records_[1].left.front() + "\n");
  records_[1].calls[kFirstOfRecovery] = records_[1].calls.begin()->second;
  EXPECT_EQ(Verdict(), "");
}

TEST(NamedRanks, LeaveOutTheSpeaker) {
  EXPECT_EQ(NamedRanks("rank 2 of 4 waited; missing: rank 1: closed"), std::set<int>({1}));
  EXPECT_EQ(NamedRanks("ranks 1, 3 and 12 did not come; rank 0 is late"), std::set<int>({0, 1, 3, 12}));
  EXPECT_EQ(NamedRanks("these ranks did not connect to 10.77.0.1:4711: 1 3 (no answer)"), std::set<int>({1, 3}));
  EXPECT_EQ(NamedRanks("4 ranks, none of them known"), std::set<int>());
}

TEST(Records, AreReadAsTheyWereWritten) {
  RankRecord record;
  EXPECT_TRUE(Note(BeginLine(3), record));
  EXPECT_TRUE(Note(EndLine(3, Status(StatusCode::kRemoteFailure, "two\nlines"), "7/1"), record));
  EXPECT_TRUE(Note(FaultLine(Point::kVerdict), record));
  EXPECT_TRUE(Note(LeftLine("a stream"), record));
  EXPECT_TRUE(Note(CompleteLine(), record));
  EXPECT_FALSE(Note("id world 00ff", record));
  const CallRecord& call = record.calls.at(3);
  EXPECT_EQ(call.code, StatusCode::kRemoteFailure);
  EXPECT_EQ(call.state, "7/1");
  EXPECT_EQ(call.message, "two lines");
  EXPECT_GE(*call.end_ns, call.begin_ns);
  EXPECT_EQ(record.faults.at(0).point, Point::kVerdict);
  EXPECT_EQ(record.left, std::vector<std::string>({"a stream"}));
  EXPECT_TRUE(record.complete);
}

TEST(Schedules, FollowFromSeedAndNumberAlone) {
  for (uint64_t number = 0; number < 50; ++number) {
    const Schedule first = MakeSchedule(7, number, 5);
    const Schedule again = MakeSchedule(7, number, 5);
    EXPECT_EQ(Describe(first), Describe(again));
    ASSERT_EQ(first.steps.size(), again.steps.size());
    for (size_t step = 0; step < first.steps.size(); ++step) {
      EXPECT_EQ(Describe(first.steps[step]), Describe(again.steps[step]));
    }
  }
}

TEST(Schedules, TryEachKindOfFaultAtEachOfItsPoints) {
  std::set<std::pair<Point, Kind>> tried;
  for (uint64_t number = 0; number < 2000; ++number) {
    for (const Fault& fault : MakeSchedule(1, number, 2 + static_cast<int>(number % 7)).faults) {
      EXPECT_TRUE(Happens(fault.kind, fault.point)) << Describe(fault);
      tried.insert({fault.point, fault.kind});
    }
  }
  for (const Point point : kPoints) {
    for (const Kind kind : kKinds) EXPECT_EQ(tried.count({point, kind}) == 1, Happens(kind, point));
  }
}

}  // namespace
}  // namespace commpool::cli::stress_ranks
