#include <gtest/gtest.h>

#include "src/library/registration/rank_admission.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

// The introductions of ranks on these hosts; rank 0 listens at `address`.
std::vector<Introduction> Of(const std::vector<uint64_t>& hosts, const char* address, const char* why) {
  std::vector<Introduction> all(hosts.size());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    all[rank].rank = rank;
    all[rank].host = hosts[rank];
  }
  all[0].address = address;
  all[0].why = why;
  return all;
}

TEST(CheckReach, AcceptsLoopbackForRanksOfOneHost) {
  EXPECT_TRUE(CheckReach(Of({7, 7, 7}, "127.0.0.1:4000", "no interface fits")).ok());
}

TEST(CheckReach, AcceptsRanksOfEveryHostAtAnAddressThatOthersReach) {
  EXPECT_TRUE(CheckReach(Of({7, 8, 9}, "10.77.0.1:4000", "")).ok());
}

TEST(CheckReach, RefusesLoopbackForRanksOfOtherHostsWithTheReasonAndTheAdvice) {
  const Status status = CheckReach(Of({7, 7, 8, 9}, "127.0.0.1:4000", "no interface fits"));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  for (const char* part : {"127.0.0.1:4000", "ranks 2, 3 run elsewhere", "no interface fits", "COMMPOOL_INTERFACE"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " is missing: " << status.message();
  }
}

TEST(CheckReach, NamesAFewOfManyRanks) {
  std::vector<uint64_t> hosts(1000, 8);
  hosts[0] = 7;
  const Status status = CheckReach(Of(hosts, "127.0.0.1:4000", "no interface fits"));
  EXPECT_NE(status.message().find("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 991 others"), std::string::npos);
  hosts.resize(9);
  const std::string of_eight = CheckReach(Of(hosts, "127.0.0.1:4000", "no interface fits")).message();
  EXPECT_NE(of_eight.find("ranks 1, 2, 3, 4, 5, 6, 7, 8 run elsewhere"), std::string::npos) << of_eight;
  hosts.resize(2);
  const std::string of_one = CheckReach(Of(hosts, "127.0.0.1:4000", "no interface fits")).message();
  EXPECT_NE(of_one.find("and rank 1 run elsewhere"), std::string::npos) << of_one;
}

TEST(CheckReach, TellsEveryRankWhyRankZeroCannotListen) {
  ExpectFailure(CheckReach(Of({7, 8}, "", "listening on 10.1.1.1: Cannot assign requested address")),
                StatusCode::kRemoteFailure, "Cannot assign requested address");
}

TEST(Introduce, RankZeroListensWithAKeyOfItsOwn) {
  std::optional<Listener> first, second;
  const Introduction one = Introduce(0, first);
  const Introduction other = Introduce(0, second);
  ASSERT_TRUE(first);
  EXPECT_EQ(one.address, first->address());
  EXPECT_NE(one.key, other.key);
}

TEST(Introduce, TheOthersSayWhereTheyAre) {
  std::optional<Listener> listener;
  const Introduction mine = Introduce(3, listener);
  EXPECT_FALSE(listener);
  EXPECT_EQ(mine.rank, 3U);
  EXPECT_EQ(mine.host, Introduce(0, listener).host);
}

TEST(PaddedIntroductions, AreOfOneSizeAndSurviveTheWire) {
  Introduction mine{.address = "10.77.0.1:4000", .why = "why", .key = {1, 2}, .rank = 3, .host = 4, .link = 5};
  const std::string bytes = Pad(mine);
  EXPECT_EQ(bytes.size(), kIntroductionBytes);
  const Result<std::vector<Introduction>> all = DecodePadded({bytes, bytes});
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->back().address, mine.address);
  EXPECT_EQ(all->back().key, mine.key);
  EXPECT_EQ(all->back().link, mine.link);
  mine.why = std::string(2 * kIntroductionBytes, 'x');
  const Result<std::vector<Introduction>> cut = DecodePadded({Pad(mine)});
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  EXPECT_GT(cut->front().why.size(), kIntroductionBytes / 2) << "as much of a reason as there is room for";
  EXPECT_EQ(Pad(mine).size(), kIntroductionBytes);
}

TEST(PaddedIntroductions, OfAnotherVersionAreRefusedByName) {
  std::string other = Pad({});
  ++other[offsetof(WireHello, version)];
  EXPECT_EQ(DecodePadded({Pad({}), other}).status().message(),
            "rank 1 speaks version 6, rank 0 version 5: do all ranks run the same build of commpool?");
  EXPECT_EQ(DecodePadded({Pad({}), std::string(kIntroductionBytes, '\0')}).status().message(),
            "rank 1 sent an unreadable introduction: do all ranks run the same build of commpool?");
  std::string with_more = Pad({});
  with_more.back() = 'x';
  EXPECT_EQ(DecodePadded({with_more}).status().code(), StatusCode::kDisagreement);
}

}  // namespace
}  // namespace commpool::internal
