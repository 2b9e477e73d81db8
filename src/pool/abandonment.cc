#include "src/pool/abandonment.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "src/base/bytes.h"
#include "src/base/log.h"

namespace commpool::internal {

namespace {

// NCCL is not told: the program says that the communicator has ended.
void Forget(PoolParts& parts, ncclComm_t communicator) {
  const uint64_t held = parts.registrations.Forget(communicator);
  if (held == 0) return;
  Log(LogLevel::kWarning,
      parts.basis.title + ": its communicator ended before abandon(), so NCCL " +
          FormatNcclVersion(parts.basis.driver.nccl.version) + " holds " + FormatBytes(held) +
          " of windows until the process ends: abandon a communicator while it is alive, then abort "
          "it, then close()");
}

// A registration's end takes this rank's way to its peers' windows, so their users get the deadline to finish. What
// runs on then waits for the lost rank until the communicator is aborted, and has no use for them.
Status LetTheDeviceFinish(PoolParts& parts) {
  const Status status = parts.blocks.WaitForDevice();
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  Log(LogLevel::kInfo, parts.basis.title + ": abandon goes on: " + status.message());
  return Status();
}

Status EndRegistrations(PoolParts& parts, ncclComm_t communicator) {
  const auto began = std::chrono::steady_clock::now();
  MutexLock collective(parts.collective);
  if (!parts.registrations.Has(communicator)) return Status();
  Status status = parts.pins.CheckMayDeregister();
  if (status.ok() && parts.registrations.IsRegisteredWith(communicator)) status = LetTheDeviceFinish(parts);
  if (!status.ok()) return status;
  const ContextGuard current = parts.basis.MakeCurrent();
  // What is left of the deadline after the device: the call as a whole keeps to one.
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  const uint64_t spent_ms = static_cast<uint64_t>(waited.count());
  const uint64_t deadline_ms = parts.basis.deadline_ms();
  Status ended = parts.registrations.EndUnfinished(communicator, deadline_ms - std::min(deadline_ms, spent_ms));
  const Status removed = parts.registrations.Remove(communicator);
  if (ended.ok()) ended = removed;
  // Its handles are dropped all the same, and there is no second try: the pool is done with it.
  if (!ended.ok()) Log(LogLevel::kWarning, parts.basis.title + ": abandon: " + ended.message());
  return Status();
}

}  // namespace

Status WaitForDeviceAfterLoss(PoolParts& parts) {
  Status status = parts.blocks.WaitForDevice();
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  return Status(status.code(),
                status.message() +
                    " If it is a window collective with a rank that is lost, it never ends, and an abort "
                    "or revoke does not help: end the process");
}

Status AbandonCommunicator(PoolParts& parts, ncclComm_t communicator, CommunicatorLife life) {
  if (life == CommunicatorLife::kAlive)
    return parts.basis.Named(EndRegistrations(parts, communicator).under("abandon"));
  Forget(parts, communicator);
  return Status();
}

}  // namespace commpool::internal
