// Fixed and expandable pools that sleep: without the other ranks, with local registrations.
#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/pool/growing/growing_mode.h"
#include "src/pool/segments/sleep.h"

namespace commpool::internal {

Status GrowingMode::Sleep(const SleepRequest& request) {
  MutexLock collective(segments_.collective());
  COMMPOOL_TRY(CheckMaySleep(basis_, segments_, request));
  BeginSleep(basis_, blocks_, segments_);
  Status status = FallAsleep(request);
  if (!status.ok() && StayAwake()) EndSleep(basis_, segments_);
  return basis_.Named(status.under("sleep"));
}

Status GrowingMode::FallAsleep(const SleepRequest& request) {
  MutexLock growth(segments_.growth());
  COMMPOOL_TRY(QuiesceAndKeep(blocks_, segments_, request));
  Status status = segments_.Deregister(Insist([&] { return segments_.Indexes(); }));
  if (status.ok()) status = segments_.UnmapAll();
  if (status.ok()) {
    segments_.ReleaseUnmapped();
    return status;
  }
  // What fails to register again is pending: register_pending tries again.
  if (segments_.MapAll().ok()) {
    static_cast<void>(segments_.registrations().RegisterPending(segments_.List()));
  }
  return status;
}

bool GrowingMode::StayAwake() {
  MutexLock growth(segments_.growth());
  if (!segments_.MapAll().ok()) return false;  // it sleeps, with its contents: wake() maps them
  segments_.kept().Drop();
  return true;
}

Status GrowingMode::Wake() {
  MutexLock collective(segments_.collective());
  COMMPOOL_TRY(CheckMayWake(basis_));
  Status status = WakeUp();
  if (status.code() == StatusCode::kOutOfMemory) {
    basis_.ReleaseOtherPools();
    basis_.runtime.holders.Release(basis_.device->device(), segments_.asleep_bytes());
    status = WakeUp();
  }
  if (status.ok()) EndSleep(basis_, segments_);
  return basis_.Named(status.under("wake"));
}

Status GrowingMode::WakeUp() {
  MutexLock growth(segments_.growth());
  COMMPOOL_TRY(segments_.Wake());
  Status status = segments_.registrations().RegisterPending(segments_.List()).status();
  if (status.ok()) {
    segments_.kept().Drop();
    return status;
  }
  if (segments_.UnmapAll().ok()) segments_.ReleaseUnmapped();
  return status;
}

}  // namespace commpool::internal
