// Sleep of symmetric pools: all ranks fall asleep, or wake, in the same call, or none does.
#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/pool/segments/sleep.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// What ranks compare, because all must ask for the same, and register their windows in one order afterwards.
uint64_t NumberOf(const SleepRequest& request, uint64_t order) {
  return 4 * order + 2 * static_cast<uint64_t>(request.keep) + static_cast<uint64_t>(request.graphs);
}

// Graphs that nobody announced may name the windows' places. Without collectives none does.
uint64_t PlanReturn(RegistrationSet& registrations, const SleepRequest& request) {
  if (request.graphs == LiveGraphs::kRefused) return registrations.PlanReturn();
  registrations.ForgetReturn();
  return 0;
}

}  // namespace

Status SymmetricMode::Sleep(const SleepRequest& request) {
  MutexLock collective(segments_.collective());
  const Status readiness = Insist([&] { return Sleeping::CheckMaySleep(basis_, segments_, request); });
  const uint64_t order = readiness.ok() ? Insist([&] { return PlanReturn(segments_.registrations(), request); }) : 0;
  COMMPOOL_TRY(
      collective_.Begin({.call = CollectiveCall::kSleep, .bytes = NumberOf(request, order), .readiness = readiness}));
  const auto together = collective_.Runner();
  return Sleeping(basis_, blocks_, segments_, together).FallAsleep(request);
}

Status SymmetricMode::Wake() {
  MutexLock collective(segments_.collective());
  if (IsAlone()) {  // after a loss there is no communicator to register with: wakes only to save what was kept
    COMMPOOL_TRY(Sleeping::CheckMayWake(basis_));
    return basis_.Named(Sleeping(basis_, blocks_, segments_, kAlone).WakeUp().under("wake"));
  }
  const Status readiness = Insist([&] { return Sleeping::CheckMayWake(basis_); });
  COMMPOOL_TRY(
      collective_.Begin({.call = CollectiveCall::kWake, .readiness = readiness, .judge = registrar_.JudgeHeld()}));
  const auto together = collective_.Runner();
  return Sleeping(basis_, blocks_, segments_, together).WakeUp();
}

}  // namespace commpool::internal
