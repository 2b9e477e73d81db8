// Sleep of symmetric pools: all ranks fall asleep, or wake, in the same call, or none does.
#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/pool/segments/sleep.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// What ranks compare, because all must ask for the same.
uint64_t NumberOf(const SleepRequest& request) {
  return 2 * static_cast<uint64_t>(request.keep) + static_cast<uint64_t>(request.graphs);
}

}  // namespace

Status SymmetricMode::Sleep(const SleepRequest& request) {
  MutexLock collective(segments_.collective());
  const Status readiness = Insist([&] { return Sleeping::CheckMaySleep(basis_, segments_, request); });
  COMMPOOL_TRY(collective_.Begin({.call = CollectiveCall::kSleep, .bytes = NumberOf(request), .readiness = readiness}));
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
