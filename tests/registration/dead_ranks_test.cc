// Ranks are processes. One dies before a collective call, or while a pool falls asleep, sleeps or wakes: the others
// notice, name it, keep the contents of their blocks, and continue without it.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>

#include "tests/registration/forked_rank.h"
#include "tests/registration/nothing_unseen.h"

namespace commpool::internal::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kDead = 2;
constexpr uint64_t kBytes = 4096;

void ExpectNamed(const Status& status) { ExpectFailure(status, StatusCode::kRemoteFailure, "rank 2 was lost "); }

// From now on this process dies in a call of the function.
template <typename Answer, typename... Arguments>
void MakeDeadly(Answer (*&function)(Arguments...)) {
  function = [](Arguments...) -> Answer {
    std::raise(SIGKILL);
    return Answer{};
  };
}

TEST(DeadRank, IsNamedByTheOthers) {
  ExpectEnded(RunForkedRanks(kRanks, [](int number, const Pipe& pipe_of_id) {
    ForkedRank rank(number, kRanks, pipe_of_id);
    PoolConfiguration configuration = rank.Configured();
    configuration.deadline_ms = 2000;
    const std::shared_ptr<Pool> pool = rank.Create(configuration);
    if (number == kDead) EndForkedRank();
    ExpectNamed(pool->mode().Reserve(2 * kMiB));
    EXPECT_EQ(pool->Statistics().reserved_bytes.current, 0u);
    EndForkedRank();
  }));
}

TEST(DeadRank, IsNamedByTheOthersThatMeetItOnAnotherCommunicator) {
  ExpectEnded(RunForkedRanks(kRanks,
                             [](int number, const Pipe& pipe_of_id) {
                               ForkedRank rank(number, kRanks, pipe_of_id);
                               const std::shared_ptr<Pool> pool = rank.Create(rank.Configured());
                               ncclComm_t const second = ConnectForkedRank(*rank.driver, number, kRanks, pipe_of_id);
                               if (number == kDead) MakeDeadly(rank.driver->nccl.ncclAllGather);
                               ExpectNamed(pool->mode().RegisterWith(second));
                               EndForkedRank();
                             }),
              kDead);
}

// Where the rank dies. `alive_after_sleep`: it falls asleep with the others, and dies later.
struct Death {
  const char* name;
  bool alive_after_sleep;
  std::function<void(Driver&)> prepare;
};

std::vector<Death> Deaths() {
  return {{"keeping", false, [](Driver& driver) { MakeDeadly(driver.cuda.cuMemcpyAsync); }},
          {"deregistering", false, [](Driver& driver) { MakeDeadly(driver.nccl.ncclCommWindowDeregister); }},
          {"unmapping", false, [](Driver& driver) { MakeDeadly(driver.cuda.cuMemUnmap); }},
          {"asleep", true, [](Driver&) { std::raise(SIGKILL); }},
          {"making", true, [](Driver& driver) { MakeDeadly(driver.cuda.cuMemCreate); }},
          {"restoring", true, [](Driver& driver) { MakeDeadly(driver.cuda.cuMemcpyAsync); }}};
}

class Life {
 public:
  Life(int number, const Pipe& pipe_of_id)
      : pipe_of_id_(pipe_of_id), rank_(number, kRanks, pipe_of_id), pool_(rank_.Create(rank_.Configured())) {
    pool_->mode().Reserve(2 * kMiB).or_throw();
    block_ = pool_->Allocate(kBytes, stream_).value();
    EXPECT_EQ(rank_.driver->cuda.cuMemcpyHtoD(block_, held_.data(), kBytes), CUDA_SUCCESS);
  }

  [[noreturn]] void Die(const Death& death) {
    if (death.alive_after_sleep) SleepAlone(*pool_, {.keep = Keep::kHost}).or_throw();
    death.prepare(*rank_.driver);
    static_cast<void>(death.alive_after_sleep ? WakeAlone(*pool_) : SleepAlone(*pool_, {.keep = Keep::kHost}));
    ADD_FAILURE() << "it should have died " << death.name;
    EndForkedRank();
  }

