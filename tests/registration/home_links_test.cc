#include "src/library/registration/home_links.h"

#include <map>

#include "tests/registration/joined.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {
namespace {

class HomeChannel : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    for (int rank = 0; rank < DeviceCountOfTests(); ++rank) links_[rank];
  }

  Result<std::unique_ptr<AgreementChannel>> Open(const Rank& rank, uint64_t deadline_ms = 20000) {
    Result<Communicator> home = DescribeCommunicator(driver(), rank.communicator);
    if (!home.ok()) return home.status();
    return links_[rank.number].Open(driver(), *home, deadline_ms, unanswered_);
  }

  std::map<int, HomeLinks> links_;  // one for each rank, as if they were processes
  UnansweredGathers unanswered_;
};

TEST_F(HomeChannel, OfTheSameHomeShareALink) {
  COMMPOOL_REQUIRE_DEVICES(2);
  RankGroup group(2);
  group.ForEach([&](Rank& rank) {
    const Communicator home = DescribeCommunicator(driver(), rank.communicator).value();
    HomeLinks& links = links_[rank.number];
    EXPECT_EQ(links.Find(home), nullptr);
    std::unique_ptr<AgreementChannel> first = Open(rank).value();
    const std::shared_ptr<HomeLink> link = links.Find(home);
    const std::unique_ptr<AgreementChannel> second = Open(rank).value();
    EXPECT_EQ(links.Find(home), link);
    EXPECT_EQ(link->next_channel(), 3u);
    EXPECT_TRUE(JoinOver(*second, "second", "reserve").ok());
    EXPECT_TRUE(JoinOver(*first, "first", "reserve").ok());
  });
  for (int rank = 0; rank < 2; ++rank) {
    const Communicator home = DescribeCommunicator(driver(), group[rank].communicator).value();
    EXPECT_EQ(links_[rank].Find(home), nullptr);  // no pool uses it any more
  }
}

// As if a communicator got the address of a destroyed one, on some ranks.
TEST_F(HomeChannel, IsOfANewLinkWhereNotAllRanksHaveTheOldOne) {
  COMMPOOL_REQUIRE_DEVICES(2);
  RankGroup group(2);
  group.ForEach([&](Rank& rank) {
    const Communicator home = DescribeCommunicator(driver(), rank.communicator).value();
    const std::unique_ptr<AgreementChannel> first = Open(rank).value();
    const std::shared_ptr<HomeLink> old = links_[rank.number].Find(home);
    if (rank.number == 1) links_[1].Keep(home, nullptr);
    const std::unique_ptr<AgreementChannel> second = Open(rank).value();
    EXPECT_NE(links_[rank.number].Find(home), old);
    EXPECT_TRUE(JoinOver(*second, "second", "reserve").ok());
  });
}

TEST_F(HomeChannel, OfOneRankCallsNoNccl) {
  RankGroup group(1);
  const uint64_t gathers = CallCount("ncclAllGather");
  ExpectOk(group.Run([&](Rank& rank) { return Open(rank).status(); }));
  EXPECT_EQ(CallCount("ncclAllGather"), gathers);
}

TEST_F(HomeChannel, ConnectsEveryRank) {
  COMMPOOL_REQUIRE_DEVICES(2);
  RankGroup group(DeviceCountOfTests());
  ExpectOk(group.Run([&](Rank& rank) {
    Result<std::unique_ptr<AgreementChannel>> channel = Open(rank);
    if (!channel.ok()) return channel.status();
    std::string all;
    for (int number = 0; number < rank.ranks; ++number) all += "[" + std::to_string(number) + "]";
    const std::string mine = std::to_string(rank.number);
    EXPECT_EQ(JoinOver(**channel, mine, "reserve").value(), all);
    return Status();
  }));
}

TEST_F(HomeChannel, LeavesNothingBehindWhereItCannotBegin) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  RankGroup group(2);
  const Fault faults[] = {{.call = "cuMemAlloc", .result = CUDA_ERROR_OUT_OF_MEMORY, .count = 2},
                          {.call = "cuStreamCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .count = 2}};
  for (const Fault& fault : faults) {
    const InjectedFault on_all(fault);
    ExpectFailure(group.Run([&](Rank& rank) { return Open(rank).status(); }), StatusCode::kOutOfMemory,
                  std::string(fault.call));
  }
}

TEST_F(HomeChannel, FailsWhereTheAllGatherFails) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  RankGroup group(2);
  const InjectedFault on_all({.call = "ncclAllGather", .result = ncclSystemError, .count = 2});
  ExpectFailure(group.Run([&](Rank& rank) { return Open(rank).status(); }), StatusCode::kCommunicatorError,
                "ncclAllGather");
  for (int rank = 0; rank < 2; ++rank) {  // its scratch memory goes back once the copy into it is done
    const ContextGuard current(driver(), group[rank].context);
    EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  unanswered_.Release();
}

}  // namespace
}  // namespace commpool::internal::testing
