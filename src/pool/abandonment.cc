#include "src/pool/abandonment.h"

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

Status EndRegistrations(PoolParts& parts, ncclComm_t communicator) {
  MutexLock collective(parts.collective);
  if (!parts.registrations.Has(communicator)) return Status();
  Status status = parts.pins.CheckMayDeregister();
  if (status.ok()) status = WaitForDeviceAfterLoss(parts);
  if (!status.ok()) return status;
  const ContextGuard current = parts.basis.MakeCurrent();
  return parts.registrations.Remove(communicator);
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
