// A rank dies after its message to rank 0, in every round of a call. The others end the call alike and have equal
// memory, whether or not rank 0 had begun to send its verdict. The next call fails on all and names the dead rank.
#include <sys/socket.h>

#include "tests/registration/forked_rank.h"

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

// A survivor's report about the call in which the rank died.
struct Account {
  bool succeeded = false;
  uint64_t reserved = 0;
  uint64_t registered = 0;
  uint64_t pending = 0;

  friend bool operator==(const Account&, const Account&) = default;
};

enum class Call { kReserve, kTrim, kReclaim };

Status Make(Pool& pool, Call call) {
  if (call == Call::kReserve) return pool.mode().Reserve(8 * kMiB);
  return call == Call::kTrim ? pool.Trim(0).status() : pool.mode().Reclaim().status();
}

Account AccountOf(const Pool& pool, const Status& status) {
  const commpool_statistics statistics = pool.Statistics();
  return {.succeeded = status.ok(),
          .reserved = statistics.reserved_bytes.current,
          .registered = statistics.registered_segments,
          .pending = statistics.pending_bytes};
}

[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id, const Pipe& accounts, Call call, int round) {
  ForkedRank rank(number, kRanks, pipe_of_id);
  PoolConfiguration configuration = rank.Configured();
  configuration.deadline_ms = 10000;
  Pool& pool = *rank.Create(configuration);
  // A segment to keep and one to release, with a block whose free must take effect.
  pool.mode().Reserve(2 * kMiB).or_throw();
  const CUdeviceptr block = pool.Allocate(2 * kMiB, KeyOfStream(nullptr, number)).value();
  ExpectOk({pool.mode().Reserve(4 * kMiB), pool.Free(block)});
  if (number == kDead) messages_to_live = round;
  const Account account = AccountOf(pool, Make(pool, call));
  EXPECT_NE(number, kDead) << "it sends fewer messages than " << round;
  const Status next = pool.mode().AsSymmetric()->Verify();
  ExpectFailure(next, next.code(), "rank 2 was lost");
  ThrowUnless(write(accounts[1], &account, sizeof(account)) == sizeof(account), "the account is told");
  EndForkedRank();
}

void ExpectAlike(Call call, int round) {
  Pipe accounts = {};
  ASSERT_EQ(pipe(accounts.data()), 0);
  ExpectEnded(
      RunForkedRanks(
          kRanks, [&](int number, const Pipe& pipe_of_id) { LiveAsRank(number, pipe_of_id, accounts, call, round); }),
      kDead);
  ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  std::vector<Account> told(kRanks - 1);
  for (Account& account : told) {
    ASSERT_EQ(read(accounts[0], &account, sizeof(account)), static_cast<ssize_t>(sizeof(account)));
    EXPECT_EQ(account, told[0]);
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
