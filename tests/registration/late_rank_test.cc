// Ranks stay away from a collective call, or leave: the others end within the deadline and name them.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class LateRank : public SymmetricTest {
 protected:
  Statuses CreateWithShortDeadline() {
    return Create([](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = 1000; });
  }
  // The other ranks' results of a reserve that the last rank does not make.
  Statuses ReserveWithoutTheLast() {
    Statuses statuses =
        Run([&](Rank& rank) { return rank.number == last() ? Status() : PoolOf(rank).mode().Reserve(2 * kMiB); });
    statuses.pop_back();
    return statuses;
  }
};

TEST_F(LateRank, IsNamedAndThePoolStaysBroken) {
  ExpectOk(CreateWithShortDeadline());
  ExpectFailure(ReserveWithoutTheLast(), StatusCode::kDeadlineExceeded, "rank " + std::to_string(last()) + ": ");
  EXPECT_EQ(ReservedBytes(0), 0u);
  ExpectFailure(PoolOf(group()[0]).Close(), StatusCode::kDeadlineExceeded, "an earlier call of the ranks failed");
  DestroyPools();  // the pool holds nothing
}

// A call after the communicator's end releases what the all-gather used.
TEST_F(LateRank, ThatMakesNoPoolCostsNoMemoryOnceTheCommunicatorIsAborted) {
  COMMPOOL_REQUIRE_EMULATOR("its leaks are looked for");
  const std::vector<std::string> before = EmulatorLeaks();
  const std::vector<ncclComm_t> home = group().ConnectFrom(0);
  ExpectFailure(Run([&](Rank& rank) {
                  if (rank.number == last()) return Status(StatusCode::kDeadlineExceeded, "not every rank creates");
                  PoolConfiguration configuration = Configured(rank);
                  configuration.home = home[static_cast<size_t>(rank.number)];
                  configuration.deadline_ms = 300;
                  return runtime().CreatePool(configuration).status();
                }),
                StatusCode::kDeadlineExceeded, "not every rank creates");
  EXPECT_GT(EmulatorLeaks().size(), before.size()) << "NCCL's kernels wait, and use it";
  for (const ncclComm_t communicator : home) EXPECT_EQ(driver().nccl.ncclCommAbort(communicator), ncclSuccess);
  ExpectOk(Create());
  ExpectOk(Close());
}

TEST_F(LateRank, ThatDestroyedItsPoolIsNamedAtOnce) {
  ExpectOk(Create());
  ReleasePoolOf(last());
  ExpectFailure(ReserveWithoutTheLast(), StatusCode::kRemoteFailure, "rank " + std::to_string(last()) + ": ");
  DestroyPools();
}

}  // namespace
}  // namespace commpool::internal::testing
