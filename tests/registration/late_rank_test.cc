// Ranks that stay away from a collective call, or leave: the others end within the deadline and name them.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class LateRank : public SymmetricTest {
 protected:
  Statuses CreateWithShortDeadline() {
    return Create([](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = 1000; });
  }
  // What the other ranks get from a reserve that the last one does not make.
  Statuses ReserveWithoutTheLast() {
    Statuses statuses =
        Run([&](Rank& rank) { return rank.number == last() ? Status() : PoolOf(rank).Reserve(2 * kMiB); });
    statuses.pop_back();
    return statuses;
  }
};

TEST_F(LateRank, IsNamedAndThePoolStaysBroken) {
  ExpectOk(CreateWithShortDeadline());
  ExpectFailure(ReserveWithoutTheLast(), StatusCode::kDeadlineExceeded, "rank " + std::to_string(last()) + ": ");
  EXPECT_EQ(ReservedBytes(0), 0u);
  ExpectFailure(PoolOf(group()[0]).Close(), StatusCode::kDeadlineExceeded, "the channel failed before");
  DestroyPools();  // it holds nothing
}

TEST_F(LateRank, ThatDestroyedItsPoolIsNamedAtOnce) {
  ExpectOk(Create());
  ReleasePoolOf(last());
  ExpectFailure(ReserveWithoutTheLast(), StatusCode::kRemoteFailure, "rank " + std::to_string(last()) + ": ");
  DestroyPools();
}

}  // namespace
}  // namespace commpool::internal::testing
