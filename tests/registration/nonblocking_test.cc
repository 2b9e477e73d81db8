// Nonblocking communicators (config.blocking = 0): registration polls every call until its end.
#include "tests/registration/nonblocking_ranks.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class Nonblocking : public SymmetricTest {
 protected:
  std::vector<ncclComm_t> Connect() { return ConnectNonblocking(group()); }
};

TEST_F(Nonblocking, AHomeServesEveryCollectiveCall) {
  std::vector<ncclComm_t> home = Connect();
  CreateAndReserve(2 * kMiB, [&](const Rank& rank, PoolConfiguration& configuration) {
    configuration.home = home[static_cast<size_t>(rank.number)];
  });
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Trim(0));
  ExpectOk(Close());
  group().Destroy(home);
}

TEST_F(Nonblocking, AFurtherCommunicatorIsMetRegisteredAndLeft) {
  CreateAndReserve(2 * kMiB);
  std::vector<ncclComm_t> second = Connect();
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(second[static_cast<size_t>(rank.number)]); }));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(second[static_cast<size_t>(rank.number)]); }));
  group().Destroy(second);
}

}  // namespace
}  // namespace commpool::internal::testing
