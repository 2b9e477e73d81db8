// Ranks are processes. One dies while a communicator falls asleep, sleeps or wakes, or its memory comes back in part:
// the others hear it before their deadline, and can abort the communicator.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "tests/driver/emulator_extension.h"
#include "tests/registration/forked_ranks.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kNewer = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7,nccl_timeout_ms=60000", 1);

constexpr int kRanks = 3;
constexpr int kLast = 2;
constexpr uint64_t kDeadlineMs = 4000;

// What the last rank does, or what happens to it, and what all who live on hear.
struct Misfortune {
  const char* name;
  bool in_wake;
  bool dies;
  std::function<void(Driver&)> prepare;
  StatusCode code;
  std::string part;
  bool repeats = false;  // a second wake says the same
};

std::vector<Misfortune> Misfortunes() {
  const auto die_on_the_way = [](Driver& driver) {
    driver.nccl.ncclCommSuspend = [](ncclComm_t, int) -> ncclResult_t {
      std::raise(SIGKILL);
      return ncclSuccess;
    };
  };
  const auto die_on_the_way_back = [](Driver& driver) {
    driver.nccl.ncclCommResume = [](ncclComm_t) -> ncclResult_t {
      std::raise(SIGKILL);
      return ncclSuccess;
    };
  };
  const auto die_in_check = [](Driver& driver) {
    driver.nccl.ncclAllGather = [](const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                                   cudaStream_t) -> ncclResult_t {
      std::raise(SIGKILL);
      return ncclSuccess;
    };
  };
  const auto die_at_once = [](Driver&) { std::raise(SIGKILL); };
  const auto fail_to_import = [](Driver&) {
    COMMPOOL_EXTENSION(commpoolEmulatorInjectFault)("ncclCommResume import", 0, 1, ncclSystemError);
  };
  return {{"in ncclCommSuspend", false, true, die_on_the_way, StatusCode::kRemoteFailure, "rank 2 was lost "},
          {"asleep", true, true, die_at_once, StatusCode::kRemoteFailure, "rank 2 was lost ", true},
          {"in ncclCommResume", true, true, die_on_the_way_back, StatusCode::kRemoteFailure, "rank 2 was lost "},
          {"in the check", true, true, die_in_check, StatusCode::kRemoteFailure, "rank 2 was lost "},
          {"importing", true, false, fail_to_import, StatusCode::kOk, "checking NCCL's memory with a collective"}};
}

class Life {
 public:
  Life(int number, const Pipe& pipe_of_id)
      : number_(number),
        driver_(std::make_shared<Driver>(*SharedDriver())),
        context_(PrimaryContext::Retain(*driver_, number).value()),
        current_(*driver_, context_),
        runtime_(driver_),
        communicator_(ConnectForkedRank(*driver_, number, kRanks, pipe_of_id)) {}

  [[noreturn]] void Live(const Misfortune& misfortune) {
    SleepingCommunicators& all = runtime_.sleeping_communicators();
    const bool meets_it = number_ == kLast;
    if (meets_it && !misfortune.in_wake) misfortune.prepare(*driver_);
    Status status = all.Sleep(communicator_, kDeadlineMs);
    if (misfortune.in_wake) {
      status.or_throw();
      if (meets_it) misfortune.prepare(*driver_);
      status = all.Wake(communicator_);
    }
    Check(!(meets_it && misfortune.dies), "it should have died");
    Check(!status.ok() && (misfortune.code == StatusCode::kOk || status.code() == misfortune.code), status.message());
    Check(status.message().find(misfortune.part) != std::string::npos, status.message());
    CheckSaysToAbort(status);
    if (misfortune.repeats) CheckSaysToAbort(all.Wake(communicator_));
    const ncclComm_t ended = std::exchange(communicator_, nullptr);
    Check(driver_->nccl.ncclCommAbort(ended) == ncclSuccess, "the communicator ends");
    _exit(0);
  }

 private:
  void Check(bool holds, const std::string& what) const {
    if (holds) return;
    std::fprintf(stderr, "rank %d: not so: %s\n", number_, what.c_str());
    _exit(1);
  }

  void CheckSaysToAbort(const Status& status) const {
    Check(status.message().find("abort the communicator") != std::string::npos, status.message());
  }

  const int number_;
  const std::shared_ptr<Driver> driver_;  // this rank's own
  const PrimaryContext context_;
  const ContextGuard current_;
  Runtime runtime_;
  ncclComm_t communicator_;
};

[[noreturn]] void LiveAsRank(int number, const Pipe& pipe_of_id, const Misfortune& misfortune) {
  try {
    Life(number, pipe_of_id).Live(misfortune);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", number, error.what());
    _exit(7);
  }
}

TEST(DeadCommunicatorSleeper, IsNamedToAllOthers) {
  for (const Misfortune& misfortune : Misfortunes()) {
    const std::vector<int> states =
        RunForkedRanks(kRanks, [&](int number, const Pipe& pipe_of_id) { LiveAsRank(number, pipe_of_id, misfortune); });
    for (size_t rank = 0; rank < states.size(); ++rank) {
      const bool dead = WIFSIGNALED(states[rank]) && WTERMSIG(states[rank]) == SIGKILL;
      EXPECT_TRUE(rank == kLast && misfortune.dies ? dead : EndedWell(states[rank]))
          << "rank " << rank << ", " << misfortune.name << ": " << states[rank];
    }
  }
}

}  // namespace
}  // namespace commpool::internal::testing