  [[noreturn]] void Survive(const Death& death) {
    const Status slept = SleepAlone(*pool_, {.keep = Keep::kHost});
    if (death.alive_after_sleep) slept.or_throw();
    ExpectNamed(death.alive_after_sleep ? WakeAlone(*pool_) : slept);
    EXPECT_EQ(pool_->basis().life.asleep(), death.alive_after_sleep);
    EXPECT_EQ(pool_->basis().life.open(), !death.alive_after_sleep);
    pool_->mode().AbandonCommunicator(rank_.communicator, CommunicatorLife::kAlive).or_throw();
    rank_.Abort();
    if (death.alive_after_sleep) {
      const std::byte* const kept = pool_->segments().kept.Find(block_, kBytes).value();
      EXPECT_EQ(std::memcmp(kept, held_.data(), kBytes), 0) << "what was kept can be read";
      WakeAlone(*pool_).or_throw();  // without the others
    }
    std::string found(kBytes, '\0');
    EXPECT_EQ(rank_.driver->cuda.cuMemcpyDtoH(found.data(), block_, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(found, held_);
    pool_->Free(block_).or_throw();
    GoOn();
    EndForkedRank();
  }

 private:
  void GoOn() {
    rank_.communicator = ConnectForkedRank(*rank_.driver, rank_.number, kRanks - 1, pipe_of_id_);
    pool_->mode().AsSymmetric()->Rehome(rank_.communicator).or_throw();
    const CUdeviceptr block = pool_->Allocate(kBytes, stream_).value();
    EXPECT_TRUE(rank_.runtime.windows().Find(rank_.communicator, block)) << "blocks lie in windows again";
    ExpectOk({pool_->Free(block), SleepAlone(*pool_, {}), WakeAlone(*pool_), pool_->Close()});
    EXPECT_EQ(pool_->Statistics().reserved_bytes.current, 0u) << "all is given back";
  }

  const Pipe& pipe_of_id_;
  ForkedRank rank_;
  const StreamKey stream_ = KeyOfStream(nullptr, rank_.number);
  const std::string held_ = std::string(kBytes, static_cast<char>('a' + rank_.number));
  std::shared_ptr<Pool> pool_;
  CUdeviceptr block_ = 0;
};

TEST(DeadSleeper, LetsTheOtherRanksEndInOrder) {
  for (const Death& death : Deaths()) {
    SCOPED_TRACE(std::string("a death while ") + death.name);
    ExpectEnded(RunForkedRanks(kRanks,
                               [&](int number, const Pipe& pipe_of_id) {
                                 Life life(number, pipe_of_id);
                                 number == kDead ? life.Die(death) : life.Survive(death);
                               }),
                kDead);
  }
}

// One dies between collective calls: the others see it before they launch, and hear once whether a collective on the
// pool's windows may wait for it.

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

// The others are inside their collective before the rank dies, which never comes to it.
void DieAfterTheOthers(const Pipe& launched, Moment moment) {
  char byte = 0;
  for (int other = 1; other < kRanks && moment == Moment::kInsideAWindowCollective; ++other) {
    ThrowUnless(read(launched[0], &byte, 1) == 1, "another rank tells that it launched");
  }
  raise(SIGKILL);
}

// One rank's life.
[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id, const Pipe& launched, Moment moment) {
  const bool in_flight = moment == Moment::kInsideAWindowCollective;
  ForkedRank rank(number, kRanks, pipe_of_id);
  const NcclLibrary& nccl = rank.driver->nccl;
  CUstream stream = nullptr;
  EXPECT_EQ(rank.driver->cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Heard heard;
  ThrowUnless(pipe(heard.wake.data()) == 0, "there is a pipe");
  PoolConfiguration configuration = rank.Configured();
  configuration.on_lost_rank = Heard::Hear;
  configuration.lost_rank_context = &heard;
  Pool& pool = *rank.Create(configuration);
  pool.mode().Reserve(2 * kMiB).or_throw();
  EXPECT_EQ(pool.mode().AsSymmetric()->LostRank(), -1);
  pool.mode().AsSymmetric()->Verify().or_throw();  // no rank dies before all have asked
  const CUdeviceptr block = rank.runtime.AllocateFrom(pool.handle(), kMiB, stream).value();
  if (number == kDead) DieAfterTheOthers(launched, moment);
  void* const data = reinterpret_cast<void*>(block);
  if (in_flight) {
    nccl.ncclAllReduce(data, data, 1024, ncclFloat, ncclSum, rank.communicator, stream);
    ThrowUnless(write(launched[1], "x", 1) == 1, "it is told that this rank launched");
  }
  char byte = 0;
  ThrowUnless(read(heard.wake[0], &byte, 1) == 1, "the loss is heard of");
  EXPECT_EQ(heard.rank, kDead);
  EXPECT_EQ(heard.in_flight, in_flight ? 1 : 0);
  EXPECT_EQ(heard.calls, 1);
  EXPECT_EQ(pool.mode().AsSymmetric()->LostRank(), kDead);
  ExpectOk({rank.runtime.Free(block)});
  // The device never ends its work, so a call does not wait for it.
  const auto began = std::chrono::steady_clock::now();
  for (int time = 0; time < 2; ++time) ExpectNamed(pool.mode().Reclaim().status());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(configuration.deadline_ms / 4));
  if (in_flight) EndForkedRank();
  ExpectOk({pool.mode().AbandonCommunicator(rank.communicator, CommunicatorLife::kAlive)});
  rank.Abort();
  ExpectOk({pool.Close()});
  EXPECT_EQ(pool.Statistics().reserved_bytes.current, 0u);
  EndForkedRank();
}

void ExpectToldOnce(Moment moment) {
  Pipe launched = {};
  ASSERT_EQ(pipe(launched.data()), 0);
  ExpectEnded(RunForkedRanks(kRanks, [&](int number,
                                         const Pipe& pipe_of_id) { LiveAsRank(number, pipe_of_id, launched, moment); }),
              kDead);
  for (const int end : launched) close(end);
}

TEST(LostRankFlag, IsSeenByTheOthersWhoCloseAlone) { ExpectToldOnce(Moment::kBetweenCollectives); }

TEST(LostRankFlag, SaysThatACollectiveOnWindowsMayWaitForTheRank) { ExpectToldOnce(Moment::kInsideAWindowCollective); }

}  // namespace
}  // namespace commpool::internal::testing
