#include "src/library/registration/communicator.h"

#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {
namespace {

class Communicators : public DriverTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_NCCL(); }
};

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
  RankGroup group(1);
  for (const auto end : {driver().nccl.ncclCommDestroy, driver().nccl.ncclCommAbort}) {
    const std::vector<ncclComm_t> ended = group.ConnectFrom(0);
    EXPECT_EQ(end(ended[0]), ncclSuccess);
    ExpectFailure(DescribeCommunicator(driver(), ended[0]).status(), StatusCode::kCommunicatorError,
                  "ncclCommGetAsyncError");
    static_cast<void>(TakeReports());
  }
}

TEST_F(Communicators, ThatFailedAreErrors) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  RankGroup group(1);
  for (const char* call : {"ncclCommGetAsyncError", "ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice"}) {
    const InjectedFault fault({.call = call, .result = ncclRemoteError});
    ExpectFailure(DescribeCommunicator(driver(), group[0].communicator).status(), StatusCode::kCommunicatorError, call);
  }
}

TEST_F(Communicators, AreAwaitedUntilTheyHaveFinished) {
  RankGroup group(1);
  const Communicator communicator = DescribeCommunicator(driver(), group[0].communicator).value();
  const auto await = [&](ncclResult_t result) {
    return AwaitCommunicator(driver(), communicator, result, "ncclCommRegister", 4096, 1000);
  };
  ExpectOk({await(ncclSuccess), await(ncclInProgress)});
  ExpectFailure(await(ncclInvalidArgument), StatusCode::kCommunicatorError, "ncclCommRegister");
}

TEST_F(Communicators, AreAwaitedNoLongerThanTheDeadline) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  RankGroup group(1);
  const Communicator communicator = DescribeCommunicator(driver(), group[0].communicator).value();
  const InjectedFault never({.call = "ncclCommGetAsyncError", .result = ncclInProgress, .count = 1 << 30});
  ExpectFailure(AwaitCommunicator(driver(), communicator, ncclInProgress, "ncclCommWindowRegister", 4096, 20),
                StatusCode::kDeadlineExceeded, "ncclCommWindowRegister did not finish within 20 ms");
}

TEST_F(Communicators, AreAwaitedUntilARankIsKnownToBeLost) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  RankGroup group(1);
  Communicator communicator = DescribeCommunicator(driver(), group[0].communicator).value();
  const auto lost = std::make_shared<LostRanks>();
  communicator.lost = lost;
  lost->Note(2, "its connection ended");
  const InjectedFault never({.call = "ncclCommGetAsyncError", .result = ncclInProgress, .count = 1 << 30});
  const Status status =
      AwaitCommunicator(driver(), communicator, ncclInProgress, "ncclCommWindowRegister", 4096, 600'000);
  ExpectFailure(status, StatusCode::kRemoteFailure, "ncclCommWindowRegister cannot finish: rank 2 was lost ");
}

}  // namespace
}  // namespace commpool::internal::testing
