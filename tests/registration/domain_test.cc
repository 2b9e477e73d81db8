// What ranks tell each other of communicators, and what follows, without a driver.
#include "src/registration/domain.h"

#include <gtest/gtest.h>

namespace commpool::internal {
namespace {

DomainClaim Null() { return {}; }
DomainClaim New(int rank, int ranks) { return {.passed = true, .rank = rank, .ranks = ranks}; }
DomainClaim Known(uint64_t number) { return {.passed = true, .number = number, .ranks = 1}; }
DomainClaim Holding(std::vector<uint64_t> held, DomainClaim claim = {}) {
  claim.held = std::move(held);
  return claim;
}

void ExpectDisagreement(const Status& status, const std::string& fragment) {
  EXPECT_EQ(status.code(), StatusCode::kDisagreement);
  EXPECT_NE(status.message().find(fragment), std::string::npos) << status.message();
}

class Scripted : public AgreementChannel {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  Result<std::vector<std::string>> AllGather(const std::string& mine, const std::string&) override {
    sent = mine;
    return std::vector<std::string>{mine, other.empty() ? mine : other};
  }
  std::string sent;
  std::string other;
};

TEST(Domain, ClaimsSurviveTheWire) {
  const DomainClaim claim = Holding({0, 3}, New(1, 4));
  const auto decoded = DecodeClaims({Encode(claim), Encode(Null())});
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->front().held, claim.held);
  EXPECT_TRUE(decoded->front().passed);
  EXPECT_FALSE(decoded->front().number);
  EXPECT_EQ(decoded->front().rank, 1);
  EXPECT_EQ(decoded->front().ranks, 4);
  EXPECT_FALSE(decoded->back().passed);
}

TEST(Domain, UnreadableClaimsNameTheRank) {
  ExpectDisagreement(DecodeClaims({Encode(Null()), "?"}).status(), "rank 1 sent an unreadable");
  ExpectDisagreement(DecodeClaims({Encode(New(2, 2))}).status(), "rank 0 sent an unreadable");
  ExpectDisagreement(DecodeClaims({Encode(New(-1, 2))}).status(), "rank 0 sent an unreadable");
}

TEST(Domain, SplitGroupsOfOneSizeAreComplete) {
  const DomainTable table(4);
  EXPECT_TRUE(table.CheckPassedByAll({New(0, 2), New(1, 2), New(0, 2), New(1, 2)}).ok());
  EXPECT_TRUE(table.CheckPassedByAll({New(0, 1), New(2, 3), New(0, 3), New(1, 3)}).ok());
  EXPECT_TRUE(table.CheckPassedByAll({Null(), Null(), Null(), Null()}).ok());
}

TEST(Domain, AMissingMemberIsFoundBeforeAnyCall) {
  const DomainTable table(4);
  ExpectDisagreement(
      table.CheckPassedByAll({New(0, 3), New(1, 3), Null(), Null()}),
      "it has 3 ranks, but only ranks 0, 1 of home passed one of that size: nobody passed it as its rank 2");
  ExpectDisagreement(table.CheckPassedByAll({New(0, 2), New(1, 2), New(0, 2), Null()}),
                     "2 were passed that have 2 ranks");
  ExpectDisagreement(table.CheckPassedByAll({New(0, 8), New(1, 8), New(2, 8), New(3, 8)}), "as its rank 4");
}

TEST(Domain, AKnownCommunicatorIsPassedByAllItsMembers) {
  DomainTable table(3);
  table.AddHome();
  const auto number = table.Add({{0, 2}}, 2);
  ASSERT_EQ(number, 1u);
  EXPECT_TRUE(table.CheckPassedByAll({Known(1), Null(), Known(1)}).ok());
  ExpectDisagreement(table.CheckPassedByAll({Known(1), Null(), Null()}),
                     "registration 1 (ranks 0, 2), rank 2 passed null");
  ExpectDisagreement(table.CheckPassedByAll({Known(1), Null(), New(0, 1)}),
                     "rank 2 passed a new communicator of 1 ranks");
  ExpectDisagreement(table.CheckPassedByAll({Known(0), Known(0), Null()}), "some passed home, rank 2 passed null");
}

TEST(Domain, NumbersFollowTheLowestRanks) {
  DomainTable table(4);
  EXPECT_EQ(table.Add({{3, 0}, {1, 2}}, 2), 2u);
  EXPECT_EQ(table.Add({{1}}, 2), std::nullopt);
  EXPECT_EQ(table.next(), 4u);
}

TEST(Domain, ARegistrationThatOnlySomeAbandonedIsNamed) {
  DomainTable table(3);
  table.AddHome();
  table.Add({{0, 2}}, 0);
  EXPECT_TRUE(table.CheckHeld({Holding({0, 1}), Holding({0}), Holding({0, 1})}).ok());
  ExpectDisagreement(table.CheckHeld({Holding({0, 1}), Holding({0}), Holding({0})}),
                     "registration 1 (ranks 0, 2) was abandoned on rank 2 and not on rank 0");
  EXPECT_TRUE(table.CheckHeld({Holding({0}), Holding({0}), Holding({0})}).ok());  // by all: forgotten
  EXPECT_TRUE(table.CheckHeld({Holding({}), Holding({}), Holding({})}).ok());
}

TEST(Domain, ADeregistrationIsOfAllThatHaveIt) {
  DomainTable table(3);
  table.Add({{0, 2}}, 0);
  EXPECT_TRUE(table.CheckPassedByHolders({Holding({1}, Known(1)), Null(), Holding({1}, Known(1))}).ok());
  EXPECT_TRUE(table.CheckPassedByHolders({Holding({1}, Known(1)), Null(), Null()}).ok());  // abandoned on rank 2
  EXPECT_TRUE(table.CheckPassedByHolders({New(0, 2), Null(), Null()}).ok());               // of none: nothing to do
  ExpectDisagreement(table.CheckPassedByHolders({Holding({1}, Known(1)), Null(), Holding({1})}), "rank 2 passed null");
}

TEST(Domain, RanksThatMetDrawTheSameCommunicators) {
  Scripted channel;
  const auto met = AgreeOnMembers(channel, Members{1, 0});
  ASSERT_TRUE(met.ok());
  EXPECT_EQ(*met, std::vector<Members>({{1, 0}}));
  EXPECT_EQ(AgreeOnMembers(channel, Members{}).value(), std::vector<Members>());
}

TEST(Domain, RanksThatMetOthersDisagree) {
  Scripted channel;
  ASSERT_TRUE(AgreeOnMembers(channel, Members{}).ok());
  channel.other = channel.sent;  // rank 1 met nobody
  ExpectDisagreement(AgreeOnMembers(channel, Members{0, 1}).status(), "rank 0 met ranks 0, 1");
  ExpectDisagreement(AgreeOnMembers(channel, Members{0, 7}).status(), "rank 0 met ranks 0, 7");
  channel.other = "?";
  ExpectDisagreement(AgreeOnMembers(channel, Members{}).status(), "rank 1 sent an unreadable");
}

TEST(Domain, ARankThatWaitedInVainIsADisagreement) {
  Scripted channel;
  ExpectDisagreement(AgreeOnMembers(channel, Status(StatusCode::kDeadlineExceeded, "nobody came")).status(),
                     "failed on rank 0: nobody came");
  EXPECT_EQ(AgreeOnMembers(channel, Status(StatusCode::kCommunicatorError, "lost")).status().code(),
            StatusCode::kCommunicatorError);
}

}  // namespace
}  // namespace commpool::internal
