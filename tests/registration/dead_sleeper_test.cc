// Ranks are processes. One dies while a pool falls asleep, sleeps or wakes: the others notice, name it, keep the
// contents of their blocks, and continue without it.
#include <csignal>
#include <cstring>
#include <functional>
#include <string>

#include "tests/registration/forked_ranks.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kDead = 2;
constexpr uint64_t kBytes = 4096;

// From now on this process dies in a call of the function.
template <typename Answer, typename... Arguments>
void MakeDeadly(Answer (*&function)(Arguments...)) {
  function = [](Arguments...) -> Answer {
    std::raise(SIGKILL);
    return Answer{};
  };
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
      : number_(number),
        pipe_of_id_(pipe_of_id),
        driver_(std::make_shared<Driver>(*SharedDriver())),
        context_(PrimaryContext::Retain(*driver_, number).value()),
        current_(*driver_, context_),
        runtime_(driver_),
        communicator_(ConnectForkedRank(*driver_, number, kRanks, pipe_of_id)) {
    PoolConfiguration configuration;
    configuration.backing.placement.device = number;
    configuration.home = communicator_;
    pool_ = runtime_.pools().Find(runtime_.CreatePool(configuration).value()).value();
    pool_->mode().Reserve(2 * kMiB).or_throw();
    block_ = pool_->Allocate(kBytes, KeyOfStream(nullptr, number_)).value();
    const std::string held(kBytes, static_cast<char>('a' + number));
    Check(driver_->cuda.cuMemcpyHtoD(block_, held.data(), kBytes) == CUDA_SUCCESS, "the block is written");
  }

  [[noreturn]] void Die(const Death& death) {
    if (death.alive_after_sleep) SleepAlone(*pool_, {.keep = Keep::kHost}).or_throw();
    death.prepare(*driver_);
    static_cast<void>(death.alive_after_sleep ? WakeAlone(*pool_) : SleepAlone(*pool_, {.keep = Keep::kHost}));
    _exit(6);  // it should have died
  }

  [[noreturn]] void Survive(const Death& death) {
    const Status slept = SleepAlone(*pool_, {.keep = Keep::kHost});
    if (death.alive_after_sleep) {
      slept.or_throw();
      CheckNames(WakeAlone(*pool_));
      Check(pool_->basis().life.asleep(), "it sleeps on");
    } else {
      CheckNames(slept);
      Check(pool_->basis().life.open(), "it stayed awake");
    }
    pool_->mode().AbandonCommunicator(communicator_, CommunicatorLife::kAlive).or_throw();
    Check(driver_->nccl.ncclCommAbort(communicator_) == ncclSuccess, "the communicator ends");
    const std::string expected(kBytes, static_cast<char>('a' + number_));
    if (pool_->basis().life.asleep()) {
      const std::byte* const kept = pool_->segments().kept.Find(block_, kBytes).value();
      Check(std::memcmp(kept, expected.data(), kBytes) == 0, "what was kept can be read");
      WakeAlone(*pool_).or_throw();  // without the others
    }
    std::string held(kBytes, '\0');
    Check(driver_->cuda.cuMemcpyDtoH(held.data(), block_, kBytes) == CUDA_SUCCESS, "the block is read");
    Check(held == expected, "the block has what it held");
    pool_->Free(block_).or_throw();
    GoOn();
    _exit(0);
  }

 private:
  void GoOn() {
    communicator_ = ConnectForkedRank(*driver_, number_, kRanks - 1, pipe_of_id_);
    pool_->mode().AsSymmetric()->Rehome(communicator_).or_throw();
    const CUdeviceptr block = pool_->Allocate(kBytes, KeyOfStream(nullptr, number_)).value();
    Check(runtime_.windows().Find(communicator_, block).has_value(), "blocks lie in windows again");
    pool_->Free(block).or_throw();
    SleepAlone(*pool_, {}).or_throw();
    WakeAlone(*pool_).or_throw();
    pool_->Close().or_throw();
    Check(pool_->Statistics().reserved_bytes.current == 0, "all is given back");
  }

  void CheckNames(const Status& status) const {
    const bool named = status.message().find("rank 2 was lost ") != std::string::npos;
    Check(status.code() == StatusCode::kRemoteFailure && named, status.message());
  }

  void Check(bool holds, const std::string& what) const {
    if (holds) return;
    std::fprintf(stderr, "rank %d: not so: %s\n", number_, what.c_str());
    _exit(1);
  }

  const int number_;
  const Pipe& pipe_of_id_;
  const std::shared_ptr<Driver> driver_;  // this rank's own
  const PrimaryContext context_;
  const ContextGuard current_;
  Runtime runtime_;
  ncclComm_t communicator_;
  std::shared_ptr<Pool> pool_;
  CUdeviceptr block_ = 0;
};

[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id, const Death& death) {
  try {
    Life life(number, pipe_of_id);
    if (number == kDead) life.Die(death);
    life.Survive(death);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", number, error.what());
    _exit(7);
  }
}

TEST(DeadSleeper, LetsTheOtherRanksEndInOrder) {
  for (const Death& death : Deaths()) {
    const std::vector<int> states =
        RunForkedRanks(kRanks, [&](int number, const Pipe& pipe_of_id) { LiveAsRank(number, pipe_of_id, death); });
    for (size_t rank = 0; rank < states.size(); ++rank) {
      const bool dead = WIFSIGNALED(states[rank]) && WTERMSIG(states[rank]) == SIGKILL;
      EXPECT_TRUE(rank == kDead ? dead : EndedWell(states[rank]))
          << "rank " << rank << " after a death while " << death.name << ": " << states[rank];
    }
  }
}

}  // namespace
}  // namespace commpool::internal::testing
