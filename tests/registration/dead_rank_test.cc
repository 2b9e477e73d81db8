// Ranks are processes. One dies before a collective call: the others notice, and name it.
#include "tests/registration/forked_ranks.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kDead = 2;

// One rank's life. Exits with 0 where reserve failed in the right way.
[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id) {
  const Driver& driver = *SharedDriver();
  const PrimaryContext context = PrimaryContext::Retain(driver, number).value();
  const ContextGuard current(driver, context);
  const ncclComm_t communicator = ConnectForkedRank(driver, number, kRanks, pipe_of_id);

  Runtime runtime(SharedDriver());
  PoolConfiguration configuration;
  configuration.backing.placement.device = number;
  configuration.home = communicator;
  configuration.deadline_ms = 2000;
  Result<PoolHandle> created = runtime.CreatePool(configuration);
  if (!created.ok()) _exit(5);
  if (number == kDead) _exit(0);
  Pool& pool = *runtime.pools().Find(*created).value();
  const Status status = pool.mode().Reserve(2 * kMiB);
  const bool named = status.message().find("rank 2 was lost ") != std::string::npos;
  const bool expected = status.code() == StatusCode::kRemoteFailure && named;
  if (!expected) std::fprintf(stderr, "rank %d: %s\n", number, status.message().c_str());
  _exit(expected && pool.Statistics().reserved_bytes.current == 0 ? 0 : 1);
}

TEST(DeadRank, IsNamedByTheOthers) {
  const std::vector<int> states = RunForkedRanks(kRanks, LiveAsRank);
  for (size_t rank = 0; rank < states.size(); ++rank) {
    EXPECT_TRUE(EndedWell(states[rank])) << "rank " << rank << ": " << states[rank];
  }
}

}  // namespace
}  // namespace commpool::internal::testing
