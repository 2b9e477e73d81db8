// Symmetric pools that sleep: every rank falls asleep and wakes in the same call, or none does.
#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/base/try.h"
#include "src/pool/segments/sleep.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

// What ranks compare: all have to ask for the same.
uint64_t NumberOf(const SleepRequest& request) {
  return 2 * static_cast<uint64_t>(request.keep) + static_cast<uint64_t>(request.graphs);
}

// The channel to the other ranks is gone, and no call will reach them any more.
bool IsBroken(const Status& status) {
  return status.code() == StatusCode::kRemoteFailure || status.code() == StatusCode::kDeadlineExceeded;
}

}  // namespace

Status SymmetricMode::Sleep(const SleepRequest& request) {
  MutexLock collective(segments_.collective());
  const Status readiness = Insist([&] { return CheckMaySleep(basis_, segments_, request); });
  const Result<Agreed> agreed =
      collective_.Begin({.call = CollectiveCall::kSleep, .bytes = NumberOf(request), .readiness = readiness});
  if (!agreed.ok()) return agreed.status();
  BeginSleep(basis_, blocks_, segments_);
  return FallAsleep(request);
}

Status SymmetricMode::FallAsleep(const SleepRequest& request) {
  Status status = collective_.Run({.name = "getting ready to sleep", .act = [&] {
                                     MutexLock growth(segments_.growth());
                                     return QuiesceAndKeep(blocks_, segments_, request);
                                   }});
  if (status.ok())
    status = collective_.Run({.name = "deregistering", .act = [&] {
                                return segments_.Deregister(Insist([&] { return segments_.Indexes(); }));
                              }});
  if (status.ok())
    status = collective_.Run({.name = "unmapping", .act = [&] {
                                MutexLock growth(segments_.growth());
                                return segments_.UnmapAll();
                              }});
  if (!status.ok()) return StayAwake(status);
  MutexLock growth(segments_.growth());
  segments_.ReleaseUnmapped();
  return status;
}

Status SymmetricMode::StayAwake(const Status& failure) {
  Status mapped;
  Status again = collective_.Run({.name = "mapping again", .act = [&] {
                                    MutexLock growth(segments_.growth());
                                    return mapped = segments_.MapAll();
                                  }});
  if (again.ok()) {
    again = collective_.Run({.name = "registering again", .act = [&] { return RegisterSegments(); }});
  }
  // Without the other ranks this one decides alone; with them, all are as one.
  if (!again.ok() && !(IsBroken(again) && mapped.ok())) {
    return Status(failure.code(), failure.message() + "; then " + again.message() + ": the pool is asleep, wake() it");
  }
  EndWake();
  return failure;
}

Status SymmetricMode::RegisterSegments() {
  segments_.collective().AssertHeld();
  const ContextGuard current = basis_.MakeCurrent();
  for (const SegmentToRegister& segment : Insist([&] { return segments_.List(); })) {
    COMMPOOL_TRY(segments_.registrations().RegisterSegment(segment));
  }
  return Status();
}

Status SymmetricMode::Wake() {
  MutexLock collective(segments_.collective());
  if (ties_.load(std::memory_order_acquire) == Ties::kAbandoned && segments_.registrations().empty())
    return WakeAlone();
  const Status readiness = Insist([&] { return CheckMayWake(basis_); });
  const Result<Agreed> agreed =
      collective_.Begin({.call = CollectiveCall::kWake, .readiness = readiness, .judge = registrar_.JudgeHeld()});
  if (!agreed.ok()) return agreed.status();
  if (!agreed->claims.ok()) return basis_.Named(agreed->claims);
  return WakeUp();
}

Status SymmetricMode::MakeAndRestore() {
  MutexLock growth(segments_.growth());
  return segments_.Wake();
}

// With nobody to agree with, and no communicator to register with: the way to what was kept.
Status SymmetricMode::WakeAlone() {
  COMMPOOL_TRY(CheckMayWake(basis_));
  Status status = Attempt([&] { return MakeAndRestore(); });
  if (!status.ok()) {
    ReleaseAgain();
    return basis_.Named(status.under("wake"));
  }
  EndWake();
  return Status();
}

void SymmetricMode::EndWake() {
  {
    MutexLock growth(segments_.growth());
    segments_.kept().Drop();
  }
  EndSleep(basis_, segments_);
}

Status SymmetricMode::WakeUp() {
  COMMPOOL_TRY(collective_.Run({.name = "making memory to wake",
                                .act = [&] { return MakeAndRestore(); },
                                .undo = [&](const Status&) { ReleaseAgain(); }}));
  Status status = collective_.Run({.name = "registering",
                                   .act = [&] { return RegisterSegments(); },
                                   .undo = [&](const Status&) { UndoRegistration(); }});
  if (status.ok()) EndWake();
  return status;
}

void SymmetricMode::UndoRegistration() {
  segments_.collective().AssertHeld();
  const Status undone = Attempt([&] { return segments_.Deregister(Insist([&] { return segments_.Indexes(); })); });
  if (collective_.AllUndone(undone)) ReleaseAgain();  // else it stays, and the pool sleeps
}

void SymmetricMode::ReleaseAgain() {
  MutexLock growth(segments_.growth());
  if (segments_.asleep_bytes() == 0 && segments_.UnmapAll().ok()) segments_.ReleaseUnmapped();
}

}  // namespace commpool::internal
