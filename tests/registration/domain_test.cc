// Ranks tell each other about their communicators, and get a verdict. The tests need no driver.
#include "src/library/registration/domain.h"

#include <gtest/gtest.h>

#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

DomainReport Null() { return {}; }
DomainReport New(int rank, int ranks) { return {.passed = true, .rank = rank, .ranks = ranks}; }
DomainReport Known(uint64_t number) { return {.passed = true, .number = number, .ranks = 1}; }
DomainReport Holding(std::vector<uint64_t> held, DomainReport report = {}) {
  report.held = std::move(held);
  return report;
}

void ExpectDisagreement(const Status& status, const std::string& fragment) {
  ExpectFailure(status, StatusCode::kDisagreement, fragment);
}

// Keeps and then judges what the ranks of a home send when they have met.
class Recording : public AgreementChannel {
 public:
  Recording(int rank, int ranks) : AgreementChannel(rank, ranks) {}
  void Break(const Status&) override {}
  Result<std::string> Decide(const std::string& mine, const std::string&, const Decider& decide) override {
    if (contents.empty()) {
      sent = mine;
      return Status(StatusCode::kRemoteFailure, "only recorded");
    }
    return decide(contents);
  }
  std::string sent;
  std::vector<std::string> contents;
};

std::string SentBy(int rank, const Result<Members>& met, int ranks) {
  Recording channel(rank, ranks);
  DomainTable unused(ranks);
  EXPECT_FALSE(AgreeOnMembers(channel, met, unused).ok());
  return channel.sent;
}

// The result for `rank` where the ranks met these.
Result<std::optional<uint64_t>> NumberOf(int rank, const std::vector<Result<Members>>& met) {
  const int ranks = static_cast<int>(met.size());
  Recording channel(rank, ranks);
  for (int other = 0; other < ranks; ++other) {
    channel.contents.push_back(SentBy(other, met[static_cast<size_t>(other)], ranks));
  }
  DomainTable table(ranks);
  return AgreeOnMembers(channel, met[static_cast<size_t>(rank)], table);
}

TEST(Domain, WindowsComeBackInOneOrderOnTheRanksThatHaveTheirCommunicator) {
  const DomainReport in_home{.returns = {{0, 7}}};
  const auto in_both = [](uint64_t order) { return DomainReport{.returns = {{0, 7}, {2, order}}}; };
  EXPECT_TRUE(CheckSameReturns({in_home, in_both(8), in_both(8), Null()}).ok());
  ExpectDisagreement(CheckSameReturns({in_home, in_both(8), in_both(8), in_both(9)}),
                     "NCCL has placed windows of registration 2 (ranks 1, 2, 3) otherwise on rank 3 than on rank 1");
  ExpectDisagreement(CheckSameReturns({{.returns = {{0, 6}}}, in_home}),
                     "NCCL has placed windows of home otherwise on rank 1 than on rank 0");
}

TEST(Domain, ReportsSurviveTheWire) {
  const DomainReport report = Holding({0, 3}, New(1, 4));
  const auto decoded = Decode<CallIntents>(Encode(CallIntents{{{.report = report}, {.report = Null()}}}), 0);
  const DomainReport& first = decoded.value().pools.front().report;
  EXPECT_EQ(first.held, report.held);
  EXPECT_TRUE(first.passed);
  EXPECT_FALSE(first.number);
  EXPECT_EQ(first.rank, 1);
  EXPECT_EQ(first.ranks, 4);
  EXPECT_FALSE(decoded->pools.back().report.passed);
}

TEST(Domain, ImpossibleReportsNameTheirRank) {
  for (const DomainReport& report : {New(2, 2), New(-1, 2)}) {
    ExpectDisagreement(Decode<CallIntents>(Encode(CallIntents{{{.report = report}}}), 1).status(),
                       "rank 1 sent an unreadable intent");
  }
}

