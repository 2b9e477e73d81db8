// Fixed and expandable pools that sleep: without the other ranks, with local registrations.
#include "src/pool/growing/growing_mode.h"
#include "src/pool/growing/memory_search.h"
#include "src/pool/sleep.h"

namespace commpool::internal {

Status GrowingMode::Sleep(const SleepRequest& request) {
  MutexLock collective(parts_.collective);
  Status status = CheckMaySleep(parts_, request);
  if (!status.ok()) return status;
  BeginSleep(parts_);
  status = FallAsleep(request);
  if (!status.ok() && StayAwake()) EndSleep(parts_);
  return parts_.basis.Named(status.under("sleep"));
}

Status GrowingMode::FallAsleep(const SleepRequest& request) {
  MutexLock growth(parts_.segments.growth());
  Status status = QuiesceAndKeep(parts_, request);
  if (!status.ok()) return status;
  status = DeregisterSegments(parts_);
  if (status.ok()) status = parts_.segments.UnmapAll();
  if (status.ok()) {
    parts_.segments.ReleaseUnmapped();
    return status;
  }
  // What fails to register again is pending: register_pending tries again.
  if (parts_.segments.MapAll().ok()) {
    static_cast<void>(parts_.registrations.RegisterPending(parts_.segments.List()));
  }
  return status;
}

bool GrowingMode::StayAwake() {
  MutexLock growth(parts_.segments.growth());
  if (!parts_.segments.MapAll().ok()) return false;  // it sleeps, with its contents: wake() maps them
  parts_.kept.Drop(parts_.basis);
  return true;
}

Status GrowingMode::Wake() {
  MutexLock collective(parts_.collective);
  Status status = CheckMayWake(parts_);
  if (!status.ok()) return status;
  status = WakeUp();
  if (status.code() == StatusCode::kOutOfMemory) {
    ReleaseOtherPools(parts_.basis);
    parts_.basis.runtime.holders.Release(parts_.basis.device->device(), parts_.segments.asleep_bytes());
    status = WakeUp();
  }
  if (status.ok()) EndSleep(parts_);
  return parts_.basis.Named(status.under("wake"));
}

Status GrowingMode::WakeUp() {
  MutexLock growth(parts_.segments.growth());
  Status status = parts_.segments.Wake(parts_.kept);
  if (!status.ok()) return status;
  status = parts_.registrations.RegisterPending(parts_.segments.List()).status();
  if (status.ok()) {
    parts_.kept.Drop(parts_.basis);
    return status;
  }
  if (parts_.segments.UnmapAll().ok()) parts_.segments.ReleaseUnmapped();
  return status;
}

}  // namespace commpool::internal
