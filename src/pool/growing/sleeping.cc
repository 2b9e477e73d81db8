// Sleep of fixed and expandable pools: no other ranks, local registrations.
#include "src/base/try.h"
#include "src/pool/growing/growing_mode.h"
#include "src/pool/segments/sleep.h"

namespace commpool::internal {

Status GrowingMode::Sleep(const SleepRequest& request) {
  MutexLock collective(segments_.collective());
  COMMPOOL_TRY(Sleeping::CheckMaySleep(basis_, segments_, request));
  return basis_.Named(Sleeping(basis_, blocks_, segments_, kAlone).FallAsleep(request).under("sleep"));
}

Status GrowingMode::Wake(const WakeRequest& request) {
  MutexLock collective(segments_.collective());
  COMMPOOL_TRY(Sleeping::CheckMayWake(basis_, request));
  Sleeping sleeping(basis_, blocks_, segments_, kAlone);
  Status status = sleeping.WakeUp(request);
  if (status.code() == StatusCode::kOutOfMemory) {
    basis_.ReleaseOtherPools();
    basis_.runtime.holders.Release(basis_.device->device(), segments_.asleep_bytes());
    status = sleeping.WakeUp(request);
  }
  return basis_.Named(status.under("wake"));
}

}  // namespace commpool::internal