TEST(Domain, SplitGroupsOfOneSizeAreComplete) {
  const DomainTable table(4);
  EXPECT_TRUE(table.CheckPassedByAll({New(0, 2), New(1, 2), New(0, 2), New(1, 2)}).ok());
  EXPECT_TRUE(table.CheckPassedByAll({New(0, 1), New(2, 3), New(0, 3), New(1, 3)}).ok());
  EXPECT_TRUE(table.CheckPassedByAll({Null(), Null(), Null(), Null()}).ok());
}

TEST(Domain, AMissingMemberIsFoundBeforeAnyCall) {
  const DomainTable table(4);
  ExpectDisagreement(table.CheckPassedByAll({New(0, 3), New(1, 3), Null(), Null()}),
                     "rank 0 of home passed one of 3 ranks as its rank 0, and nobody passed one as its rank 2; ranks "
                     "2, 3 passed null");
  ExpectDisagreement(
      table.CheckPassedByAll({New(0, 2), New(1, 2), New(0, 2), Null()}),
      "ranks 0, 2 of home passed one of 2 ranks as its rank 0, and only rank 1 passed one as its rank 1");
  ExpectDisagreement(table.CheckPassedByAll({New(0, 8), New(1, 8), New(2, 8), New(3, 8)}), "as its rank 4");
}

TEST(Domain, AKnownCommunicatorIsPassedByAllItsMembers) {
  DomainTable table(3);
  table.AddHome();
  ASSERT_EQ(table.Add({{0, 2}}), 1u);
  EXPECT_TRUE(table.CheckPassedByAll({Known(1), Null(), Known(1)}).ok());
  ExpectDisagreement(table.CheckPassedByAll({Known(1), Null(), Null()}),
                     "registration 1 (ranks 0, 2), rank 2 passed null");
  ExpectDisagreement(table.CheckPassedByAll({Known(1), Null(), New(0, 1)}),
                     "rank 2 passed a new communicator of 1 ranks");
  ExpectDisagreement(table.CheckPassedByAll({Known(0), Known(0), Null()}), "some passed home, rank 2 passed null");
}

TEST(Domain, NumbersFollowTheLowestRanks) {
  DomainTable table(4);
  EXPECT_EQ(table.Add({{3, 0}, {1, 2}}), 1u);
  EXPECT_EQ(table.Add({{1}}), 5u) << "above all numbers that it gave before";
  EXPECT_EQ(table.next(), 9u);
  EXPECT_TRUE(table.CheckHeld({Holding({1}), Holding({2, 6}), Holding({2}), Holding({1})}).ok())
      << "0 and 3 have number 1, 1 and 2 number 2, and 1 alone number 6";
}

TEST(Domain, ARegistrationThatOnlySomeAbandonedIsNamed) {
  DomainTable table(3);
  table.AddHome();
  table.Add({{0, 2}});
  EXPECT_TRUE(table.CheckHeld({Holding({0, 1}), Holding({0}), Holding({0, 1})}).ok());
  ExpectDisagreement(table.CheckHeld({Holding({0, 1}), Holding({0}), Holding({0})}),
                     "registration 1 (ranks 0, 2) was abandoned on rank 2 and not on rank 0");
  EXPECT_TRUE(table.CheckHeld({Holding({0}), Holding({0}), Holding({0})}).ok());  // all have it: the table forgets it
  EXPECT_TRUE(table.CheckHeld({Holding({}), Holding({}), Holding({})}).ok());
}

TEST(Domain, NamesTheFirstOfManyRanks) {
  for (const int ranks : {17, 18}) {
    DomainTable table(ranks);
    table.AddHome();
    std::vector<DomainReport> reports(static_cast<size_t>(ranks));
    reports[0] = Holding({0});  // the others have abandoned it
    const std::string names = "abandoned on ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16";
    ExpectDisagreement(table.CheckHeld(reports), names + (ranks == 17 ? " and not on" : " and 1 others and not on"));
  }
}

