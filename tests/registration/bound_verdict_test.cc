// A rank dies after its message to rank 0, in every round of a call. The others end the call alike and have equal
// memory, whether or not rank 0 had begun to send its verdict. The next call fails on all and names the dead rank.
#include <sys/socket.h>

#include <csignal>
#include <string>
#include <tuple>

#include "tests/registration/forked_ranks.h"
#include "tests/registration/symmetric_fixture.h"

extern "C" {
// The linker's names: the library's calls reach the first; the second is libc's function.
ssize_t WrappedSend(int socket, const void* data, size_t bytes, int flags) __asm__("__wrap_send");
ssize_t RealSend(int socket, const void* data, size_t bytes, int flags) __asm__("__real_send");
}

namespace {

thread_local int messages_to_live = -1;  // of the calling thread; -1: it stays alive

}  // namespace

ssize_t WrappedSend(int socket, const void* data, size_t bytes, int flags) {
  const ssize_t sent = RealSend(socket, data, bytes, flags);
  if (messages_to_live > 0 && --messages_to_live == 0) kill(getpid(), SIGKILL);
  return sent;
}

namespace commpool::internal::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kDead = 2;

// A survivor's report about the call in which the rank died, and about the next call.
struct Account {
  bool succeeded = false;
  uint64_t reserved = 0;
  uint64_t registered = 0;
  uint64_t pending = 0;
  bool next_names_it = false;

  auto Shared() const { return std::tuple(succeeded, reserved, registered, pending); }
};

enum class Call { kReserve, kTrim, kReclaim };

Status Make(Pool& pool, Call call) {
  switch (call) {
    case Call::kReserve:
      return pool.mode().Reserve(8 * kMiB);
    case Call::kTrim:
      return pool.Trim(0).status();
    case Call::kReclaim:
      return pool.mode().Reclaim().status();
  }
  return Status();
}

Account AccountOf(const Pool& pool, const Status& status) {
  const commpool_statistics statistics = pool.Statistics();
  return {.succeeded = status.ok(),
          .reserved = statistics.reserved_bytes.current,
          .registered = statistics.registered_segments,
          .pending = statistics.pending_bytes};
}

[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id, const Pipe& accounts, Call call, int round) {
  const Driver& driver = *SharedDriver();
  const PrimaryContext context = PrimaryContext::Retain(driver, number).value();
  const ContextGuard current(driver, context);
  PoolConfiguration configuration;
  configuration.backing.placement.device = number;
  configuration.home = ConnectForkedRank(driver, number, kRanks, pipe_of_id);
  configuration.deadline_ms = 10000;
  Runtime runtime(SharedDriver());
  Pool& pool = *runtime.pools().Find(runtime.CreatePool(configuration).value()).value();
  // A segment to keep and one to release, with a block whose free must take effect.
  if (!pool.mode().Reserve(2 * kMiB).ok()) _exit(3);
  const CUdeviceptr block = pool.Allocate(2 * kMiB, KeyOfStream(nullptr, number)).value();
  if (!pool.mode().Reserve(4 * kMiB).ok() || !pool.Free(block).ok()) _exit(4);
  if (number == kDead) messages_to_live = round;
  Account account = AccountOf(pool, Make(pool, call));
  if (number == kDead) _exit(5);
  const Status next = pool.mode().AsSymmetric()->Verify();
  account.next_names_it = !next.ok() && next.message().find("rank 2 was lost") != std::string::npos;
  if (!account.next_names_it) std::fprintf(stderr, "rank %d: %s\n", number, next.message().c_str());
  _exit(write(accounts[1], &account, sizeof(account)) == sizeof(account) ? 0 : 6);
}

void ExpectAlike(Call call, int round) {
  Pipe accounts = {};
  ASSERT_EQ(pipe(accounts.data()), 0);
  const std::vector<int> states = RunForkedRanks(
      kRanks, [&](int number, const Pipe& pipe_of_id) { LiveAsRank(number, pipe_of_id, accounts, call, round); });
  EXPECT_TRUE(WIFSIGNALED(states[kDead])) << "it sends fewer messages than " << round;
  std::vector<Account> told(kRanks - 1);
  for (Account& account : told) {
    const int rank = static_cast<int>(&account - told.data());
    ASSERT_TRUE(EndedWell(states[static_cast<size_t>(rank)])) << "rank " << rank;
    ASSERT_EQ(read(accounts[0], &account, sizeof(account)), static_cast<ssize_t>(sizeof(account)));
    EXPECT_TRUE(account.next_names_it);
    EXPECT_EQ(account.Shared(), told[0].Shared());
  }
  for (const int end : accounts) close(end);
}

// Runs in a process without a driver, because forked ranks open their own.
TEST(BoundVerdict, AReserveEndsAlikeOnTheRanksThatAreLeft) {
  for (const int round : {1, 2, 3}) ExpectAlike(Call::kReserve, round);
}

TEST(BoundVerdict, ATrimEndsAlikeOnTheRanksThatAreLeft) {
  for (const int round : {1, 2, 3}) ExpectAlike(Call::kTrim, round);
}

TEST(BoundVerdict, AReclaimEndsAlikeOnTheRanksThatAreLeft) { ExpectAlike(Call::kReclaim, 1); }

}  // namespace
}  // namespace commpool::internal::testing
