// Sleep of symmetric pools: all ranks fall asleep, or wake, in the same call, or none does.
#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/pool/segments/sleep.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// What ranks compare, because all must ask for the same, and register their windows in one order afterwards.
uint64_t NumberOf(const SleepRequest& request, uint64_t order) {
  return 8 * order + 4 * static_cast<uint64_t>(request.keep) + static_cast<uint64_t>(request.graphs);
}

// Graphs that nobody announced may name the windows' places, unless the program says otherwise.
Result<uint64_t> PlanReturn(RegistrationSet& registrations, const SleepRequest& request) {
  if (!DependOnPlaces(request.graphs)) {
    registrations.ForgetReturn();
    return uint64_t{0};
  }
  Result<uint64_t> order = registrations.PlanReturn();
  if (order.ok()) return order;
  return order.status().under("sleep would leave graphs with collectives stale (graphs = DISCARDED accepts that)");
}

}  // namespace

Status SymmetricMode::Sleep(const SleepRequest& request) {
  MutexLock collective(segments_.collective());
  Status readiness = Insist([&] { return Sleeping::CheckMaySleep(basis_, segments_, request); });
  uint64_t order = 0;
  if (readiness.ok()) {
    const Result<uint64_t> planned = Insist([&] { return PlanReturn(segments_.registrations(), request); });
    readiness = basis_.Named(planned.status());
    if (planned.ok()) order = *planned;
  }
  COMMPOOL_TRY(
      collective_.Begin({.call = CollectiveCall::kSleep, .bytes = NumberOf(request, order), .readiness = readiness}));
  const auto together = collective_.Runner();
  return Sleeping(basis_, blocks_, segments_, together).FallAsleep(request);
}

Status SymmetricMode::Wake(const WakeRequest& request) {
  MutexLock collective(segments_.collective());
  if (IsAlone()) {  // after a loss there is no communicator to register with: wakes only to save what was kept
    COMMPOOL_TRY(Sleeping::CheckMayWake(basis_, request));
    return basis_.Named(Sleeping(basis_, blocks_, segments_, kAlone).WakeUp(request).under("wake"));
  }
  const Status readiness = Insist([&] { return Sleeping::CheckMayWake(basis_, request); });
  COMMPOOL_TRY(collective_.Begin({.call = CollectiveCall::kWake,
                                  .bytes = static_cast<uint64_t>(request.graphs),
                                  .readiness = readiness,
                                  .judge = registrar_.JudgeHeld()}));
  const auto together = collective_.Runner();
  return Sleeping(basis_, blocks_, segments_, together).WakeUp(request);
}

}  // namespace commpool::internal
