// Ranks as processes, of which one dies before a collective call: the others hear of it and name it.
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kDead = 2;

// One rank's life. Its exit code is 0 where reserve failed as it should have.
[[noreturn]] void LiveAsRank(int number, const std::array<int, 2>& pipe_of_id) {
  const Driver& driver = *SharedDriver();
  ncclUniqueId id = {};
  if (number == 0) {
    if (driver.nccl.ncclGetUniqueId(&id) != ncclSuccess) _exit(2);
    for (int other = 1; other < kRanks; ++other) {
      if (write(pipe_of_id[1], &id, sizeof(id)) != sizeof(id)) _exit(3);
    }
  } else if (read(pipe_of_id[0], &id, sizeof(id)) != sizeof(id)) {
    _exit(3);
  }
  const PrimaryContext context = PrimaryContext::Retain(driver, number).value();
  const ContextGuard current(driver, context);
  ncclComm_t communicator = nullptr;
  if (driver.nccl.ncclCommInitRank(&communicator, kRanks, id, number) != ncclSuccess) _exit(4);

  Runtime runtime(SharedDriver());
  PoolConfiguration configuration;
  configuration.backing.placement.device = number;
  configuration.home = communicator;
  configuration.deadline_ms = 2000;
  Result<PoolHandle> created = runtime.CreatePool(configuration);
  if (!created.ok()) _exit(5);
  if (number == kDead) _exit(0);
  Pool& pool = *runtime.pools().Find(*created).value();
  const Status status = pool.Reserve(2 * kMiB);
  const bool named = status.message().find("rank 2 was lost ") != std::string::npos;
  const bool expected = status.code() == StatusCode::kRemoteFailure && named;
  if (!expected) std::fprintf(stderr, "rank %d: %s\n", number, status.message().c_str());
  _exit(expected && pool.Statistics().counters.reserved_bytes.current == 0 ? 0 : 1);
}

// Forked before this process opens a driver, which does not survive a fork.
TEST(DeadRank, IsNamedByTheOthers) {
  std::array<int, 2> pipe_of_id = {};
  ASSERT_EQ(pipe(pipe_of_id.data()), 0);
  std::vector<pid_t> children;
  for (int number = 0; number < kRanks; ++number) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) LiveAsRank(number, pipe_of_id);
    children.push_back(child);
  }
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int state = 0;
    EXPECT_EQ(waitpid(children[rank], &state, 0), children[rank]);
    EXPECT_TRUE(WIFEXITED(state)) << "rank " << rank;
    EXPECT_EQ(WEXITSTATUS(state), 0) << "rank " << rank;
  }
  for (const int end : pipe_of_id) close(end);
}

}  // namespace
}  // namespace commpool::internal::testing
