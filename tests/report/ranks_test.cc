// What ranks have in common: their calls, and moments by which their clocks are aligned.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/report/call_comparison.h"
#include "src/report/clocks.h"

namespace commpool::internal::report {
namespace {

constexpr Channel kChannel = {7, 1};

void TakeCalls(CallComparison& calls, uint64_t first, uint64_t end, uint64_t odd = UINT64_MAX) {
  for (uint64_t number = first; number < end; ++number) {
    calls.Take(kChannel, number, "allocate", number == odd ? 1 : number * 512);
  }
}

TEST(CallComparisonTest, FindsTheFirstCallThatDiffers) {
  CallComparison calls;
  TakeCalls(calls, 0, 5000);
  TakeCalls(calls, 0, 5000, 1717);
  TakeCalls(calls, 0, 5000, 4000);
  EXPECT_EQ(calls.FirstDifference(kChannel), 1717u);
  EXPECT_EQ(calls.FirstDifference({7, 2}), std::nullopt);
}

TEST(CallComparisonTest, NeitherALaterBeginNorAnEarlierEndDiffers) {
  CallComparison calls;
  TakeCalls(calls, 100, 300);
  TakeCalls(calls, 0, 200);
  TakeCalls(calls, 250, 1000);
  EXPECT_EQ(calls.FirstDifference(kChannel), std::nullopt);
  // What the first rank did not tell is compared too.
  TakeCalls(calls, 0, 1000, 20);
  EXPECT_EQ(calls.FirstDifference(kChannel), 20u);
}

TEST(CallComparisonTest, ComparesKindsToo) {
  CallComparison calls;
  calls.Take(kChannel, 0, "allocate", 5);
  calls.Take(kChannel, 0, "free", 5);
  EXPECT_EQ(calls.FirstDifference(kChannel), 0u);
  EXPECT_EQ(DescribeCall("allocate", 65'536), "allocate 65,536 bytes");
  EXPECT_EQ(DescribeCall("free", 17), "free 17");
}

RankModel RankOf(int64_t number, std::vector<Meeting> meetings = {}) {
  RankModel rank;
  rank.rank = number;
  rank.meetings = std::move(meetings);
  rank.facts.wall_clock = 1'000'000 + static_cast<uint64_t>(number) * 50;
  for (const Meeting& meeting : rank.meetings) {
    uint64_t& last = rank.last_agreements[meeting.home];
    last = std::max(last, meeting.number);
    rank.events.push_back({.from = meeting.from, .to = meeting.to, .home = meeting.home, .number = meeting.number});
  }
  return rank;
}

ReportModel Aligned(std::vector<RankModel> ranks, std::vector<int64_t> without_recording = {}) {
  ReportModel report;
  report.ranks = std::move(ranks);
  report.without_recording = std::move(without_recording);
  AlignClocks(report);
  FindLatecomers(report);
  return report;
}

TEST(ClocksTest, AreAlignedByTheMedianOfSharedAgreements) {
  // Rank 1's clock is 1000 behind; once it was late to leave.
  const ReportModel report =
      Aligned({RankOf(0, {{7, 1, 5000, 5100}, {7, 2, 6000, 6100}, {7, 3, 7000, 7100}, {8, 1, 1, 2}}),
               RankOf(1, {{7, 3, 6000, 6101}, {7, 1, 4000, 4101}, {7, 2, 5000, 5900}, {9, 1, 1, 2}})});
  EXPECT_EQ(report.ranks[0].offset, 0);
  EXPECT_EQ(report.ranks[1].offset, 999);
  EXPECT_TRUE(report.notes.empty());
}

TEST(ClocksTest, LetNoRankLeaveBeforeTheLastHasCome) {
  const ReportModel report = Aligned({RankOf(0, {{7, 1, 100, 200}, {7, 2, 300, 400}, {7, 3, 995, 1000}}),
                                      RankOf(1, {{7, 1, 0, 150}, {7, 2, 100, 350}, {7, 3, 0, 900}})});
  for (size_t meeting = 0; meeting < 3; ++meeting) {
    const Meeting& own = report.ranks[0].meetings[meeting];
    const Meeting& other = report.ranks[1].meetings[meeting];
    EXPECT_LE(own.from, other.to + report.ranks[1].offset);
    EXPECT_LE(other.from + report.ranks[1].offset, own.to);
  }
}

TEST(ClocksTest, ReachRanksThatMetOnlyOthers) {
  const ReportModel report = Aligned(
      {RankOf(0, {{7, 1, 0, 100}}), RankOf(1, {{8, 1, 0, 300}}), RankOf(2, {{7, 1, 0, 110}, {8, 1, 200, 310}})});
  EXPECT_EQ(report.ranks[2].offset, -10);
  EXPECT_EQ(report.ranks[1].offset, 0);
  EXPECT_TRUE(report.notes.empty());
}

RankModel OnHost(const char* boot, RankModel rank) {
  rank.facts.boot = boot;
  return rank;
}

TEST(ClocksTest, AreTheSameOnOneHostWhateverAgreementsSay) {
  const ReportModel report =
      Aligned({OnHost("here", RankOf(0, {{7, 1, 0, 100}})), OnHost("here", RankOf(1, {{7, 1, 0, 900}}))});
  EXPECT_EQ(report.ranks[1].offset, 0);
}

TEST(ClocksTest, OfOneHostAreAlignedTogether) {
  const ReportModel report =
      Aligned({OnHost("here", RankOf(0, {{7, 1, 0, 100}})), OnHost("there", RankOf(1, {{7, 1, 0, 300}})),
               OnHost("there", RankOf(2, {{7, 1, 0, 350}})), OnHost("there", RankOf(3))});
  for (const size_t there : {1, 2, 3}) EXPECT_EQ(report.ranks[there].offset, -200);
  EXPECT_TRUE(report.notes.empty());
}

TEST(ClocksTest, OfHostsDoWhereRanksNeverMet) {
  const ReportModel report = Aligned({RankOf(0), RankOf(1)});
  EXPECT_EQ(report.ranks[1].offset, 50);
  EXPECT_EQ(report.notes, std::vector<std::string>{
                              "no agreement shows how the clocks of rank 0 and rank 1 differ: the wall clocks of their "
                              "hosts align them"});
}

TEST(ClocksTest, ShowWhoCameLastAndByHowMuch) {
  const ReportModel report =
      Aligned({RankOf(0, {{7, 1, 0, 1000}}), RankOf(1, {{7, 1, 900, 1000}}), RankOf(2, {{7, 1, 300, 1000}})});
  for (const RankModel& rank : report.ranks) {
    EXPECT_EQ(rank.events[0].waited_for, 1);
    EXPECT_EQ(rank.events[0].text, "; rank 1 came last, 600 ns after the others");
  }
}

TEST(ClocksTest, BlameNobodyWhoCameWhereSeveralDidNot) {
  const ReportModel report =
      Aligned({RankOf(0, {{7, 1, 0, 100}, {7, 2, 200, kUnknown}}), RankOf(1, {{7, 1, 0, 100}, {7, 2, 250, kUnknown}}),
               RankOf(2, {{7, 1, 0, 100}}), RankOf(3, {{7, 1, 0, 100}})});
  EXPECT_EQ(report.ranks[0].events[1].waited_for, -1);
  EXPECT_EQ(report.ranks[0].events[1].text, "; ranks 2, 3 did not come");
}

// Rank 2 came to the second agreement too, and its recording has lost it.
TEST(ClocksTest, BlameNobodyWhereAnArrivalIsNotKnown) {
  const ReportModel report =
      Aligned({RankOf(0, {{7, 2, 0, 1000}, {7, 3, 2000, 2100}}), RankOf(1, {{7, 2, 900, 1000}, {7, 3, 2000, 2100}}),
               RankOf(2, {{7, 3, 2000, 2100}})});
  EXPECT_EQ(report.ranks[0].events[0].waited_for, -1);
  EXPECT_EQ(report.ranks[0].events[0].text, "");
}

TEST(ClocksTest, BlameNobodyForARankWithoutARecording) {
  const ReportModel report =
      Aligned({RankOf(0, {{7, 1, 0, 100}, {7, 2, 200, kUnknown}}), RankOf(1, {{7, 1, 50, 100}, {7, 2, 250, kUnknown}})},
              {2, 3});
  const std::vector<EventModel>& events = report.ranks[0].events;
  EXPECT_EQ(events[0].waited_for, 1);
  EXPECT_EQ(events[1].waited_for, -1);
  EXPECT_EQ(events[1].text, "; ranks 2, 3 left no recording and may not have come");
}

TEST(ClocksTest, ShowWhoNeverCame) {
  const ReportModel report = Aligned({RankOf(0, {{7, 1, 0, 100}, {7, 2, 200, kUnknown}}),
                                      RankOf(1, {{7, 1, 0, 100}, {7, 2, 250, kUnknown}}), RankOf(2, {{7, 1, 0, 100}})});
  EXPECT_EQ(report.ranks[0].events[1].waited_for, 2);
  EXPECT_EQ(report.ranks[0].events[1].text, "; rank 2 did not come");
}

}  // namespace
}  // namespace commpool::internal::report