TEST(Domain, ADeregistrationNeedsAllRanksThatHoldTheCommunicator) {
  DomainTable table(3);
  table.Add({{0, 2}});
  EXPECT_TRUE(table.CheckPassedByHolders({Holding({1}, Known(1)), Null(), Holding({1}, Known(1))}).ok());
  EXPECT_TRUE(table.CheckPassedByHolders({Holding({1}, Known(1)), Null(), Null()}).ok());  // abandoned on rank 2
  EXPECT_TRUE(table.CheckPassedByHolders({New(0, 2), Null(), Null()}).ok());  // nobody has it: nothing to do
  ExpectDisagreement(table.CheckPassedByHolders({Holding({1}, Known(1)), Null(), Holding({1})}), "rank 2 passed null");
}

TEST(Domain, AFailedRegisterNamesWhatEachRankPassed) {
  const DomainTable table(4);
  // Ranks 0 and 1 have one communicator, 2 and 3 another; rank 2 first names a third one, which it leads.
  ExpectDisagreement(
      table.CheckPassedByAll({New(0, 2), New(0, 2), New(0, 2), New(1, 2)}),
      "ranks 0, 1, 2 of home passed one of 2 ranks as its rank 0, and only rank 3 passed one as its rank "
      "1. One of ranks 0, 1, 2 passed another than its members did");
}

TEST(Domain, FindingsCountTheReportsOfAllRanks) {
  const Findings none = FindingsOf({Null(), Known(3)});
  EXPECT_FALSE(none.any_new);
  EXPECT_FALSE(none.home);
  const Findings both = FindingsOf({New(0, 2), Known(0)});
  EXPECT_TRUE(both.any_new);
  EXPECT_TRUE(both.home);
  EXPECT_EQ(NumbersPassed({Known(3), Null(), Known(1), Known(3), New(0, 1)}), (std::vector<uint64_t>{1, 3}));
}

TEST(Meeting, NumbersTheCommunicatorsOfRanksThatMet) {
  const std::vector<Result<Members>> met = {Members{3, 0}, Members{1, 2}, Members{1, 2}, Members{3, 0}, Members{}};
  for (const int rank : {0, 3}) EXPECT_EQ(NumberOf(rank, met).value(), 1u);
  for (const int rank : {1, 2}) EXPECT_EQ(NumberOf(rank, met).value(), 2u);
  EXPECT_EQ(NumberOf(4, met).value(), std::nullopt);
}

TEST(Meeting, OfRanksThatMetOthersIsADisagreement) {
  ExpectDisagreement(NumberOf(0, {Members{0, 1}, Members{}}).status(), "rank 0 met rank 1 on the communicator");
  ExpectDisagreement(NumberOf(1, {Members{0, 7}, Members{}}).status(), "rank 0 met rank 7 on the communicator");
  ExpectDisagreement(NumberOf(0, {Members{0}, Members{0, 1}}).status(), "and that rank met others");
  ExpectDisagreement(NumberOf(0, {Members{}, Members{0, 1}}).status(), "rank 1 met rank 0");
}

TEST(Meeting, RefusesUnreadableMessages) {
  Recording channel(0, 2);
  channel.contents = {SentBy(0, Members{}, 2), "?"};
  DomainTable table(2);
  ExpectDisagreement(AgreeOnMembers(channel, Members{}, table).status(), "rank 1 sent an unreadable");
}

// A rank's message does not grow with the communicator, except for its leader's.
TEST(Meeting, OnlyTheLeaderSendsTheMembers) {
  Members all(100);
  for (int rank = 0; rank < 100; ++rank) all[static_cast<size_t>(rank)] = rank;
  EXPECT_GT(SentBy(0, all, 100).size(), 100u);
  EXPECT_LT(SentBy(1, all, 100).size(), 80u);
}

TEST(Meeting, ARankThatMetNobodyIsADisagreement) {
  ExpectDisagreement(NumberOf(1, {Status(StatusCode::kDeadlineExceeded, "nobody came"), Members{}}).status(),
                     "failed on rank 0: nobody came");
  EXPECT_EQ(NumberOf(0, {Status(StatusCode::kCommunicatorError, "lost"), Members{}}).status().code(),
            StatusCode::kCommunicatorError);
}

}  // namespace
}  // namespace commpool::internal
