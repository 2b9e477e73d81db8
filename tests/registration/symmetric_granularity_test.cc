// granularity_bytes on symmetric pools: every rank's segments are multiples of it, and ranks must ask for the same.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

using SymmetricGranularity = SymmetricTest;

TEST_F(SymmetricGranularity, RoundsEverySegmentUp) {
  CreateAndReserve(2 * kMiB,
                   [](const Rank&, PoolConfiguration& configuration) { configuration.granularity_bytes = 8 * kMiB; });
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(ReservedBytes(rank), 8 * kMiB);
  ExpectOk(Reserve(9 * kMiB));
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(ReservedBytes(rank), 24 * kMiB);
}

TEST_F(SymmetricGranularity, IsComparedBetweenRanks) {
  const Statuses statuses = Create([&](const Rank& rank, PoolConfiguration& configuration) {
    if (rank.number == last()) configuration.granularity_bytes = 8 * kMiB;
  });
  for (const Status& status : statuses) {
    ExpectFailure(status, StatusCode::kDisagreement, "granularity: rank 0 default, rank ");
  }
}

}  // namespace
}  // namespace commpool::internal::testing
