// Programs on the shared library, each in a process of its own. A process ends without closing its pools: whatever ends
// first, it ends quietly and with its own exit code.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "commpool/pool.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/registration/forked_ranks.h"

namespace commpool::internal::testing {
namespace {

constexpr int kExpected = 7;

// What ends before the process. The rest ends with it.
enum class Ends { kNothing, kPool, kCommunicator, kPoolThenCommunicator, kCommunicatorThenPool };

// Destroyed at exit, after the objects of main().
std::optional<Pool>& PoolOfProcess() {
  static std::optional<Pool> pool;
  return pool;
}

[[noreturn]] void LiveAndExit(Ends ends) {
  const Driver& driver = *SharedDriver();
  static const PrimaryContext context = PrimaryContext::Retain(driver, 0).value();
  static const ContextGuard current(driver, context);
  ncclUniqueId id;
  ncclComm_t communicator = nullptr;
  if (driver.nccl.ncclGetUniqueId(&id) != ncclSuccess) _exit(2);
  if (driver.nccl.ncclCommInitRank(&communicator, 1, id, 0) != ncclSuccess) _exit(2);
  PoolOptions options;
  options.symmetric_across = communicator;
  PoolOfProcess().emplace(Pool::create(options).value());
  if (!PoolOfProcess()->reserve(MiB(2)).ok()) _exit(3);
  static Buffer block = PoolOfProcess()->allocate(MiB(1), nullptr).value();  // destroyed before its pool

  if (ends == Ends::kPool || ends == Ends::kPoolThenCommunicator) PoolOfProcess().reset();
  const bool end_communicator = ends != Ends::kNothing && ends != Ends::kPool;
  if (end_communicator && driver.nccl.ncclCommDestroy(communicator) != ncclSuccess) _exit(4);
  if (ends == Ends::kCommunicatorThenPool) PoolOfProcess().reset();
  std::exit(kExpected);
}

class ProcessExit : public ::testing::TestWithParam<Ends> {};

// Forked before this process opens a driver, because a driver does not survive a fork.
TEST_P(ProcessExit, NeedsNoClose) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) LiveAndExit(GetParam());
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state)) << "signal " << WTERMSIG(state);
  EXPECT_EQ(WEXITSTATUS(state), kExpected);
}

INSTANTIATE_TEST_SUITE_P(InAnyOrder, ProcessExit,
                         ::testing::Values(Ends::kNothing, Ends::kPool, Ends::kCommunicator,
                                           Ends::kPoolThenCommunicator, Ends::kCommunicatorThenPool));

// COMMPOOL_CONF is wrong on one rank: it opens nothing there, and the other ranks get the reason instead of waiting.

constexpr int kRanks = 2;

[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id) {
  if (number == 1) setenv("COMMPOOL_CONF", "limt:2MiB", 1);
  const Driver& driver = *SharedDriver();
  const PrimaryContext context = PrimaryContext::Retain(driver, number).value();
  const ContextGuard current(driver, context);
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.device = number;
  options.symmetric_across = ConnectForkedRank(driver, number, kRanks, pipe_of_id);
  options.deadline_ms = 10000;
  commpool_pool pool = 0;
  const commpool_status status = commpool_pool_create(&options, &pool);
  const std::string told = commpool_last_error();
  EXPECT_EQ(status, COMMPOOL_INVALID_ARGUMENT) << told;
  EXPECT_NE(told.find("rank 1 cannot create: COMMPOOL_CONF says limt:2MiB"), std::string::npos) << told;
  void* pointer = nullptr;
  const commpool_status alone = commpool_allocate(number, 512, nullptr, &pointer);
  EXPECT_EQ(alone, number == 1 ? COMMPOOL_INVALID_ARGUMENT : COMMPOOL_OK) << "nothing goes on with defaults";
  EndForkedRank();
}

TEST(ARefusedConfiguration, IsToldToAllRanks) { ExpectEnded(RunForkedRanks(kRanks, LiveAsRank)); }

}  // namespace
}  // namespace commpool::internal::testing
