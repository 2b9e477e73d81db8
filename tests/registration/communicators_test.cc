// Communicators tell of themselves and are awaited, and those that are homes have channels.
#include <map>

#include "src/library/registration/communicator.h"
#include "tests/registration/link_fixture.h"
#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {
namespace {

class Communicators : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    group_.emplace(1);
    alone_ = DescribeCommunicator(driver(), (*group_)[0].communicator).value();
  }
  void TearDown() override { group_.reset(); }
  // Of the one rank's communicator, which is still at work.
  Status AwaitWindow(uint64_t deadline_ms) const {
    const InjectedFault never({.call = "ncclCommGetAsyncError", .result = ncclInProgress, .count = 1 << 30});
    return AwaitCommunicator(driver(), alone_, ncclInProgress, "ncclCommWindowRegister", 4096, deadline_ms);
  }

  std::optional<RankGroup> group_;
  Communicator alone_;
};

using CommunicatorsUnderFaults = UnderFaults<Communicators>;

TEST_F(Communicators, TellTheirRankSizeAndDevice) {
  COMMPOOL_REQUIRE_DEVICES(2);
  RankGroup group(2);
  const Communicator second = DescribeCommunicator(driver(), group[1].communicator).value();
  EXPECT_EQ(second.handle, group[1].communicator);
  EXPECT_EQ(second.rank, 1);
  EXPECT_EQ(second.ranks, 2);
  EXPECT_EQ(second.device, 1);
}

TEST_F(Communicators, MustNotBeNull) {
  ExpectFailure(DescribeCommunicator(driver(), nullptr).status(), StatusCode::kInvalidArgument, "null");
}

// NCCL cannot distinguish these from live ones. The emulator can, and reports their use.
TEST_F(Communicators, ThatHaveEndedAreErrors) {
  COMMPOOL_REQUIRE_EMULATOR("a communicator is used after its end");
  for (const auto end : {driver().nccl.ncclCommDestroy, driver().nccl.ncclCommAbort}) {
    const std::vector<ncclComm_t> ended = group_->ConnectFrom(0);
    EXPECT_EQ(end(ended[0]), ncclSuccess);
    ExpectFailure(DescribeCommunicator(driver(), ended[0]).status(), StatusCode::kCommunicatorError,
                  "ncclCommGetAsyncError");
    static_cast<void>(TakeReports());
  }
}

TEST_F(CommunicatorsUnderFaults, ThatFailedAreErrors) {
  for (const char* call : {"ncclCommGetAsyncError", "ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice"}) {
    const InjectedFault fault({.call = call, .result = ncclRemoteError});
    ExpectFailure(DescribeCommunicator(driver(), alone_.handle).status(), StatusCode::kCommunicatorError, call);
  }
}

TEST_F(Communicators, AreAwaitedUntilTheyHaveFinished) {
  const auto await = [&](ncclResult_t result) {
    return AwaitCommunicator(driver(), alone_, result, "ncclCommRegister", 4096, 1000);
  };
  ExpectOk({await(ncclSuccess), await(ncclInProgress)});
  ExpectFailure(await(ncclInvalidArgument), StatusCode::kCommunicatorError, "ncclCommRegister");
}

TEST_F(CommunicatorsUnderFaults, AreAwaitedNoLongerThanTheDeadline) {
  ExpectFailure(AwaitWindow(20), StatusCode::kDeadlineExceeded, "ncclCommWindowRegister did not finish within 20 ms");
}

TEST_F(CommunicatorsUnderFaults, AreAwaitedUntilARankIsKnownToBeLost) {
  const auto lost = std::make_shared<LostRanks>();
  alone_.lost = lost;
  lost->Note(2, "its connection ended");
  ExpectFailure(AwaitWindow(600'000), StatusCode::kRemoteFailure,
                "ncclCommWindowRegister cannot finish: rank 2 was lost ");
}

// The channel of a home.

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

  Statuses OpenAll(RankGroup& group) {
    return group.Run([&](Rank& rank) { return Open(rank).status(); });
  }

  std::map<int, HomeLinks> links_;  // one for each rank, as if they were processes
  UnansweredGathers unanswered_;
};

using HomeChannelUnderFaults = UnderFaults<HomeChannel>;

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
  ExpectOk(OpenAll(group));
  EXPECT_EQ(CallCount("ncclAllGather"), gathers);
}

TEST_F(HomeChannel, ConnectsEveryRank) {
  COMMPOOL_REQUIRE_DEVICES(2);
  RankGroup group(DeviceCountOfTests());
  group.ForEach([&](Rank& rank) {
    const std::unique_ptr<AgreementChannel> channel = Open(rank).value();
    std::string all;
    for (int number = 0; number < rank.ranks; ++number) all += "[" + std::to_string(number) + "]";
    EXPECT_EQ(JoinOver(*channel, std::to_string(rank.number)).value(), all);
  });
}

TEST_F(HomeChannelUnderFaults, LeavesNothingBehindWhereItCannotBegin) {
  RankGroup group(2);
  for (const char* const call : {"cuMemAlloc", "cuStreamCreate"}) {
    const InjectedFault on_all({.call = call, .result = CUDA_ERROR_OUT_OF_MEMORY, .count = 2});
    ExpectFailure(OpenAll(group), StatusCode::kOutOfMemory, call);
  }
}

TEST_F(HomeChannelUnderFaults, FailsWhereTheAllGatherFails) {
  RankGroup group(2);
  const InjectedFault on_all({.call = "ncclAllGather", .result = ncclSystemError, .count = 2});
  ExpectFailure(OpenAll(group), StatusCode::kCommunicatorError, "ncclAllGather");
  for (int rank = 0; rank < 2; ++rank) {  // its scratch memory goes back once the copy into it is done
    const ContextGuard current(driver(), group[rank].context);
    EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  unanswered_.Release();
}

}  // namespace
}  // namespace commpool::internal::testing
