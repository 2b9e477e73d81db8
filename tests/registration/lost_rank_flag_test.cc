// Ranks are processes. One dies between collective calls: the others see it before they launch, and hear once whether a
// collective on the pool's windows may wait for it.
#include <atomic>
#include <csignal>

#include "tests/registration/forked_ranks.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kDead = 2;

// Called as on_lost_rank, on a thread of the library.
struct Heard {
  Pipe wake = {};
  std::atomic<int> calls{0};
  std::atomic<int> rank{-1};
  std::atomic<int> in_flight{-1};

  static void Hear(int rank, int in_flight, void* context) {
    auto& heard = *static_cast<Heard*>(context);
    heard.rank = rank;
    heard.in_flight = in_flight;
    ++heard.calls;
    if (write(heard.wake[1], "x", 1) != 1) _exit(8);
    throw 42;  // the exception stops in the library
  }
};

enum class Moment { kBetweenCollectives, kInsideAWindowCollective };

bool RecoversAlone(Pool& pool, const Driver& driver, ncclComm_t communicator) {
  if (!pool.mode().AbandonCommunicator(communicator, CommunicatorLife::kAlive).ok()) return false;
  if (driver.nccl.ncclCommAbort(communicator) != ncclSuccess) return false;
  return pool.Close().ok() && pool.Statistics().reserved_bytes.current == 0;
}

// The others are inside their collective before the rank dies, which never comes to it.
void DieAfterTheOthers(const Pipe& launched, Moment moment) {
  char byte = 0;
  for (int other = 1; other < kRanks && moment == Moment::kInsideAWindowCollective; ++other) {
    if (read(launched[0], &byte, 1) != 1) _exit(8);
  }
  raise(SIGKILL);
}

// One rank's life. Exits with 0 where it heard the right things.
[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id, const Pipe& launched, Moment moment) {
  const Driver& driver = *SharedDriver();
  const PrimaryContext context = PrimaryContext::Retain(driver, number).value();
  const ContextGuard current(driver, context);
  const ncclComm_t communicator = ConnectForkedRank(driver, number, kRanks, pipe_of_id);
  CUstream stream = nullptr;
  if (driver.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) _exit(5);

  Runtime runtime(SharedDriver());
  Heard heard;
  if (pipe(heard.wake.data()) != 0) _exit(5);
  PoolConfiguration configuration;
  configuration.backing.placement.device = number;
  configuration.home = communicator;
  configuration.on_lost_rank = Heard::Hear;
  configuration.lost_rank_context = &heard;
  Result<PoolHandle> created = runtime.CreatePool(configuration);
  if (!created.ok()) _exit(6);
  Pool& pool = *runtime.pools().Find(*created).value();
  if (!pool.mode().Reserve(2 * kMiB).ok() || pool.mode().AsSymmetric()->LostRank() != -1) _exit(7);
  if (!pool.mode().AsSymmetric()->Verify().ok()) _exit(7);  // no rank dies before all have asked
  const CUdeviceptr block = pool.Allocate(kMiB, KeyOfStream(stream, number)).value();
  if (number == kDead) DieAfterTheOthers(launched, moment);
  void* const data = reinterpret_cast<void*>(block);
  if (moment == Moment::kInsideAWindowCollective) {
    driver.nccl.ncclAllReduce(data, data, 1024, ncclFloat, ncclSum, communicator, stream);
    if (write(launched[1], "x", 1) != 1) _exit(8);
  }
  char byte = 0;
  if (read(heard.wake[0], &byte, 1) != 1) _exit(8);
  const int expected = moment == Moment::kInsideAWindowCollective ? 1 : 0;
  const bool right = heard.rank == kDead && heard.in_flight == expected && heard.calls == 1 &&
                     pool.mode().AsSymmetric()->LostRank() == kDead;
  if (!right) {
    std::fprintf(stderr, "rank %d heard of rank %d, in flight %d, %d times\n", number, heard.rank.load(),
                 heard.in_flight.load(), heard.calls.load());
  }
  if (moment == Moment::kInsideAWindowCollective) _exit(right ? 0 : 1);
  const bool recovers = pool.Free(block).ok() && RecoversAlone(pool, driver, communicator);
  _exit(right && recovers ? 0 : 1);
}

void ExpectToldOnce(Moment moment) {
  Pipe launched = {};
  ASSERT_EQ(pipe(launched.data()), 0);
  const std::vector<int> states = RunForkedRanks(
      kRanks, [&](int number, const Pipe& pipe_of_id) { LiveAsRank(number, pipe_of_id, launched, moment); });
  for (const int end : launched) close(end);
  for (int rank = 0; rank < kRanks; ++rank) {
    const int state = states[static_cast<size_t>(rank)];
    EXPECT_TRUE(rank == kDead ? WIFSIGNALED(state) : EndedWell(state)) << "rank " << rank << ": " << state;
  }
}

TEST(LostRankFlag, IsSeenByTheOthersWhoCloseAlone) { ExpectToldOnce(Moment::kBetweenCollectives); }

TEST(LostRankFlag, SaysThatACollectiveOnWindowsMayWaitForTheRank) { ExpectToldOnce(Moment::kInsideAWindowCollective); }

}  // namespace
}  // namespace commpool::internal::testing
