// Ranks are processes. One dies while a communicator falls asleep, sleeps or wakes, or its memory comes back in part:
// the others hear it before their deadline, and can abort the communicator.
#include <cstdlib>
#include <functional>

#include "tests/driver/emulator_extension.h"
#include "tests/registration/forked_rank.h"

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
  std::function<void(Driver&)> prepare;
  bool dies = true;
  bool repeats = false;  // a second wake says the same
};

std::vector<Misfortune> Misfortunes() {
  const auto die_on_the_way = [](Driver& driver) {
    driver.nccl.ncclCommSuspend = [](ncclComm_t, int) { return static_cast<ncclResult_t>(std::raise(SIGKILL)); };
  };
  const auto die_on_the_way_back = [](Driver& driver) {
    driver.nccl.ncclCommResume = [](ncclComm_t) { return static_cast<ncclResult_t>(std::raise(SIGKILL)); };
  };
  const auto die_in_check = [](Driver& driver) {
    driver.nccl.ncclAllGather = [](const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
      return static_cast<ncclResult_t>(std::raise(SIGKILL));
    };
  };
  const auto die_at_once = [](Driver&) { std::raise(SIGKILL); };
  const auto fail_to_import = [](Driver&) {
    COMMPOOL_EXTENSION(commpoolEmulatorInjectFault)("ncclCommResume import", 0, 1, ncclSystemError);
  };
  return {{"in ncclCommSuspend", false, die_on_the_way},
          {.name = "asleep", .in_wake = true, .prepare = die_at_once, .repeats = true},
          {"in ncclCommResume", true, die_on_the_way_back},
          {"in the check", true, die_in_check},
          {"importing", true, fail_to_import, /*dies=*/false}};
}

[[noreturn]] void Live(ForkedRank rank, const Misfortune& misfortune) {
  SleepingCommunicators& all = rank.runtime.sleeping_communicators();
  const bool meets_it = rank.number == kLast;
  if (meets_it && !misfortune.in_wake) misfortune.prepare(*rank.driver);
  Status status = all.Sleep(rank.communicator, kDeadlineMs);
  if (misfortune.in_wake) {
    status.or_throw();
    if (meets_it) misfortune.prepare(*rank.driver);
    status = all.Wake(rank.communicator);
  }
  EXPECT_FALSE(meets_it && misfortune.dies) << "it should have died";
  EXPECT_FALSE(status.ok());
  if (misfortune.dies) {
    ExpectFailure(status, StatusCode::kRemoteFailure, "rank 2 was lost ");
  } else {
    ExpectFailure(status, status.code(), "checking NCCL's memory with a collective");
  }
  ExpectFailure(status, status.code(), "abort the communicator");
  if (misfortune.repeats) {
    const Status again = all.Wake(rank.communicator);
    ExpectFailure(again, again.code(), "abort the communicator");
  }
  rank.Abort();
  EndForkedRank();
}

TEST(DeadCommunicatorSleeper, IsNamedToAllOthers) {
  for (const Misfortune& misfortune : Misfortunes()) {
    SCOPED_TRACE(misfortune.name);
    const std::vector<int> states = RunForkedRanks(
        kRanks, [&](int number, const Pipe& pipe_of_id) { Live(ForkedRank(number, kRanks, pipe_of_id), misfortune); });
    ExpectEnded(states, misfortune.dies ? kLast : kNobody);
  }
}

}  // namespace
}  // namespace commpool::internal::testing
