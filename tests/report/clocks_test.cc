#include "src/report/clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace commpool::internal::report {
namespace {

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

ReportModel Aligned(std::vector<RankModel> ranks) {
  ReportModel report;
  report.ranks = std::move(ranks);
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
  ReportModel report;
  report.ranks = {RankOf(0, {{7, 1, 0, 100}, {7, 2, 200, kUnknown}}),
                  RankOf(1, {{7, 1, 50, 100}, {7, 2, 250, kUnknown}})};
  report.without_recording = {2, 3};
  AlignClocks(report);
  FindLatecomers(report);
  const std::vector<EventModel>& events = report.ranks[0].events;
  EXPECT_EQ(events[0].waited_for, 1);
  EXPECT_EQ(events[1].waited_for, -1);
  EXPECT_EQ(events[1].text, "; ranks 2, 3 left no recording and may not have come");
}

TEST(ClocksTest, ShowWhoNeverCame) {
  std::vector<RankModel> ranks = {RankOf(0, {{7, 1, 0, 100}, {7, 2, 200, kUnknown}}),
                                  RankOf(1, {{7, 1, 0, 100}, {7, 2, 250, kUnknown}}), RankOf(2, {{7, 1, 0, 100}})};
  const ReportModel report = Aligned(std::move(ranks));
  EXPECT_EQ(report.ranks[0].events[1].waited_for, 2);
  EXPECT_EQ(report.ranks[0].events[1].text, "; rank 2 did not come");
}

}  // namespace
}  // namespace commpool::internal::report
